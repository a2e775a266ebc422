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
  "filter.line": ["Only videos: {limits}.", "Nur Videos: {limits}.", "Solo vídeos: {limits}."]
};
