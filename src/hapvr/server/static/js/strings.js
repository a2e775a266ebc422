// Every string of the page: English, German, Spanish; two forms where a number decides. The braces hold plain JSON.

export const STRINGS = {
  "filter.title": ["Only some videos", "Nur bestimmte Videos", "Solo algunos vídeos"],
  "filter.root": ["Folder", "Ordner", "Carpeta"],
  "filter.allFolders": ["All folders", "Alle Ordner", "Todas las carpetas"],
  "filter.folder": ["Folder within it", "Ordner darin", "Carpeta dentro de ella"],
  "filter.allOfIt": ["all of it", "alles", "toda"],
  "filter.minLength": ["Length from", "Länge von", "Duración desde"],
  "filter.maxLength": ["Length to", "Länge bis", "Duración hasta"],
  "filter.after": ["Changed from", "Geändert von", "Modificado desde"],
  "filter.before": ["Changed to", "Geändert bis", "Modificado hasta"],
  "filter.reset": ["All videos", "Alle Videos", "Todos los vídeos"],
  "filter.all": ["all videos", "alle Videos", "todos los vídeos"],
  "filter.badLength": [
    "Give lengths as seconds or minutes: 75 or 1:15.",
    "Längen als Sekunden oder Minuten angeben: 75 oder 1:15.",
    "Indique las duraciones en segundos o minutos: 75 o 1:15."
  ],
  "filter.lengthOrder": [
    "The shortest length is above the longest.",
    "Die kleinste Länge liegt über der größten.",
    "La duración mínima supera a la máxima."
  ],
  "filter.dateOrder": [
    "The first day comes after the last.",
    "Der erste Tag liegt nach dem letzten.",
    "El primer día es posterior al último."
  ],
  "filter.inFolder": ["in {folder}", "in {folder}", "en {folder}"],
  "filter.longer": ["{length} or longer", "ab {length}", "de {length} o más"],
  "filter.shorter": ["{length} or shorter", "bis {length}", "de {length} o menos"],
  "filter.larger": ["{size} or larger", "ab {size}", "de {size} o más"],
  "filter.smaller": ["{size} or smaller", "bis {size}", "de {size} o menos"],
  "filter.since": ["changed from {day} on", "geändert ab {day}", "modificados desde el {day}"],
  "filter.until": ["changed up to {day}", "geändert bis {day}", "modificados hasta el {day}"],
  "filter.line": ["Only videos: {limits}.", "Nur Videos: {limits}.", "Solo vídeos: {limits}."],
  "closer.title": [
    "How the two frames are shown",
    "Wie die zwei Bilder gezeigt werden",
    "Cómo se muestran los dos fotogramas"
  ],
  "closer.side": ["Side by side", "Nebeneinander", "Lado a lado"],
  "closer.overlay": ["Overlay", "Überlagert", "Superpuestos"],
  "closer.blink": ["Blink", "Im Wechsel", "Alternados"],
  "closer.difference": ["Difference", "Unterschied", "Diferencia"],
  "closer.share": [
    "How much of the match is seen",
    "Wie viel vom Treffer zu sehen ist",
    "Cuánto se ve de la coincidencia"
  ],
  "closer.overlay.said": [
    "The match lies over the query; the slider sets how much of it is seen.",
    "Der Treffer liegt über der Anfrage; der Regler bestimmt, wie viel von ihm zu sehen ist.",
    "La coincidencia se superpone a la consulta; el control ajusta cuánto se ve de ella."
  ],
  "closer.blink.said": [
    "The query and the match in turn. B changes them by hand.",
    "Anfrage und Treffer im Wechsel. B wechselt von Hand.",
    "La consulta y la coincidencia por turnos. B las cambia a mano."
  ],
  "closer.difference.said": [
    "Black where both frames are the same; the brighter, the more they differ.",
    "Schwarz, wo beide Bilder gleich sind; je heller, desto größer der Unterschied.",
    "Negro donde ambos fotogramas son iguales; cuanto más claro, más difieren."
  ],
  "keys.title": ["Keys", "Tasten", "Teclas"],
  "keys.open": ["Show all keys", "Alle Tasten zeigen", "Mostrar todas las teclas"],
  "keys.done": ["Close", "Schließen", "Cerrar"],
  "keys.everywhere": ["Everywhere", "Überall", "En todas partes"],
  "keys.help": ["Show these keys", "Diese Tasten zeigen", "Mostrar estas teclas"],
  "keys.next": ["Go to the next control", "Zum nächsten Bedienelement", "Ir al siguiente control"],
  "keys.close": ["Close a dialog", "Einen Dialog schließen", "Cerrar un diálogo"],
  "keys.match": ["Two videos side by side", "Zwei Videos nebeneinander", "Dos vídeos lado a lado"],
  "keys.play": ["Play and pause", "Abspielen und anhalten", "Reproducir y pausar"],
  "keys.blink": [
    "Blink; again: the other frame",
    "Im Wechsel; erneut: das andere Bild",
    "Alternados; otra vez: el otro"
  ],
  "keys.matrix": ["In the frame matrix", "In der Bildmatrix", "En la matriz de fotogramas"],
  "keys.column": [
    "Another frame of the match",
    "Ein anderes Bild des Treffers",
    "Otro fotograma de la coincidencia"
  ],
  "keys.row": ["Another frame of the query", "Ein anderes Bild der Anfrage", "Otro fotograma de la consulta"],
  "keys.ends": [
    "The first and last of the match",
    "Das erste und letzte des Treffers",
    "El primero y el último"
  ],
  "keys.bars": [
    "On the bars below the videos",
    "Auf den Leisten unter den Videos",
    "En las barras bajo los vídeos"
  ],
  "keys.seek": ["Move both videos", "Beide Videos bewegen", "Mover ambos vídeos"],
  "link.copy": ["Copy link", "Link kopieren", "Copiar enlace"],
  "link.copied": ["Link copied.", "Link kopiert.", "Enlace copiado."],
  "link.until": [
    "Link copied. The uploaded video is kept for it until {day}.",
    "Link kopiert. Das hochgeladene Video bleibt dafür bis {day} erhalten.",
    "Enlace copiado. El vídeo subido se conserva para él hasta el {day}."
  ],
  "link.byHand": [
    "The browser does not let this page copy: copy its address by hand.",
    "Der Browser lässt diese Seite nicht kopieren: die Adresse von Hand kopieren.",
    "El navegador no permite copiar: copie la dirección a mano."
  ],
  "folder.choose": ["Choose…", "Auswählen…", "Elegir…"],
  "folder.title": ["Choose a folder in {root}", "Einen Ordner in {root} wählen", "Elegir una carpeta en {root}"],
  "folder.use": ["Use this folder", "Diesen Ordner nehmen", "Usar esta carpeta"],
  "folder.cancel": ["Cancel", "Abbrechen", "Cancelar"],
  "folder.up": ["One level up", "Eine Ebene höher", "Un nivel arriba"],
  "folder.none": ["No folders in it", "Keine Ordner darin", "No contiene carpetas"],
  "folder.more": ["And more: type their names.", "Und weitere: den Namen eintippen.", "Y más: escriba su nombre."]
};
