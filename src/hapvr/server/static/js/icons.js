// Line icons, drawn here: 24 units wide, in the colour of the text around them. They say nothing to a screen reader.

import { s } from "./dom.js";

const PATHS = {
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M15.5 15.5 20 20",
  copies: "M4 8h11v11H4zM9 8V5h11v11h-5",
  library: "M4 5h4v14H4zM10 5h4v14h-4zM16.2 5.8l3.6-.8 2 13.6-3.6.8z",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  upload: "M12 16V5M7 9.5 12 4.5l5 5M4 16v3.5h16V16",
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M8.5 5.5v13M15.5 5.5v13",
  back: "M14 6l-6 6 6 6",
  forward: "M10 6l6 6-6 6",
  loop: "M4 11V9.5A3.5 3.5 0 0 1 7.5 6H19M16 3l3 3-3 3M20 13v1.5a3.5 3.5 0 0 1-3.5 3.5H5M8 21l-3-3 3-3",
  check: "M5 12.5 10 17.5 19.5 7",
  cross: "M6 6l12 12M18 6 6 18",
  warning: "M12 4 2.8 19.5h18.4zM12 10v4.5M12 17v.2",
  info: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17M12 11v5M12 8v.2",
  film: "M4 5h16v14H4zM8 5v14M16 5v14M4 9.7h4M4 14.3h4M16 9.7h4M16 14.3h4",
  folder: "M3.5 6h6l2 2.5h9V18.5h-17z",
  download: "M12 4.5v11M7 11l5 5 5-5M4 19.5h16",
  undo: "M8 5 4 9l4 4M4 9h10a5.5 5.5 0 0 1 0 11H8",
  keys: "M3 6.5h18v11H3zM6.5 10h.2M10 10h.2M13.5 10h.2M17 10h.2M8 14h8",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7l-1.3 1.3M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7l1.3-1.3",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
};

const FILLED = new Set(["play"]);

/** One of the icons above, as an SVG element. */
export function icon(name) {
  const path = s("path", { d: PATHS[name], "stroke-linecap": "round", "stroke-linejoin": "round" });
  const kind = FILLED.has(name) ? "icon icon-filled" : "icon";
  return s("svg", { viewBox: "0 0 24 24", class: kind, "aria-hidden": "true", focusable: "false" }, path);
}
