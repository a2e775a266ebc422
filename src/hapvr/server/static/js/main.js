// Where the page starts: navigation, colours, views, and the login where the server asks for one.

import { get, whenLoginIsNeeded } from "./api.js";
import { setUpKeyHelp } from "./components/keyhelp.js";
import { emptyState } from "./components/notice.js";
import { h, show } from "./dom.js";
import { LANGUAGES, language, setLanguage, t } from "./i18n.js";
import { icon } from "./icons.js";
import { Router } from "./router.js";
import { duplicatesView } from "./views/duplicates.js";
import { libraryView } from "./views/library.js";
import { loginView } from "./views/login.js";
import { matchView } from "./views/match.js";
import { resultsView } from "./views/results.js";
import { searchView } from "./views/search.js";
import { settingsView } from "./views/settings.js";
import { textView } from "./views/text.js";

const PLACES = [
  ["/", t("search"), "search", ["/", "/results", "/text", "/match"]],
  ["/duplicates", t("duplicates"), "copies", ["/duplicates"]],
  ["/library", t("library"), "library", ["/library"]],
  ["/settings", t("settings"), "settings", ["/settings"]],
];

const main = document.getElementById("main");

function navigation(path) {
  const links = PLACES.map(([to, label, picture, under]) =>
    h(
      "a",
      { href: `#${to}`, "aria-current": under.includes(path) ? "page" : null },
      icon(picture),
      h("span", {}, label),
    ),
  );
  show(document.getElementById("nav"), links);
}

function themeButton() {
  const button = document.getElementById("theme");
  const refresh = () => {
    const dark = window.hapvrTheme.shown() === "dark";
    const label = dark ? t("theme.light") : t("theme.dark");
    button.setAttribute("aria-label", label);
    button.title = label;
    show(button, icon(dark ? "sun" : "moon"));
  };
  button.addEventListener("click", () =>
    window.hapvrTheme.choose(window.hapvrTheme.shown() === "dark" ? "light" : "dark"),
  );
  document.addEventListener("themechange", refresh);
  refresh();
}

/** What the page holds before any view: its language, and a choice of another. */
function frame() {
  document.documentElement.lang = language();
  document.querySelector(".skip").textContent = t("skip");
  document.getElementById("nav").setAttribute("aria-label", t("nav"));
  const select = document.getElementById("language");
  select.setAttribute("aria-label", t("language"));
  show(
    select,
    Object.entries(LANGUAGES).map(([code, name]) =>
      h("option", { value: code, lang: code, selected: code === language(), "aria-label": name }, code.toUpperCase()),
    ),
  );
  select.addEventListener("change", () => setLanguage(select.value));
}

function keysButton() {
  const button = document.getElementById("keys");
  button.setAttribute("aria-label", t("keys.open"));
  button.title = `${t("keys.open")} (?)`;
  show(button, icon("keys"));
  setUpKeyHelp(button);
}

function missingView(place, { title }) {
  title(t("missing"));
  const home = h("a", { class: "button primary", href: "#/" }, t("missing.home"));
  show(place, h("h1", {}, t("missing")), emptyState({ picture: "search", title: t("missing.text"), actions: [home] }));
}

async function footer() {
  const foot = document.getElementById("foot");
  try {
    const { version, model, status, cause } = await get("health");
    show(
      foot,
      h("p", {}, t("foot", { version, model }), h("a", { href: "api/openapi.json" }, "API")),
      status === "degraded" && h("p", { role: "status" }, cause),
    );
  } catch (error) {
    // Searching does not work; of anything else the view says what is wrong.
    if (error.status === 503) show(foot, h("p", { role: "status" }, error.message));
  }
}

let asking = false;
const router = new Router(main, {
  missing: missingView,
  changed: (path) => {
    asking = false; // the login, if it was shown, has made way
    navigation(path);
  },
});
router.add("/", searchView);
router.add("/results/:job", resultsView);
router.add("/text", textView);
router.add("/match/:a/:b", matchView);
router.add("/duplicates", duplicatesView);
router.add("/library", libraryView);
router.add("/settings", settingsView);

whenLoginIsNeeded(() => {
  if (asking) return; // several requests may be refused at once
  asking = true;
  loginView(main, {
    done: () => {
      router.render();
      footer();
    },
  });
});

frame();
keysButton();
themeButton();
router.start();
footer();
