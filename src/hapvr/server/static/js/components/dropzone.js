// Drop a file or choose one, or paste a picture. The whole page takes a drop while this is shown.

import { h, unique } from "../dom.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";

export function dropzone({ choose, signal }) {
  const id = unique("file");
  const input = h("input", {
    id,
    type: "file",
    class: "visually-hidden",
    accept: "video/*,image/*,.mkv,.avi,.mov,.flv,.wmv,.ts,.mts,.webm,.mpg,.mpeg,.m4v,.3gp,.ogv",
    onchange: () => input.files[0] && choose(input.files[0]),
  });
  const zone = h(
    "div",
    { class: "dropzone" },
    h("div", { class: "dropzone-icon" }, icon("upload")),
    h("p", { class: "dropzone-title" }, t("drop.title")),
    h("p", { class: "muted" }, t("drop.text")),
    input,
    h("label", { for: id, class: "button primary" }, t("drop.choose")),
  );

  let depth = 0; // dragenter and dragleave also come from everything inside
  const hasFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  const mark = (by) => {
    depth = Math.max(0, depth + by);
    zone.classList.toggle("dropzone-over", depth > 0);
  };
  const listen = (name, handler) =>
    document.addEventListener(name, (event) => hasFile(event) && handler(event), { signal });
  listen("dragenter", (event) => (event.preventDefault(), mark(1)));
  listen("dragover", (event) => event.preventDefault());
  listen("dragleave", () => mark(-1));
  listen("drop", (event) => {
    event.preventDefault();
    mark(-depth);
    if (event.dataTransfer.files[0]) choose(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => event.clipboardData?.files[0] && choose(event.clipboardData.files[0]), {
    signal,
  });
  return zone;
}
