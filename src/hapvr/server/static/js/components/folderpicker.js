// Choosing a folder in a root: a dialog with the folders at a place, one level at a time.

import { get, part } from "../api.js";
import { h, show, unique } from "../dom.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";

/** A button that opens the dialog for the root and path that are chosen now, and hands on what is chosen there. */
export function folderButton({ root, path, chosen }) {
  const open = async () => {
    const found = await pickFolder(root(), path());
    if (found !== null) chosen(found);
  };
  const button = { type: "button", class: "button quiet choose-folder", onclick: open };
  return h("button", button, icon("folder"), t("folder.choose"));
}

/** Resolves to a path in the root { id, name }, "" for the root itself; null if nothing was chosen. */
function pickFolder(root, start) {
  return new Promise((resolve) => {
    const title = unique("folders");
    const place = h("p", { class: "folder-place", role: "status" });
    const list = h("ul", { class: "folder-list" });
    const use = h("button", { value: "yes", class: "button primary" }, t("folder.use"));
    const dialog = h(
      "dialog",
      { class: "dialog folders", "aria-labelledby": title },
      h("h2", { id: title }, t("folder.title", { root: root.name })),
      place,
      list,
      h(
        "form",
        { method: "dialog", class: "row end" },
        h("button", { value: "no", class: "button quiet" }, t("folder.cancel")),
        use,
      ),
    );
    let shown = "";
    const row = (text, to, picture) =>
      h("li", {}, h("button", { type: "button", onclick: () => go(to) }, icon(picture), text));
    const go = async (path) => {
      use.disabled = true;
      try {
        const { folders, more } = await get(`roots/${part(root.id)}/folders?path=${part(path)}`);
        shown = path;
        show(place, [root.name, path].filter(Boolean).join("/"));
        const up = path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
        show(
          list,
          path && row(t("folder.up"), up, "back"),
          folders.map((name) => row(name, path ? `${path}/${name}` : name, "folder")),
          !folders.length && h("li", { class: "muted" }, t("folder.none")),
          more && h("li", { class: "muted" }, t("folder.more")),
        );
        use.disabled = false;
        (list.querySelector("button") ?? use).focus();
      } catch (error) {
        if (path)
          go(""); // what was typed is no folder: begin at the root
        else show(place, error.message);
      }
    };
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? shown : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    go(start.replace(/^\/+|\/+$/g, ""));
  });
}
