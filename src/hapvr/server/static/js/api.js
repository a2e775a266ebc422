// The server's REST interface. Every failure is an ApiError whose message can be shown as it is.

import { t } from "./i18n.js";

/** What went wrong: `type` as the server names it, or "Offline" where it did not answer; `hint` says what to do. */
export class ApiError extends Error {
  constructor({ type = "Internal", message, hint = null }, status = 0) {
    super(message);
    this.type = type;
    this.hint = hint;
    this.status = status;
  }
}

const OFFLINE = {
  type: "Offline",
  message: t("api.offline"),
  hint: t("api.offline.hint"),
};

let onLogin = () => {};

/** Say what happens when the server asks for a token. */
export function whenLoginIsNeeded(handler) {
  onLogin = handler;
}

export const get = (path, options) => send("GET", path, undefined, options);
export const post = (path, body, options) => send("POST", path, body, options);
export const remove = (path, body, options) => send("DELETE", path, body, options);

async function send(method, path, body, { signal } = {}) {
  let response;
  try {
    const headers = { Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const text = body === undefined ? undefined : JSON.stringify(body);
    response = await fetch(`api/${path}`, { method, headers, body: text, signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(OFFLINE);
  }
  return answer(response.status, await response.text());
}

function answer(status, text) {
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    // Not from hapvr: a proxy, perhaps. What is said below has to do.
  }
  if (status >= 200 && status < 300) return data;
  const error = new ApiError(data?.error ?? { message: t("api.status", { status }) }, status);
  if (status === 401) onLogin();
  throw error;
}

/**
 * Upload a file and search for it: resolves to { job, query }. fetch cannot tell how far an upload has come.
 * `progress` is called with the share sent, 0 to 1; `signal` aborts.
 */
export function searchByFile(file, fields, { progress, signal } = {}) {
  const form = new FormData();
  // The fields go first, so that the server knows them before the file ends.
  for (const [name, value] of Object.entries(fields)) form.append(name, String(value));
  form.append("file", file, file.name);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "api/searches");
    request.setRequestHeader("Accept", "application/json");
    request.upload.onprogress = (event) => event.lengthComputable && progress?.(event.loaded / event.total);
    request.onload = () => {
      try {
        resolve(answer(request.status, request.responseText));
      } catch (error) {
        reject(error);
      }
    };
    request.onerror = () => reject(new ApiError({ ...OFFLINE, message: t("api.cut") }));
    request.onabort = () => reject(new DOMException("The upload was stopped.", "AbortError"));
    signal?.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** Send the token; the server answers with a cookie, which videos and pictures need: they cannot send a header. */
export async function login(token) {
  let response;
  try {
    response = await fetch("login", {
      method: "POST",
      headers: { Accept: "application/json" },
      body: new URLSearchParams({ token }),
      credentials: "same-origin",
    });
  } catch {
    throw new ApiError(OFFLINE);
  }
  if (response.ok) return;
  if (response.status === 401 || response.status === 403) {
    throw new ApiError({ type: "Forbidden", message: t("api.wrongToken"), hint: null }, 401);
  }
  answer(response.status, await response.text());
}

/** Where the pictures and files of a side lie. A side is { kind: "videos" or "queries", id }. */
export function media(side, what, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined)).toString();
  return `api/${side.kind}/${encodeURIComponent(side.id)}/${what}${query ? `?${query}` : ""}`;
}

/** An id as part of a path. */
export const part = encodeURIComponent;
