// Following a job to its end: by server-sent events, or by asking again and again where those do not come through.

import { ApiError, get, part, remove } from "./api.js";
import { t } from "./i18n.js";

const POLL_MS = 800;
const ENDED = new Set(["done", "failed", "cancelled"]);

export const ended = (job) => ENDED.has(job.state);

/** Resolves to the job once it has ended, however it did; `update` is called with each new state of it. */
export function follow(id, update, { signal } = {}) {
  return new Promise((resolve, reject) => {
    let source = null;
    let timer = null;
    let misses = 0;

    const stop = () => {
      source?.close();
      clearTimeout(timer);
    };
    const take = (job) => {
      misses = 0;
      update(job);
      if (!ended(job)) return false;
      stop();
      resolve(job);
      return true;
    };
    const poll = async () => {
      try {
        if (take(await get(`jobs/${part(id)}`, { signal }))) return;
      } catch (error) {
        if (error.name === "AbortError") return;
        misses += 1;
        // A server that restarts is away for some seconds; one that does not know the job never will.
        if (error.type !== "Offline" || misses > 5) {
          stop();
          reject(error);
          return;
        }
      }
      timer = setTimeout(poll, POLL_MS);
    };

    signal?.addEventListener("abort", () => {
      stop();
      reject(new DOMException("No longer followed.", "AbortError"));
    });
    if (signal?.aborted) return;
    if (typeof EventSource === "undefined") {
      poll();
      return;
    }
    source = new EventSource(`api/jobs/${part(id)}/events`);
    source.addEventListener("job", (event) => take(JSON.parse(event.data)));
    source.onerror = () => {
      source.close();
      if (!signal?.aborted) poll();
    };
  });
}

/** The result of a job that is followed to its end; an ApiError if it failed or was cancelled. */
export async function resultOf(id, update = () => {}, options = {}) {
  const job = await follow(id, update, options);
  if (job.state === "done") return job.result;
  if (job.state === "cancelled") throw new ApiError({ type: "Cancelled", message: t("jobs.cancelled") });
  throw new ApiError(
    typeof job.error === "string" ? { message: job.error } : (job.error ?? { message: t("jobs.failed") }),
  );
}

export const cancel = (id) => remove(`jobs/${part(id)}`);
