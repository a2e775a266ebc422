// Every string of the page: English, German, Spanish; two forms where a number decides. The braces hold plain JSON.

export const STRINGS = {
  "act.andMore": ["And {n} more.", "Und {n} weitere.", "Y {n} más."],
  "act.back": ["{files} taken back.", "{files} zurückgeholt.", "{files} recuperados."],
  "act.choose": ["Choose", "Wählen", "Elegir"],
  "act.chooseName": ["Choose {name}", "{name} wählen", "Elegir {name}"],
  "act.chosen": ["{files} chosen, {size}", "{files} gewählt, {size}", "{files} elegidos, {size}"],
  "act.edited": ["Edited", "Bearbeitet", "Editado"],
  "act.encoding": ["Another encoding", "Andere Kodierung", "Otra codificación"],
  "act.hardlink": ["Replace by hard links", "Durch harte Links ersetzen", "Sustituir por enlaces duros"],
  "act.hardlink.done": ["replaced by hard links", "durch harte Links ersetzt", "sustituidos por enlaces duros"],
  "act.impossible": [
    "Nothing can be done. {left}",
    "Es lässt sich nichts tun. {left}",
    "No se puede hacer nada. {left}"
  ],
  "act.kept": [
    ["{n} copy of them will be kept. It can be taken back.", "{n} copies of them will be kept. It can be taken back."],
    ["{n} Kopie davon bleibt erhalten. Es lässt sich zurücknehmen.", "{n} Kopien davon bleiben erhalten. Es lässt sich zurücknehmen."],
    ["Se conservará {n} copia. Se puede deshacer.", "Se conservarán {n} copias. Se puede deshacer."]
  ],
  "act.left": ["Left alone: {named}", "Unangetastet: {named}", "Sin tocar: {named}"],
  "act.move": ["Move away", "Wegbewegen", "Apartar"],
  "act.move.done": ["moved away", "wegbewegt", "apartados"],
  "act.nothing": ["Nothing chosen", "Nichts gewählt", "Nada elegido"],
  "act.symlink": ["Replace by symbolic links", "Durch symbolische Links ersetzen", "Sustituir por enlaces simbólicos"],
  "act.symlink.done": [
    "replaced by symbolic links",
    "durch symbolische Links ersetzt",
    "sustituidos por enlaces simbólicos"
  ],
  "act.trash": ["Move to the trash", "In den Papierkorb", "Mover a la papelera"],
  "act.trash.done": ["moved to the trash", "in den Papierkorb verschoben", "movidos a la papelera"],
  "act.undo": [
    "Undo what was done with files",
    "Rückgängig machen, was mit Dateien geschah",
    "Deshacer lo hecho con archivos"
  ],
  "add.add": ["Add", "Hinzufügen", "Añadir"],
  "add.added": ["{videos} added", "{videos} hinzugefügt", "{videos} añadidos"],
  "add.cancelled": ["Adding was cancelled", "Hinzufügen wurde abgebrochen", "Se canceló la adición"],
  "add.done": ["Done", "Fertig", "Hecho"],
  "add.failed": ["{n} failed", "{n} fehlgeschlagen", "{n} fallidos"],
  "add.failedTitle": ["Adding failed", "Hinzufügen fehlgeschlagen", "No se pudo añadir"],
  "add.files": ["files", "Dateien", "archivos"],
  "add.moved": ["{n} moved", "{n} verschoben", "{n} movidos"],
  "add.noReason": [
    "The server gave no reason.",
    "Der Server nannte keinen Grund.",
    "El servidor no dio ningún motivo."
  ],
  "add.notAllowed": [
    "No folder may be added from here. Start the server with --root FOLDER to allow one.",
    "Von hier aus darf kein Ordner hinzugefügt werden. Den Server mit --root ORDNER starten, um einen zu erlauben.",
    "Desde aquí no se puede añadir ninguna carpeta. Inicie el servidor con --root CARPETA para permitir una."
  ],
  "add.nothing": ["Nothing to add", "Nichts hinzuzufügen", "Nada que añadir"],
  "add.prune": [
    "Remove videos whose files are gone",
    "Videos entfernen, deren Dateien weg sind",
    "Quitar vídeos cuyos archivos ya no están"
  ],
  "add.queued": ["Waiting to add videos", "Wartet darauf, Videos hinzuzufügen", "A la espera de añadir vídeos"],
  "add.rate": ["frames/s", "Bilder/s", "fotogramas/s"],
  "add.removed": ["{n} removed", "{n} entfernt", "{n} quitados"],
  "add.root": ["Root", "Wurzelordner", "Raíz"],
  "add.running": ["Adding videos", "Videos werden hinzugefügt", "Añadiendo vídeos"],
  "add.stays": ["What was added before stays.", "Was schon hinzugefügt war, bleibt.", "Lo añadido antes permanece."],
  "add.time": [", in {time}", ", in {time}", ", en {time}"],
  "add.title": ["Add a folder", "Ordner hinzufügen", "Añadir una carpeta"],
  "add.unchanged": ["{n} unchanged", "{n} unverändert", "{n} sin cambios"],
  "add.unknown": ["Its result is not known", "Das Ergebnis ist nicht bekannt", "No se conoce su resultado"],
  "add.updated": ["{n} updated", "{n} aktualisiert", "{n} actualizados"],
  "api.cut": ["The upload was cut off.", "Das Hochladen wurde abgebrochen.", "La subida se interrumpió."],
  "api.offline": ["The server does not answer.", "Der Server antwortet nicht.", "El servidor no responde."],
  "api.offline.hint": [
    "See whether hapvr serve is still running, then try again.",
    "Nachsehen, ob hapvr serve noch läuft, und es dann erneut versuchen.",
    "Compruebe si hapvr serve sigue en marcha e inténtelo de nuevo."
  ],
  "api.status": [
    "The server answered {status}.",
    "Der Server hat mit {status} geantwortet.",
    "El servidor respondió {status}."
  ],
  "api.wrongToken": [
    "That is not the token of this server.",
    "Das ist nicht das Token dieses Servers.",
    "Ese no es el token de este servidor."
  ],
  "back": ["‹ Back", "‹ Zurück", "‹ Atrás"],
  "badge.probability": [
    "How probable it is that both share footage",
    "Wie wahrscheinlich beide dasselbe Material zeigen",
    "Probabilidad de que ambos compartan material"
  ],
  "badge.score": [
    "This model gives no probabilities: the score from −1 to 1 is shown",
    "Dieses Modell nennt keine Wahrscheinlichkeiten: der Wert von −1 bis 1 steht da",
    "Este modelo no da probabilidades: se muestra el valor de −1 a 1"
  ],
  "cancel": ["Cancel", "Abbrechen", "Cancelar"],
  "change": ["Change", "Ändern", "Cambiar"],
  "check.begin": ["Check the library", "Die Bibliothek prüfen", "Comprobar la biblioteca"],
  "check.damaged": [
    "{count} problems. `hapvr check LIBRARY --repair` says what it can repair, and does it.",
    "{count} Probleme. `hapvr check LIBRARY --repair` sagt, was sich beheben lässt, und tut es.",
    "{count} problemas. `hapvr check LIBRARY --repair` dice qué puede reparar, y lo hace."
  ],
  "check.hint": [
    "Reads all stored files and compares them with their checksums. Nothing is changed.",
    "Liest alle gespeicherten Dateien und vergleicht sie mit ihren Prüfsummen. Nichts wird geändert.",
    "Lee todos los archivos guardados y los compara con sus sumas de comprobación. No se cambia nada."
  ],
  "check.running": ["Checking …", "Wird geprüft …", "Comprobando…"],
  "check.sound": [
    "The library is intact: everything about {videos} videos is as it was written.",
    "Die Bibliothek ist heil: alles zu {videos} Videos ist, wie es geschrieben wurde.",
    "La biblioteca está íntegra: todo lo de {videos} vídeos está como se escribió."
  ],
  "check.title": ["Library", "Bibliothek", "Biblioteca"],
  "closer.blink": ["Blink", "Im Wechsel", "Alternados"],
  "closer.blink.said": [
    "The query and the match in turn. B changes them by hand.",
    "Anfrage und Treffer im Wechsel. B wechselt von Hand.",
    "La consulta y la coincidencia por turnos. B las cambia a mano."
  ],
  "closer.difference": ["Difference", "Unterschied", "Diferencia"],
  "closer.difference.said": [
    "Black where both frames are the same; the brighter, the more they differ.",
    "Schwarz, wo beide Bilder gleich sind; je heller, desto größer der Unterschied.",
    "Negro donde ambos fotogramas son iguales; cuanto más claro, más difieren."
  ],
  "closer.overlay": ["Overlay", "Überlagert", "Superpuestos"],
  "closer.overlay.said": [
    "The match lies over the query; the slider sets how much of it is seen.",
    "Der Treffer liegt über der Anfrage; der Regler bestimmt, wie viel von ihm zu sehen ist.",
    "La coincidencia se superpone a la consulta; el control ajusta cuánto se ve de ella."
  ],
  "closer.share": [
    "How much of the match is seen",
    "Wie viel vom Treffer zu sehen ist",
    "Cuánto se ve de la coincidencia"
  ],
  "closer.side": ["Side by side", "Nebeneinander", "Lado a lado"],
  "closer.title": [
    "How the two frames are shown",
    "Wie die zwei Bilder gezeigt werden",
    "Cómo se muestran los dos fotogramas"
  ],
  "dismiss": ["Dismiss", "Ausblenden", "Descartar"],
  "drop.choose": ["Choose a file", "Datei wählen", "Elegir un archivo"],
  "drop.text": [
    "A whole film, a clip or a single frame. It is sent to this server only.",
    "Ein ganzer Film, ein Ausschnitt oder ein einzelnes Bild. Es geht nur an diesen Server.",
    "Una película entera, un fragmento o un solo fotograma. Solo se envía a este servidor."
  ],
  "drop.title": [
    "Drop a video or picture here",
    "Ein Video oder Bild hier ablegen",
    "Suelte aquí un vídeo o una imagen"
  ],
  "dup.addVideos": ["Add videos", "Videos hinzufügen", "Añadir vídeos"],
  "dup.again": ["Look again", "Erneut suchen", "Buscar de nuevo"],
  "dup.all": [
    "All {videos} are compared with each other. It runs in the background and can be cancelled.",
    "Alle {videos} werden miteinander verglichen. Das läuft im Hintergrund und lässt sich abbrechen.",
    "Se comparan entre sí los {videos}. Se hace en segundo plano y se puede cancelar."
  ],
  "dup.cancelled": ["Cancelled.", "Abgebrochen.", "Cancelado."],
  "dup.evidence": ["Evidence", "Belege", "Pruebas"],
  "dup.failed": [
    "The search for duplicates did not finish",
    "Die Suche nach Duplikaten wurde nicht beendet",
    "La búsqueda de duplicados no terminó"
  ],
  "dup.group": ["Group {number}", "Gruppe {number}", "Grupo {number}"],
  "dup.keep": ["Keep", "Behalten", "Conservar"],
  "dup.lead": [
    "Videos of the library that show the same, in full or in part.",
    "Videos der Bibliothek, die dasselbe zeigen, ganz oder teilweise.",
    "Vídeos de la biblioteca que muestran lo mismo, entero o en parte."
  ],
  "dup.look": ["Look for duplicates", "Nach Duplikaten suchen", "Buscar duplicados"],
  "dup.needsTwo": [
    "The library needs at least two.",
    "Die Bibliothek braucht mindestens zwei.",
    "La biblioteca necesita al menos dos."
  ],
  "dup.none": ["No duplicates", "Keine Duplikate", "Sin duplicados"],
  "dup.noneText": [
    "No two videos of the library show the same.",
    "Keine zwei Videos der Bibliothek zeigen dasselbe.",
    "No hay dos vídeos de la biblioteca que muestren lo mismo."
  ],
  "dup.onlyParts": [
    "No whole copies, but shared parts.",
    "Keine ganzen Kopien, aber gemeinsame Teile.",
    "No hay copias enteras, pero sí partes compartidas."
  ],
  "dup.parts": ["Parts of others", "Teile von anderen", "Partes de otros"],
  "dup.running": ["Looking for duplicates", "Duplikate werden gesucht", "Buscando duplicados"],
  "dup.see": ["See what is there twice", "Sehen, was doppelt da ist", "Ver qué está repetido"],
  "dup.sharedCounts": [
    "Footage that many videos share, such as end cards, counts too. ",
    "Material, das viele Videos gemeinsam haben, etwa Abspänne, zählt mit. ",
    "El material que comparten muchos vídeos, como los cierres, también cuenta. "
  ],
  "dup.sharedIgnored": [
    "Footage that many videos share, such as end cards, is ignored. ",
    "Material, das viele Videos gemeinsam haben, etwa Abspänne, zählt nicht. ",
    "El material que comparten muchos vídeos, como los cierres, se ignora. "
  ],
  "dup.summary": [
    "{groups}; {videos} to spare, {size} in all.",
    "{groups}; {videos} entbehrlich, zusammen {size}.",
    "{groups}; {videos} de sobra, {size} en total."
  ],
  "dup.tooFew": ["Too few videos to compare", "Zu wenige Videos zum Vergleichen", "Muy pocos vídeos para comparar"],
  "dup.untouched": [
    " Files are never touched from here.",
    " Dateien werden von hier aus nie angetastet.",
    " Desde aquí nunca se tocan archivos."
  ],
  "duplicates": ["Duplicates", "Duplikate", "Duplicados"],
  "filter.after": ["Changed from", "Geändert von", "Modificado desde"],
  "filter.all": ["all videos", "alle Videos", "todos los vídeos"],
  "filter.allFolders": ["All folders", "Alle Ordner", "Todas las carpetas"],
  "filter.allOfIt": ["all of it", "alles", "toda"],
  "filter.badLength": [
    "Give lengths as seconds or minutes: 75 or 1:15.",
    "Längen als Sekunden oder Minuten angeben: 75 oder 1:15.",
    "Indique las duraciones en segundos o minutos: 75 o 1:15."
  ],
  "filter.before": ["Changed to", "Geändert bis", "Modificado hasta"],
  "filter.dateOrder": [
    "The first day comes after the last.",
    "Der erste Tag liegt nach dem letzten.",
    "El primer día es posterior al último."
  ],
  "filter.folder": ["Folder within it", "Ordner darin", "Carpeta dentro de ella"],
  "filter.inFolder": ["in {folder}", "in {folder}", "en {folder}"],
  "filter.larger": ["{size} or larger", "ab {size}", "de {size} o más"],
  "filter.lengthOrder": [
    "The shortest length is above the longest.",
    "Die kleinste Länge liegt über der größten.",
    "La duración mínima supera a la máxima."
  ],
  "filter.line": ["Only videos: {limits}.", "Nur Videos: {limits}.", "Solo vídeos: {limits}."],
  "filter.longer": ["{length} or longer", "ab {length}", "de {length} o más"],
  "filter.maxLength": ["Length to", "Länge bis", "Duración hasta"],
  "filter.minLength": ["Length from", "Länge von", "Duración desde"],
  "filter.reset": ["All videos", "Alle Videos", "Todos los vídeos"],
  "filter.root": ["Folder", "Ordner", "Carpeta"],
  "filter.shorter": ["{length} or shorter", "bis {length}", "de {length} o menos"],
  "filter.since": ["changed from {day} on", "geändert ab {day}", "modificados desde el {day}"],
  "filter.smaller": ["{size} or smaller", "bis {size}", "de {size} o menos"],
  "filter.title": ["Only some videos", "Nur bestimmte Videos", "Solo algunos vídeos"],
  "filter.until": ["changed up to {day}", "geändert bis {day}", "modificados hasta el {day}"],
  "folder.cancel": ["Cancel", "Abbrechen", "Cancelar"],
  "folder.choose": ["Choose…", "Auswählen…", "Elegir…"],
  "folder.more": ["And more: type their names.", "Und weitere: den Namen eintippen.", "Y más: escriba su nombre."],
  "folder.none": ["No folders in it", "Keine Ordner darin", "No contiene carpetas"],
  "folder.title": ["Choose a folder in {root}", "Einen Ordner in {root} wählen", "Elegir una carpeta en {root}"],
  "folder.up": ["One level up", "Eine Ebene höher", "Un nivel arriba"],
  "folder.use": ["Use this folder", "Diesen Ordner nehmen", "Usar esta carpeta"],
  "foot": [
    "hapvr {version} · model {model} · ",
    "hapvr {version} · Modell {model} · ",
    "hapvr {version} · modelo {model} · "
  ],
  "hit.alike": ["Most alike at {time}.", "Am ähnlichsten bei {time}.", "Más parecido en {time}."],
  "hit.at": ["Matches at {time}.", "Stimmt überein bei {time}.", "Coincide en {time}."],
  "hit.backwards": [", backwards", ", rückwärts", ", al revés"],
  "hit.dashed": [
    "Dashed: shared footage, which many videos of the library show.",
    "Gestrichelt: gemeinsames Material, das viele Videos der Bibliothek zeigen.",
    "A trazos: material compartido que muestran muchos vídeos de la biblioteca."
  ],
  "hit.more": [
    ["and {n} more stretch", "and {n} more stretches"],
    ["und {n} weitere Stelle", "und {n} weitere Stellen"],
    ["y {n} tramo más", "y {n} tramos más"]
  ],
  "hit.sentence": [
    "{query} of the query is {target} of this video",
    "{query} der Anfrage ist {target} dieses Videos",
    "{query} de la consulta es {target} de este vídeo"
  ],
  "hit.shared": [", shared footage", ", gemeinsames Material", ", material compartido"],
  "hit.sound.other": ["Sound: another one.", "Ton: ein anderer.", "Sonido: otro."],
  "hit.sound.same": ["Sound: the same, {where}.", "Ton: derselbe, {where}.", "Sonido: el mismo, {where}."],
  "hit.sound.silent": [
    "Sound: only one of the two has any.",
    "Ton: nur eines von beiden hat welchen.",
    "Sonido: solo uno de los dos tiene."
  ],
  "hit.video": ["This video", "Dieses Video", "Este vídeo"],
  "jobs.cancelled": ["It was cancelled.", "Es wurde abgebrochen.", "Se canceló."],
  "jobs.failed": ["It failed.", "Es ist fehlgeschlagen.", "Ha fallado."],
  "keepIt": ["Keep it", "Behalten", "Conservarlo"],
  "keys.bars": ["On the bars below the videos", "Auf den Leisten unter den Videos", "En las barras bajo los vídeos"],
  "keys.blink": [
    "Blink; again: the other frame",
    "Im Wechsel; erneut: das andere Bild",
    "Alternados; otra vez: el otro"
  ],
  "keys.close": ["Close a dialog", "Einen Dialog schließen", "Cerrar un diálogo"],
  "keys.column": ["Another frame of the match", "Ein anderes Bild des Treffers", "Otro fotograma de la coincidencia"],
  "keys.done": ["Close", "Schließen", "Cerrar"],
  "keys.ends": ["The first and last of the match", "Das erste und letzte des Treffers", "El primero y el último"],
  "keys.everywhere": ["Everywhere", "Überall", "En todas partes"],
  "keys.help": ["Show these keys", "Diese Tasten zeigen", "Mostrar estas teclas"],
  "keys.match": ["Two videos side by side", "Zwei Videos nebeneinander", "Dos vídeos lado a lado"],
  "keys.matrix": ["In the frame matrix", "In der Bildmatrix", "En la matriz de fotogramas"],
  "keys.next": ["Go to the next control", "Zum nächsten Bedienelement", "Ir al siguiente control"],
  "keys.open": ["Show all keys", "Alle Tasten zeigen", "Mostrar todas las teclas"],
  "keys.play": ["Play and pause", "Abspielen und anhalten", "Reproducir y pausar"],
  "keys.row": ["Another frame of the query", "Ein anderes Bild der Anfrage", "Otro fotograma de la consulta"],
  "keys.seek": ["Move both videos", "Beide Videos bewegen", "Mover ambos vídeos"],
  "keys.title": ["Keys", "Tasten", "Teclas"],
  "language": ["Language", "Sprache", "Idioma"],
  "lib.codec": ["{codec} descriptors", "Deskriptoren {codec}", "descriptores {codec}"],
  "lib.counts": ["Counts", "Zahlen", "Cifras"],
  "lib.disk": ["on disk", "auf der Platte", "en disco"],
  "lib.failed": ["failed", "fehlgeschlagen", "fallidos"],
  "lib.footage": ["of footage", "Material", "de material"],
  "lib.fps": [
    ["{fps} frame a second", "{fps} frames a second"],
    ["{fps} Bild je Sekunde", "{fps} Bilder je Sekunde"],
    ["{fps} fotograma por segundo", "{fps} fotogramas por segundo"]
  ],
  "lib.judge": ["verdicts by the model's judge", "Urteile vom Modell", "veredictos del modelo"],
  "lib.missing": ["missing", "fehlen", "faltan"],
  "lib.model": [
    "probabilities by the model's calibration",
    "Wahrscheinlichkeiten nach der Kalibrierung des Modells",
    "probabilidades según la calibración del modelo"
  ],
  "lib.modelName": ["model {model}", "Modell {model}", "modelo {model}"],
  "lib.noProbability": ["no probabilities", "keine Wahrscheinlichkeiten", "sin probabilidades"],
  "lib.own": ["calibrated on its own videos", "an den eigenen Videos kalibriert", "calibrada con sus propios vídeos"],
  "lib.retry": ["Try these again", "Diese erneut versuchen", "Intentar de nuevo estos"],
  "lib.sharedFailed": [
    "Shared footage cannot be shown: {why}",
    "Gemeinsames Material kann nicht gezeigt werden: {why}",
    "No se puede mostrar el material compartido: {why}"
  ],
  "lib.unreadable": ["{files} could not be read", "{files} nicht lesbar", "{files} no se pudieron leer"],
  "lib.videos": [["video", "videos"], ["Video", "Videos"], ["vídeo", "vídeos"]],
  "library": ["Library", "Bibliothek", "Biblioteca"],
  "link.byHand": [
    "The browser does not let this page copy: copy its address by hand.",
    "Der Browser lässt diese Seite nicht kopieren: die Adresse von Hand kopieren.",
    "El navegador no permite copiar: copie la dirección a mano."
  ],
  "link.compare": ["Compare {pair}", "{pair} vergleichen", "Comparar {pair}"],
  "link.contained": ["is part of", "ist ein Teil von", "es parte de"],
  "link.contains": ["contains a part of", "enthält einen Teil von", "contiene una parte de"],
  "link.copied": ["Link copied.", "Link kopiert.", "Enlace copiado."],
  "link.copy": ["Copy link", "Link kopieren", "Copiar enlace"],
  "link.distinct": ["Not a duplicate", "Kein Duplikat", "No es un duplicado"],
  "link.duplicate": ["is the same as", "ist dasselbe wie", "es lo mismo que"],
  "link.identical": ["is the same file as", "ist dieselbe Datei wie", "es el mismo archivo que"],
  "link.marked": ["Marked as not a duplicate", "Als kein Duplikat vermerkt", "Marcado como no duplicado"],
  "link.markedPair": [
    "Marked {pair} as not a duplicate.",
    "{pair} als kein Duplikat vermerkt.",
    "{pair}: marcados como no duplicados."
  ],
  "link.same": ["shows the same as", "zeigt dasselbe wie", "muestra lo mismo que"],
  "link.shared": ["shares a stretch with", "hat eine Stelle gemeinsam mit", "comparte un tramo con"],
  "link.unmarked": ["The mark was removed.", "Der Vermerk ist entfernt.", "Se quitó la marca."],
  "link.until": [
    "Link copied. The uploaded video is kept for it until {day}.",
    "Link kopiert. Das hochgeladene Video bleibt dafür bis {day} erhalten.",
    "Enlace copiado. El vídeo subido se conserva para él hasta el {day}."
  ],
  "list.addAbove": [
    "Add a folder above; its videos appear here.",
    "Oben einen Ordner hinzufügen; seine Videos erscheinen hier.",
    "Añada una carpeta arriba; sus vídeos aparecerán aquí."
  ],
  "list.added": ["added {when}", "hinzugefügt {when}", "añadido {when}"],
  "list.all": ["All", "Alle", "Todos"],
  "list.byName": ["Search by name", "Nach Namen suchen", "Buscar por nombre"],
  "list.failed": ["Failed", "Fehlgeschlagen", "Fallidos"],
  "list.fewer": [
    "No video has this name and state. Try fewer letters.",
    "Kein Video hat diesen Namen und Zustand. Weniger Buchstaben versuchen.",
    "Ningún vídeo tiene ese nombre y estado. Pruebe con menos letras."
  ],
  "list.fileMissing": ["File is missing", "Datei fehlt", "Falta el archivo"],
  "list.missing": ["Missing", "Fehlend", "Faltan"],
  "list.next": ["Next", "Weiter", "Siguiente"],
  "list.noSuch": ["No such video", "Kein solches Video", "No hay tal vídeo"],
  "list.none": ["No videos yet", "Noch keine Videos", "Aún no hay vídeos"],
  "list.page": ["Page {to} of {pages}", "Seite {to} von {pages}", "Página {to} de {pages}"],
  "list.pages": ["Pages of videos", "Seiten mit Videos", "Páginas de vídeos"],
  "list.part": ["Part of a name", "Teil eines Namens", "Parte de un nombre"],
  "list.previous": ["Previous", "Zurück", "Anterior"],
  "list.range": ["{first}–{last} of {total}", "{first}–{last} von {total}", "{first}–{last} de {total}"],
  "list.ready": ["Ready", "Bereit", "Listos"],
  "list.remove": ["Remove", "Entfernen", "Quitar"],
  "list.removeAsk": ["Remove {name}?", "{name} entfernen?", "¿Quitar {name}?"],
  "list.removeIt": ["Remove it", "Entfernen", "Quitarlo"],
  "list.removeName": ["Remove {name}", "{name} entfernen", "Quitar {name}"],
  "list.removeText": [
    "The library no longer finds it. The file itself stays where it is, and can be added again.",
    "Die Bibliothek findet es dann nicht mehr. Die Datei selbst bleibt, wo sie ist, und kann wieder hinzugefügt werden.",
    "La biblioteca ya no lo encontrará. El archivo queda donde está y se puede volver a añadir."
  ],
  "list.removed": ["{name} is removed.", "{name} ist entfernt.", "{name} se ha quitado."],
  "list.similar": ["Find similar", "Ähnliche finden", "Buscar similares"],
  "list.similarTo": ["Find similar to {name}", "Ähnliche zu {name} finden", "Buscar similares a {name}"],
  "list.state": ["State", "Zustand", "Estado"],
  "list.videos": ["Videos", "Videos", "Vídeos"],
  "loading": ["Loading…", "Lädt…", "Cargando…"],
  "login.go": ["Continue", "Weiter", "Continuar"],
  "login.heading": [
    "This library asks for a token",
    "Diese Bibliothek verlangt ein Token",
    "Esta biblioteca pide un token"
  ],
  "login.title": ["Sign in", "Anmelden", "Iniciar sesión"],
  "login.token": ["Token", "Token", "Token"],
  "login.who": [
    "The person who started the server has it.",
    "Wer den Server gestartet hat, kennt es.",
    "Lo tiene quien inició el servidor."
  ],
  "match": ["Match", "Treffer", "Coincidencia"],
  "match.failed": [
    "These two cannot be shown",
    "Diese beiden können nicht gezeigt werden",
    "No se pueden mostrar estos dos"
  ],
  "match.instant": [
    "They match at an instant: {where}, where the players start.",
    "Sie stimmen in einem Augenblick überein: {where}; dort beginnen die Player.",
    "Coinciden en un instante: {where}, donde empiezan los reproductores."
  ],
  "match.match": ["The match", "Der Treffer", "La coincidencia"],
  "match.noStretch": [
    "No stretch of the two matches; the players start at the most similar frames, {where}.",
    "Keine Stelle der beiden stimmt überein; die Player beginnen bei den ähnlichsten Bildern, {where}.",
    "Ningún tramo coincide; los reproductores empiezan en los fotogramas más parecidos, {where}."
  ],
  "match.pair": ["{a} and {b}", "{a} und {b}", "{a} y {b}"],
  "match.positionMatch": ["Position in the match", "Stelle im Treffer", "Posición en la coincidencia"],
  "match.positionQuery": ["Position in the query", "Stelle in der Anfrage", "Posición en la consulta"],
  "match.prior": ["at a prior of {prior}", "bei einer Vorannahme von {prior}", "con una previa de {prior}"],
  "match.query": ["The query", "Die Anfrage", "La consulta"],
  "match.ready": ["Both videos are ready.", "Beide Videos sind bereit.", "Ambos vídeos están listos."],
  "match.running": ["Comparing frame by frame", "Vergleich Bild für Bild", "Comparando fotograma a fotograma"],
  "match.stretches": ["Matching stretches", "Übereinstimmende Stellen", "Tramos coincidentes"],
  "matrix": ["Frame matrix", "Bildmatrix", "Matriz de fotogramas"],
  "matrix.after": ["Refined", "Verfeinert", "Refinada"],
  "matrix.axes": [
    "Down: the query. Across: the match. The stronger the colour, the more alike two frames are; ",
    "Abwärts: die Anfrage. Quer: der Treffer. Je kräftiger die Farbe, desto ähnlicher zwei Bilder; ",
    "Hacia abajo: la consulta. A lo ancho: la coincidencia. Cuanto más intenso el color, más se parecen dos fotogramas; "
  ],
  "matrix.before": ["Frames as they are", "Bilder, wie sie sind", "Fotogramas tal cual"],
  "matrix.label": [
    "Frame similarities. Arrow keys move to a pair of frames and both players jump there.",
    "Ähnlichkeiten der Bilder. Pfeiltasten wählen ein Bilderpaar, und beide Player springen dorthin.",
    "Similitudes de fotogramas. Las flechas llevan a un par de fotogramas y ambos reproductores saltan allí."
  ],
  "matrix.none": [
    "There is no matrix of these two.",
    "Von diesen beiden gibt es keine Matrix.",
    "No hay matriz de estos dos."
  ],
  "matrix.outlined": [
    "outlined is what counts as a match. ",
    "umrandet ist, was als Treffer zählt. ",
    "con borde, lo que cuenta como coincidencia. "
  ],
  "matrix.outlinedShared": [
    "outlined is what matches, with dashes where it is shared footage. ",
    "umrandet ist, was übereinstimmt, gestrichelt gemeinsames Material. ",
    "con borde, lo que coincide; a trazos, el material compartido. "
  ],
  "matrix.readout": [
    "Query {query} · video {target} · similarity {value}",
    "Anfrage {query} · Video {target} · Ähnlichkeit {value}",
    "Consulta {query} · vídeo {target} · similitud {value}"
  ],
  "matrix.role": ["heat map", "Wärmebild", "mapa de calor"],
  "matrix.stage": ["Stage of the matrix", "Stufe der Matrix", "Etapa de la matriz"],
  "matrix.use": [
    "Click a cell, or move with the arrow keys, to see its two frames.",
    "Eine Zelle anklicken oder mit den Pfeiltasten wählen, um ihre zwei Bilder zu sehen.",
    "Pulse una celda, o muévase con las flechas, para ver sus dos fotogramas."
  ],
  "missing": ["Not found", "Nicht gefunden", "No encontrado"],
  "missing.home": ["To the search", "Zur Suche", "Ir a la búsqueda"],
  "missing.text": ["There is no such page", "Diese Seite gibt es nicht", "Esa página no existe"],
  "n.files": [["{n} file", "{n} files"], ["{n} Datei", "{n} Dateien"], ["{n} archivo", "{n} archivos"]],
  "n.groups": [["{n} group", "{n} groups"], ["{n} Gruppe", "{n} Gruppen"], ["{n} grupo", "{n} grupos"]],
  "n.matches": [
    ["{n} match", "{n} matches"],
    ["{n} Treffer", "{n} Treffer"],
    ["{n} coincidencia", "{n} coincidencias"]
  ],
  "n.more": ["Show {n} more", "{n} weitere zeigen", "Mostrar {n} más"],
  "n.videos": [["{n} video", "{n} videos"], ["{n} Video", "{n} Videos"], ["{n} vídeo", "{n} vídeos"]],
  "nav": ["Main", "Hauptmenü", "Principal"],
  "newSearch": ["New search", "Neue Suche", "Nueva búsqueda"],
  "part.badTime": [
    "Give times as seconds or minutes: 75, 1:15 or 1:15.5.",
    "Zeiten als Sekunden oder Minuten angeben: 75, 1:15 oder 1:15,5.",
    "Indique los tiempos en segundos o minutos: 75, 1:15 o 1:15,5."
  ],
  "part.cannotShow": [
    "This browser cannot show the file; the server will try to read it.",
    "Dieser Browser kann die Datei nicht zeigen; der Server versucht, sie zu lesen.",
    "Este navegador no puede mostrar el archivo; el servidor intentará leerlo."
  ],
  "part.end": ["end", "Ende", "fin"],
  "part.endHere": ["End here", "Hier enden", "Terminar aquí"],
  "part.from": ["From", "Von", "Desde"],
  "part.order": [
    "The part must end after it starts.",
    "Der Teil muss nach seinem Anfang enden.",
    "La parte debe terminar después de empezar."
  ],
  "part.picture": ["The chosen picture, {name}", "Das gewählte Bild, {name}", "La imagen elegida, {name}"],
  "part.short": [
    "The video is only {length} long.",
    "Das Video ist nur {length} lang.",
    "El vídeo solo dura {length}."
  ],
  "part.startHere": ["Start here", "Hier beginnen", "Empezar aquí"],
  "part.title": [
    "Search for a part only (optional)",
    "Nur nach einem Teil suchen (freiwillig)",
    "Buscar solo una parte (opcional)"
  ],
  "part.to": ["To", "Bis", "Hasta"],
  "path.byHand": [
    "The browser does not let this page copy: select the path by hand.",
    "Der Browser lässt diese Seite nicht kopieren: den Pfad von Hand markieren.",
    "El navegador no permite copiar: seleccione la ruta a mano."
  ],
  "path.copied": ["The path was copied.", "Der Pfad wurde kopiert.", "Se copió la ruta."],
  "path.copied.short": ["Path copied.", "Pfad kopiert.", "Ruta copiada."],
  "path.copy": ["Copy path", "Pfad kopieren", "Copiar ruta"],
  "path.copyOf": ["Copy path of {name}", "Pfad von {name} kopieren", "Copiar la ruta de {name}"],
  "percent.over": ["over {share}", "über {share}", "más del {share}"],
  "percent.under": ["under {share}", "unter {share}", "menos del {share}"],
  "picture": ["picture", "Bild", "imagen"],
  "progress.left": ["{time} left", "noch {time}", "quedan {time}"],
  "progress.of": ["{done} of {total} {unit}", "{done} von {total} {unit}", "{done} de {total} {unit}"],
  "query": ["Query", "Anfrage", "Consulta"],
  "queued": ["Waiting for a free place", "Wartet auf einen freien Platz", "A la espera de un sitio libre"],
  "results": ["Results", "Ergebnisse", "Resultados"],
  "results.aPicture": ["a picture", "ein Bild", "una imagen"],
  "results.about": ["What was searched for", "Wonach gesucht wurde", "Qué se buscó"],
  "results.again": ["Search again", "Erneut suchen", "Buscar de nuevo"],
  "results.cancelled": ["The search was cancelled", "Die Suche wurde abgebrochen", "La búsqueda se canceló"],
  "results.compared": ["{n} compared in full", "{n} ganz verglichen", "{n} comparados por completo"],
  "results.failed": ["The search did not finish", "Die Suche wurde nicht beendet", "La búsqueda no terminó"],
  "results.for": ["{found} for {name}", "{found} zu {name}", "{found} para {name}"],
  "results.matches": ["Matches", "Treffer", "Coincidencias"],
  "results.noProbability": [
    "This model gives no probabilities: a similarity score from −1 to 1 is shown instead.",
    "Dieses Modell nennt keine Wahrscheinlichkeiten: stattdessen steht ein Wert der Ähnlichkeit von −1 bis 1.",
    "Este modelo no da probabilidades: en su lugar se muestra una similitud de −1 a 1."
  ],
  "results.noVideo": [
    "No video shows what {name} shows.",
    "Kein Video zeigt, was {name} zeigt.",
    "Ningún vídeo muestra lo que muestra {name}."
  ],
  "results.none": ["No match", "Kein Treffer", "Ninguna coincidencia"],
  "results.nothing": [
    "Nothing in the library matches",
    "Nichts in der Bibliothek stimmt überein",
    "Nada coincide en la biblioteca"
  ],
  "results.nothingTo": ["Nothing to look for", "Nichts zu suchen", "Nada que buscar"],
  "results.others": [
    "Show the nearest others ({n})",
    "Die nächsten anderen zeigen ({n})",
    "Mostrar los siguientes más cercanos ({n})"
  ],
  "results.prior": [
    "probabilities at a prior of {prior}",
    "Wahrscheinlichkeiten bei einer Vorannahme von {prior}",
    "probabilidades con una previa de {prior}"
  ],
  "results.running": ["Searching", "Suche läuft", "Buscando"],
  "results.searched": ["{videos} searched", "{videos} durchsucht", "{videos} examinados"],
  "results.settings": ["Search settings", "Sucheinstellungen", "Ajustes de búsqueda"],
  "results.sound": [
    "The same sound with other pictures",
    "Derselbe Ton mit anderen Bildern",
    "El mismo sonido con otras imágenes"
  ],
  "results.tip.exact": [
    "An exact search compares with every video; it takes longer.",
    "Eine genaue Suche vergleicht mit jedem Video; sie dauert länger.",
    "Una búsqueda exacta compara con todos los vídeos; tarda más."
  ],
  "results.tip.least": [
    "Only matches from {share} on were asked for: a lower threshold may show more.",
    "Nur Treffer ab {share} waren verlangt: eine niedrigere Schwelle zeigt vielleicht mehr.",
    "Solo se pidieron coincidencias a partir de {share}: un umbral menor puede mostrar más."
  ],
  "results.title": ["Search results", "Suchergebnisse", "Resultados de la búsqueda"],
  "results.warnings": ["The query: {text}", "Die Anfrage: {text}", "La consulta: {text}"],
  "sameBytes": ["The same bytes", "Dieselben Bytes", "Los mismos bytes"],
  "screen.frames": [
    "This browser does not play the file's format: single frames are shown.",
    "Dieser Browser spielt das Format der Datei nicht ab: einzelne Bilder werden gezeigt.",
    "Este navegador no reproduce el formato: se muestran fotogramas sueltos."
  ],
  "screen.making": [
    "This browser does not play the file's format: single frames are shown while a preview is made.",
    "Dieser Browser spielt das Format der Datei nicht ab: einzelne Bilder, während eine Vorschau entsteht.",
    "Este navegador no reproduce el formato: se muestran fotogramas sueltos mientras se crea una vista previa."
  ],
  "screen.none": ["No picture of this moment.", "Kein Bild von diesem Augenblick.", "No hay imagen de este momento."],
  "screen.preview": [
    "This browser does not play the file's format: a smaller preview is shown.",
    "Dieser Browser spielt das Format der Datei nicht ab: eine kleinere Vorschau wird gezeigt.",
    "Este navegador no reproduce el formato: se muestra una vista previa más pequeña."
  ],
  "search": ["Search", "Suche", "Buscar"],
  "search.addFolder": ["Add a folder of videos", "Einen Ordner mit Videos hinzufügen", "Añadir una carpeta de vídeos"],
  "search.another": ["Choose another", "Andere wählen", "Elegir otro"],
  "search.anotherFile": ["Choose another file", "Andere Datei wählen", "Elegir otro archivo"],
  "search.any": ["however unlikely", "wie unwahrscheinlich auch immer", "por improbables que sean"],
  "search.best": ["Best {k}", "Die besten {k}", "Los {k} mejores"],
  "search.byVideo": ["Search for one of them instead", "Stattdessen nach einem davon suchen", "Buscar uno de ellos"],
  "search.chosen": ["{name} is chosen.", "{name} ist ausgewählt.", "{name} está elegido."],
  "search.empty": [
    "That file is empty. Choose another.",
    "Diese Datei ist leer. Bitte eine andere wählen.",
    "Ese archivo está vacío. Elija otro."
  ],
  "search.exact": ["compared with every video", "mit jedem Video verglichen", "comparado con todos los vídeos"],
  "search.fast": ["fast search", "schnelle Suche", "búsqueda rápida"],
  "search.from": ["from {share} on", "ab {share}", "a partir de {share}"],
  "search.handing": ["Handing over", "Wird übergeben", "Entregando"],
  "search.heading": [
    "Find a video by what it shows",
    "Ein Video nach seinem Inhalt finden",
    "Encontrar un vídeo por lo que muestra"
  ],
  "search.lead": [
    "Copies, cut and edited versions, clips inside longer films: see what matches, and where.",
    "Kopien, geschnittene und bearbeitete Fassungen, Ausschnitte in längeren Filmen: was übereinstimmt, und wo.",
    "Copias, versiones cortadas y editadas, fragmentos en películas más largas: qué coincide y dónde."
  ],
  "search.libraryEmpty": [
    "The library is empty, so nothing can be found yet. ",
    "Die Bibliothek ist leer; es kann noch nichts gefunden werden. ",
    "La biblioteca está vacía; aún no se puede encontrar nada. "
  ],
  "search.noShared": ["shared footage ignored", "gemeinsames Material zählt nicht", "sin material compartido"],
  "search.notStarted": [
    "The search could not start",
    "Die Suche konnte nicht beginnen",
    "No se pudo iniciar la búsqueda"
  ],
  "search.sent": ["{done} of {all}", "{done} von {all}", "{done} de {all}"],
  "search.shared": ["shared footage counts", "gemeinsames Material zählt", "el material compartido cuenta"],
  "search.stopped": ["The upload was stopped.", "Das Hochladen wurde angehalten.", "La subida se detuvo."],
  "search.uploading": ["Uploading", "Wird hochgeladen", "Subiendo"],
  "search.where": [
    "Searches {videos} in {library}. ",
    "Durchsucht {videos} in {library}. ",
    "Busca en {videos} de {library}. "
  ],
  "set.colours": ["Colours", "Farben", "Colores"],
  "set.compare": [
    "Search, comparison and duplicates",
    "Suche, Vergleich und Duplikate",
    "Búsqueda, comparación y duplicados"
  ],
  "set.dark": ["Dark", "Dunkel", "Oscuro"],
  "set.everything": ["everything", "alles", "todo"],
  "set.exact": ["Exact search", "Genaue Suche", "Búsqueda exacta"],
  "set.exact.hint": [
    "Compare with every video in full, not only with the likeliest. Slower in a large library.",
    "Mit jedem Video ganz vergleichen, nicht nur mit den wahrscheinlichsten. Langsamer in einer großen Bibliothek.",
    "Compara por completo con todos los vídeos, no solo con los más probables. Más lento en una biblioteca grande."
  ],
  "set.lead": [
    "Kept in this browser; every search from here on follows them.",
    "In diesem Browser gespeichert; jede weitere Suche richtet sich danach.",
    "Se guardan en este navegador; toda búsqueda posterior los sigue."
  ],
  "set.least": ["Minimum probability", "Mindestwahrscheinlichkeit", "Probabilidad mínima"],
  "set.least.hint": [
    "Less probable matches are not shown. At 50% a hit is as likely right as wrong.",
    "Weniger wahrscheinliche Treffer werden nicht gezeigt. Bei 50 % ist ein Treffer so oft richtig wie falsch.",
    "No se muestran coincidencias menos probables. Al 50 % un resultado es tan probable como erróneo."
  ],
  "set.light": ["Light", "Hell", "Claro"],
  "set.looks": ["Looks", "Aussehen", "Aspecto"],
  "set.most": ["Matches shown at most", "Treffer höchstens", "Máximo de coincidencias"],
  "set.most.hint": ["From 1 to 100.", "Von 1 bis 100.", "De 1 a 100."],
  "set.noProbability": [
    "This library's model gives no probabilities: the threshold has no effect.",
    "Das Modell dieser Bibliothek nennt keine Wahrscheinlichkeiten: die Schwelle wirkt nicht.",
    "El modelo de esta biblioteca no da probabilidades: el umbral no tiene efecto."
  ],
  "set.orMore": ["{share} or more", "{share} oder mehr", "{share} o más"],
  "set.reset": ["Back to the defaults", "Zurück zu den Vorgaben", "Volver a los valores iniciales"],
  "set.reset.done": [
    "All settings have their defaults again.",
    "Alle Einstellungen haben wieder ihre Vorgaben.",
    "Todos los ajustes vuelven a sus valores iniciales."
  ],
  "set.shared": ["Ignore shared footage", "Gemeinsames Material übergehen", "Ignorar el material compartido"],
  "set.shared.hint": [
    "Intros, end cards and the like that many videos of the library show make no match; they are marked.",
    "Vorspänne, Abspänne und Ähnliches, das viele Videos zeigen, gilt nicht als Treffer; es wird markiert.",
    "Entradas, cierres y similares que muestran muchos vídeos no cuentan como coincidencia; se marcan."
  ],
  "set.system": ["As the system", "Wie das System", "Como el sistema"],
  "settings": ["Settings", "Einstellungen", "Ajustes"],
  "shared.clip": ["{seconds} s in {videos}", "{seconds} s in {videos}", "{seconds} s en {videos}"],
  "shared.text": [
    "Intros, end cards and the like that many videos show. They make no match unless the settings say so.",
    "Vorspänne, Abspänne und Ähnliches, das viele Videos zeigen. Es gilt nicht als Treffer, außer die Einstellungen sagen es.",
    "Entradas, cierres y similares que muestran muchos vídeos. No cuentan como coincidencia salvo que los ajustes lo digan."
  ],
  "shared.title": ["Shared footage", "Gemeinsames Material", "Material compartido"],
  "shared.tooLarge": [
    "Footage that many videos share was not looked for: the library is too large.",
    "Nach gemeinsamem Material wurde nicht gesucht: die Bibliothek ist zu groß.",
    "No se buscó material compartido: la biblioteca es demasiado grande."
  ],
  "sideBySide": ["Side by side", "Nebeneinander", "Lado a lado"],
  "skip": ["Skip to the content", "Zum Inhalt springen", "Saltar al contenido"],
  "text.described": [
    "{videos} described by the text model",
    "{videos} vom Textmodell beschrieben",
    "{videos} descritos por el modelo de texto"
  ],
  "text.example": ["a red car at night", "ein rotes Auto bei Nacht", "un coche rojo de noche"],
  "text.found": ["{videos} listed", "{videos} aufgelistet", "{videos} en la lista"],
  "text.hint": [
    "In a language that the text model of this library knows: most know English best.",
    "In einer Sprache, die das Textmodell dieser Bibliothek kennt: die meisten kennen Englisch am besten.",
    "En un idioma que conozca el modelo de texto de esta biblioteca: la mayoría conoce mejor el inglés."
  ],
  "text.label": [
    "Describe what is to be seen",
    "Beschreiben, was zu sehen sein soll",
    "Describa lo que debe verse"
  ],
  "text.moments": ["Best at", "Am besten bei", "Mejor en"],
  "text.none": ["No video to show", "Kein Video zu zeigen", "Ningún vídeo que mostrar"],
  "text.noneMeant": [
    "None of the videos within the limits is described by the text model.",
    "Keines der Videos innerhalb der Grenzen ist vom Textmodell beschrieben.",
    "El modelo de texto no ha descrito ninguno de los vídeos dentro de los límites."
  ],
  "text.order": [
    "the best fit comes first, even where nothing fits well",
    "was am besten passt, steht vorn, auch wo nichts gut passt",
    "lo que mejor encaja va primero, aunque nada encaje bien"
  ],
  "text.play": ["Play {name} from {time}", "{name} ab {time} abspielen", "Reproducir {name} desde {time}"],
  "text.search": ["Search by text", "Suche nach Text", "Buscar por texto"],
  "text.similarity": ["Similarity {value}", "Ähnlichkeit {value}", "Similitud {value}"],
  "text.title": ["Fits “{text}”", "Passt zu „{text}“", "Encaja con «{text}»"],
  "theme.dark": ["Use dark colours", "Dunkle Farben verwenden", "Usar colores oscuros"],
  "theme.light": ["Use light colours", "Helle Farben verwenden", "Usar colores claros"],
  "time.under": ["under 1 s", "unter 1 s", "menos de 1 s"],
  "transport.back": ["One second back", "Eine Sekunde zurück", "Un segundo atrás"],
  "transport.both": ["Both players", "Beide Player", "Ambos reproductores"],
  "transport.loop": ["Repeat the match", "Den Treffer wiederholen", "Repetir la coincidencia"],
  "transport.ofMatch": ["of the match", "des Treffers", "de la coincidencia"],
  "transport.ofQuery": ["of the query", "der Anfrage", "de la consulta"],
  "transport.off": ["off", "aus", "apagado"],
  "transport.on": ["One second on", "Eine Sekunde vor", "Un segundo adelante"],
  "transport.pause": ["Pause", "Anhalten", "Pausa"],
  "transport.play": ["Play", "Abspielen", "Reproducir"],
  "transport.sound": ["Sound", "Ton", "Sonido"],
  "transport.speed": ["Speed", "Tempo", "Velocidad"],
  "tryAgain": ["Try again", "Erneut versuchen", "Intentar de nuevo"],
  "undo": ["Undo", "Rückgängig", "Deshacer"],
  "unsure": ["Unsure", "Unsicher", "Dudoso"],
  "verdict.copy": ["copy", "Kopie", "copia"],
  "verdict.none": ["no match", "kein Treffer", "sin coincidencia"],
  "verdict.ofCopy": ["copy: {share}", "Kopie: {share}", "copia: {share}"],
  "verdict.scene": ["same scene or event", "dieselbe Szene oder dasselbe Ereignis", "la misma escena o suceso"],
  "verdict.score": ["score {score}", "Wert {score}", "valor {score}"],
  "wentWrong": ["That did not work", "Das hat nicht geklappt", "Eso no ha funcionado"]
};
