// Numbers, times and durations as text in the current language. Clocks have 24 hours everywhere.

import { language } from "./texts.js";

export const number = (value, digits = 0) => new Intl.NumberFormat(language(), { maximumFractionDigits: digits }).format(value);

export const percent = (basisPoints) =>
  new Intl.NumberFormat(language(), { maximumFractionDigits: 1 }).format(basisPoints / 100);

const SECOND = 1e6;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration in microseconds, in the largest unit that keeps it precise enough to act on. */
export const duration = (us) => {
  if (us < 0) us = 0;
  const unit = (value, name) =>
    new Intl.NumberFormat(language(), { style: "unit", unit: name, unitDisplay: "short", maximumFractionDigits: 0 }).format(value);
  if (us < SECOND) return unit(Math.round(us / 1000), "millisecond");
  if (us < 2 * MINUTE) return unit(Math.round(us / SECOND), "second");
  if (us < 2 * HOUR) return unit(Math.round(us / MINUTE), "minute");
  if (us < 3 * DAY) return unit(Math.round(us / HOUR), "hour");
  return unit(Math.round(us / DAY), "day");
};

const formatted = (us, options) => new Intl.DateTimeFormat(language(), { hourCycle: "h23", ...options }).format(new Date(us / 1000));

/** The time of day of today, else with the date. */
export const time = (us, nowUs) => {
  const isToday = new Date(us / 1000).toDateString() === new Date(nowUs / 1000).toDateString();
  return isToday ? formatted(us, { timeStyle: "medium" }) : dateTime(us);
};

/** Date and time, always both. */
export const dateTime = (us) => formatted(us, { dateStyle: "medium", timeStyle: "medium" });

/** A time on the axis of a chart whose ticks are `stepSeconds` apart. */
export const tick = (seconds, stepSeconds) => {
  if (stepSeconds >= 25 * 86400) return formatted(seconds * 1e6, { month: "short", year: "2-digit" });
  const isMidnight = new Date(seconds * 1000).getHours() === 0 && new Date(seconds * 1000).getMinutes() === 0;
  if (stepSeconds >= 86400 || isMidnight) return formatted(seconds * 1e6, { month: "short", day: "numeric" });
  return formatted(seconds * 1e6, stepSeconds < 60 ? { timeStyle: "medium" } : { timeStyle: "short" });
};
