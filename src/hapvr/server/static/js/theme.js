// Light or dark: as the system says unless a person chose. Loaded before the first paint, so that nothing flashes.

(() => {
  const KEY = "hapvr.theme";

  /** "light", "dark" or "system". */
  function chosen() {
    try {
      const value = localStorage.getItem(KEY);
      return value === "light" || value === "dark" ? value : "system";
    } catch {
      return "system"; // storage may be switched off
    }
  }

  function apply(value) {
    if (value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
    document.dispatchEvent(new CustomEvent("themechange"));
  }

  function choose(value) {
    try {
      if (value === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, value);
    } catch {
      // It then lasts until the page is left.
    }
    apply(value);
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => apply(chosen()));

  /** What is shown now: "light" or "dark". */
  function shown() {
    const value = document.documentElement.dataset.theme;
    return value ?? (dark.matches ? "dark" : "light");
  }

  window.hapvrTheme = { chosen, choose, shown };
  apply(chosen());
})();
