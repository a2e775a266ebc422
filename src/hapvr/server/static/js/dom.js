// Elements from plain calls. Text is only ever set as text, so that a file's name can never become markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: h("button", { class: "quiet", onclick: save }, "Save").
 * `on...` are listeners, `dataset` is merged, true and false set and leave out, everything else is an attribute.
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Put these in place of whatever an element holds. */
export function show(element, ...children) {
  element.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
}

let count = 0;

/** An id that no other element has. */
export function unique(prefix) {
  count += 1;
  return `${prefix}-${count}`;
}

/** Say something to a screen reader that is not read out by itself. */
export function announce(text) {
  const place = document.getElementById("announcer");
  if (place.textContent !== text) place.textContent = text;
}
