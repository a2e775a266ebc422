// What this tab has searched for: names for addresses, which hold only ids. Gone when the tab is closed.

const KEY = "hapvr.queries";
const MOST = 50;

/** Remember the side { kind, id } of a query, its name and how long it is. */
export function remember(id, about) {
  const all = read().filter(([known]) => known !== id);
  all.push([id, about]);
  try {
    sessionStorage.setItem(KEY, JSON.stringify(all.slice(-MOST)));
  } catch {
    // Without storage a reload shows ids in place of names.
  }
}

/** What was remembered, or null. */
export function recall(id) {
  return read().find(([known]) => known === id)?.[1] ?? null;
}

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
  } catch {
    return [];
  }
}
