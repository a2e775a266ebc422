// Views by the address after "#", so that the back button, bookmarks and reloads work.
//
// A view is a function (place, { parameters, query, signal, title }) that fills `place`; `signal` aborts when the view
// is left, and everything that a view starts ends with it.

import { announce } from "./dom.js";

export class Router {
  #routes = [];
  #leaving = null;
  #place;
  #missing;
  #changed;
  #first = true;

  constructor(place, { missing, changed }) {
    this.#place = place;
    this.#missing = missing;
    this.#changed = changed;
  }

  /** "/match/:a/:b" and its view. */
  add(pattern, view) {
    this.#routes.push([pattern.split("/").filter(Boolean), view]);
  }

  start() {
    window.addEventListener("hashchange", () => {
      if (location.hash === "#main") return; // the link that skips the navigation
      this.render();
    });
    this.render();
  }

  render() {
    this.#leaving?.abort();
    this.#leaving = new AbortController();
    const { path, parts, query } = parse(location.hash);
    const [view, parameters] = this.#find(parts);
    window.scrollTo(0, 0);
    this.#place.replaceChildren();
    this.#changed(path);
    const title = (text) => {
      document.title = text === "hapvr" ? text : `${text} – hapvr`;
    };
    view(this.#place, { parameters, query, signal: this.#leaving.signal, title });
    // A new view is read from its heading on; on the first one the browser's own focus is left alone.
    if (!this.#first) {
      const heading = this.#place.querySelector("h1");
      if (heading) heading.tabIndex = -1;
      (heading ?? this.#place).focus({ preventScroll: true });
      announce(document.title);
    }
    this.#first = false;
  }

  #find(parts) {
    for (const [pattern, view] of this.#routes) {
      if (pattern.length !== parts.length) continue;
      const parameters = {};
      const fits = pattern.every((piece, index) => {
        if (!piece.startsWith(":")) return piece === parts[index];
        parameters[piece.slice(1)] = parts[index];
        return true;
      });
      if (fits) return [view, parameters];
    }
    return [this.#missing, {}];
  }
}

/** "#/library?q=cat" as { path: "/library", parts: ["library"], query }. */
export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { path: `/${parts[0] ?? ""}`, parts, query: new URLSearchParams(search) };
}

/** The address of a view: address(["match", a, b], { t: 3 }). */
export function address(parts, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(entries).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(parts, query) {
  location.hash = address(parts, query);
}

function decoded(piece) {
  try {
    return decodeURIComponent(piece);
  } catch {
    return piece;
  }
}
