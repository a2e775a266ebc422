// Where the page starts: navigation, colours, views, and the login where the server asks for one.

import { get, whenLoginIsNeeded } from "./api.js";
import { setUpKeyHelp } from "./components/keyhelp.js";
import { emptyState } from "./components/notice.js";
import { h, show } from "./dom.js";
import { t } from "./i18n.js";
import { icon } from "./icons.js";
import { Router } from "./router.js";
import { duplicatesView } from "./views/duplicates.js";
import { libraryView } from "./views/library.js";
import { loginView } from "./views/login.js";
import { matchView } from "./views/match.js";
import { resultsView } from "./views/results.js";
import { searchView } from "./views/search.js";
import { settingsView } from "./views/settings.js";

const PLACES = [
  ["/", "Search", "search", ["/", "/results", "/match"]],
  ["/duplicates", "Duplicates", "copies", ["/duplicates"]],
  ["/library", "Library", "library", ["/library"]],
  ["/settings", "Settings", "settings", ["/settings"]],
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
    const label = dark ? "Use light colours" : "Use dark colours";
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

function keysButton() {
  const button = document.getElementById("keys");
  button.setAttribute("aria-label", t("keys.open"));
  button.title = `${t("keys.open")} (?)`;
  show(button, icon("keys"));
  setUpKeyHelp(button);
}

function missingView(place, { title }) {
  title("Not found");
  const home = h("a", { class: "button primary", href: "#/" }, "To the search");
  show(
    place,
    h("h1", {}, "Not found"),
    emptyState({ picture: "search", title: "There is no such page", actions: [home] }),
  );
}

async function footer() {
  const foot = document.getElementById("foot");
  try {
    const { version, model, status, cause } = await get("health");
    show(
      foot,
      h("p", {}, `hapvr ${version} · model ${model} · `, h("a", { href: "api/openapi.json" }, "API")),
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

keysButton();
themeButton();
router.start();
footer();
