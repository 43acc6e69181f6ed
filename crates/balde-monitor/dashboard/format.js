// Numbers, times and durations as text in the current language.

import { language } from "./texts.js";

export const number = (value) => new Intl.NumberFormat(language()).format(value);

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
  if (us < 10 * 1000) return unit(Math.round(us / 1000), "millisecond");
  if (us < SECOND) return unit(Math.round(us / 1000), "millisecond");
  if (us < 2 * MINUTE) return unit(Math.round(us / SECOND), "second");
  if (us < 2 * HOUR) return unit(Math.round(us / MINUTE), "minute");
  if (us < 3 * DAY) return unit(Math.round(us / HOUR), "hour");
  return unit(Math.round(us / DAY), "day");
};

/** The time of day of today, else with the date. */
export const time = (us, nowUs) => {
  const date = new Date(us / 1000);
  const isToday = date.toDateString() === new Date(nowUs / 1000).toDateString();
  const options = isToday ? { timeStyle: "medium" } : { dateStyle: "short", timeStyle: "medium" };
  return new Intl.DateTimeFormat(language(), options).format(date);
};

/** Date and time, always both. */
export const dateTime = (us) =>
  new Intl.DateTimeFormat(language(), { dateStyle: "short", timeStyle: "medium" }).format(new Date(us / 1000));
