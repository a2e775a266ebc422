// What a person set, kept in this browser.

const KEY = "hapvr.settings";

/**
 * k: hits shown; least: the probability below which none is, 0 for all; exact: compare with every video;
 * ignoreShared: footage that many videos of the library share makes no match.
 */
export const DEFAULTS = Object.freeze({ k: 10, least: 0, exact: false, ignoreShared: true });

export function settings() {
  try {
    return checked(JSON.parse(localStorage.getItem(KEY) ?? "{}"));
  } catch {
    return { ...DEFAULTS }; // no storage, or not what was written here
  }
}

export function keep(changes) {
  const next = checked({ ...settings(), ...changes });
  try {
    localStorage.setItem(KEY, JSON.stringify(next));
  } catch {
    // Storage may be switched off: the defaults go on.
  }
  return next;
}

/** The fields of a search request that follow from the settings. */
export function searchFields({ k, least, exact } = settings()) {
  return { k, exact, ...(least > 0 ? { min_probability: least } : {}), ...sharedFields() };
}

/** Those of any request that compares videos. */
export function sharedFields({ ignoreShared } = settings()) {
  return { ignore_shared: ignoreShared };
}

function checked(found) {
  const k = Math.round(Number(found?.k));
  const least = Number(found?.least);
  return {
    k: k >= 1 && k <= 100 ? k : DEFAULTS.k,
    least: least >= 0 && least < 1 ? least : DEFAULTS.least,
    exact: found?.exact === true,
    ignoreShared: found?.ignoreShared !== false,
  };
}
