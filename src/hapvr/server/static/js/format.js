// Numbers as people read them. Nothing here touches the page.

import { language, locale, t } from "./i18n.js";

/** Seconds as on a player: "0:07", "1:02:03"; with tenths where `tenths`: "0:07.3". */
export function clock(seconds, { tenths = false } = {}) {
  if (!Number.isFinite(seconds)) return "–";
  const unit = tenths ? 10 : 1;
  // Rounded once, as a whole, so that 59.96 is 1:00.0 and never 0:60.0.
  const whole = Math.round(Math.max(0, seconds) * unit);
  const rest = whole / unit;
  const hours = Math.floor(rest / 3600);
  const minutes = Math.floor(rest / 60) % 60;
  const left = (whole - (hours * 60 + minutes) * 60 * unit) / unit;
  const digits = (tenths ? left.toFixed(1) : String(left)).padStart(tenths ? 4 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${digits}` : `${minutes}:${digits}`;
}

/** "0:03–0:09". */
export function span([start, end]) {
  return `${clock(start)}–${clock(end)}`;
}

/** A time that a person typed: "75", "1:15" or "1:02:03.5" in seconds; null for nothing; NaN for anything else. */
export function parseClock(text) {
  const trimmed = text.trim();
  if (!trimmed) return null;
  if (!/^(\d+:){0,2}\d+([.,]\d+)?$/.test(trimmed)) return NaN;
  return trimmed
    .replace(",", ".")
    .split(":")
    .reduce((sum, part) => sum * 60 + Number(part), 0);
}

/** A length of time in words: "8 s", "3 min", "2 h 5 min". */
export function lasting(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return t("time.under");
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 && minutes % 60 ? `${hours} h ${minutes % 60} min` : `${count(hours)} h`;
}

/** Bytes: "812 B", "1.4 MB", "12 GB". */
export function bytes(size) {
  if (!Number.isFinite(size)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = size;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 9.95 ? decimal(value, 1) : Math.round(value)} ${units[unit]}`;
}

/** Bits a second: "2.1 Mbit/s". */
export function bitrate(bits) {
  if (!bits) return "–";
  return bits >= 999_500 ? `${decimal(bits / 1e6, 1)} Mbit/s` : `${Math.round(bits / 1000)} kbit/s`;
}

/** A whole number with its thousands apart. */
export function count(number) {
  return Math.round(number).toLocaleString(language());
}

/** A probability with one decimal; never 0 or 100%. */
export function percent(probability) {
  if (probability > 0.999) return t("percent.over", { share: share(99.9) });
  if (probability < 0.001) return t("percent.under", { share: share(0.1) });
  return share(probability * 100);
}

const share = (percents) => `${decimal(percents, 1)}${language() === "en" ? "" : "\u00a0"}%`;

/** A number with so many digits after the point, or the comma. */
export function decimal(number, digits) {
  return number.toLocaleString(language(), { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A day and a time, as the reader's own system writes them. */
export function when(iso) {
  const date = new Date(iso);
  return Number.isNaN(date.getTime())
    ? "–"
    : date.toLocaleString(locale(), { dateStyle: "medium", timeStyle: "short" });
}

/** A day, as the reader's own system writes it. */
export function day(iso) {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? "–" : date.toLocaleDateString(locale(), { dateStyle: "medium" });
}

const VERDICTS = { copy: t("verdict.copy"), "same scene": t("verdict.scene"), "no match": t("verdict.none") };

/** A verdict: words, a number and a level from 1 (no match) to 4 (surely a copy) that colours go by. */
export function describeVerdict({ verdict, probability, score }) {
  const words = VERDICTS[verdict] ?? verdict;
  if (probability === null || probability === undefined) {
    const level = verdict === "copy" ? 3 : 1;
    return {
      words,
      number: t("verdict.score", { score: decimal(score, 2).replace("-", "−") }),
      level,
      calibrated: false,
    };
  }
  const level = verdict === "copy" ? (probability >= 0.9 ? 4 : 3) : verdict === "same scene" ? 2 : 1;
  const number = verdict === "copy" ? percent(probability) : t("verdict.ofCopy", { share: percent(probability) });
  return { words, number, level, calibrated: true };
}
