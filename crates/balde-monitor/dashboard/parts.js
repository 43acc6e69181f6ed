// What several pages show: severities, bars, sparklines, sentences about events, and the buttons that
// acknowledge or silence an alert.

import { send, token } from "./api.js";
import { el, setAttribute, setText, svg } from "./dom.js";
import { dateTime, duration, number, percent, time } from "./format.js";
import { text } from "./texts.js";

export const RANK = { EXHAUSTED: 0, CRITICAL: 1, WARNING: 2, NORMAL: 3 };

const SYMBOL = { EXHAUSTED: "■", CRITICAL: "▲", WARNING: "◆", NORMAL: "●" };

/** A severity as a symbol and a word, so that colour is never the only sign. */
export const severityBadge = (severity) =>
  el("span", { class: `badge ${severity}` },
    el("span", { "aria-hidden": "true", text: `${SYMBOL[severity] ?? "?"} ` }),
    text(severity));

export const policyLink = (participant, policy, label = policy) =>
  el("a", { href: `#/policy/${encodeURIComponent(participant)}/${encodeURIComponent(policy)}`, text: label });

/** A bucket drawn as a bar with its thresholds; `update` follows the newest state. */
export const bar = () => {
  const fill = el("div", { class: "fill" });
  const label = el("span", { class: "bar-label" });
  const warning = el("div", { class: "threshold warning" });
  const critical = el("div", { class: "threshold critical" });
  const root = el("div", { class: "bar", role: "meter", "aria-valuemin": "0" }, fill, warning, critical, label);
  const update = (bucket) => {
    const share = Math.max(0, Math.min(100, bucket.remaining_bp / 100));
    fill.style.width = `${share}%`;
    warning.style.left = `${bucket.warning_bp / 100}%`;
    critical.style.left = `${bucket.critical_bp / 100}%`;
    const isEmpty = bucket.level <= 0;
    root.className = `bar ${bucket.severity}${isEmpty ? " empty" : ""}`;
    setText(label, bucket.level < 0 ? text("debt", { tokens: number(-bucket.level) }) : isEmpty ? text("emptyNow") : "");
    setAttribute(root, "aria-valuemax", bucket.capacity);
    setAttribute(root, "aria-valuenow", Math.max(0, bucket.level));
    const words = { policy: bucket.policy, level: number(bucket.level), capacity: number(bucket.capacity), percent: percent(bucket.remaining_bp) };
    setAttribute(root, "aria-label", text("meter", words));
    setAttribute(root, "title", text("meter", words));
  };
  return { root, update };
};

const WIDTH = 110;
const HEIGHT = 26;

/** The level over the last hour as a small line; null with fewer than two samples. */
export const sparkline = (bucket, nowUs) => {
  const points = bucket.recent ?? [];
  if (points.length < 2) return null;
  const fromUs = nowUs - 3600e6;
  const x = (us) => Math.max(0, ((us - fromUs) / 3600e6) * WIDTH);
  const y = (level) => 1 + (HEIGHT - 2) * (1 - Math.max(0, Math.min(1, level / bucket.capacity)));
  const path = points.map(([us, level]) => `${x(us).toFixed(1)},${y(level).toFixed(1)}`).join(" ");
  const levels = points.map(([, level]) => level);
  const words = { from: number(Math.min(...levels)), to: number(Math.max(...levels)) };
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "sparkline", role: "img", "aria-label": text("trend", words) },
    svg("polyline", { points: path }));
};

/** The burn rate; unknown if the bucket was full in every sample. */
export const burn = (bucket) => {
  const [shortest] = bucket.burn_rates;
  if (!shortest || shortest.is_upper_bound) return text("burnUnknown");
  return text("burnUnit", { rate: number(Math.round(shortest.expected_milli_per_minute / 1000)) });
};

/** When the bucket will be empty, in a few words. */
export const emptyIn = (bucket) => {
  if (bucket.level <= 0) return text("emptyNow");
  const forecast = bucket.time_to_empty;
  if (!forecast) return bucket.burn_rates.some((rate) => !rate.is_upper_bound) ? text("notAtThisRate") : text("unknown");
  if (forecast.expected_us === null) return text("notAtThisRate");
  return duration(forecast.expected_us);
};

export const forecastSentence = (forecast) => {
  if (!forecast || forecast.expected_us === null) return text("notAtThisRate");
  const words = {
    expected: duration(forecast.expected_us),
    earliest: duration(forecast.earliest_us),
    latest: forecast.latest_us === null ? "" : duration(forecast.latest_us),
    confidence: text(forecast.confidence),
  };
  return text(forecast.latest_us === null ? "forecastOpen" : "forecastText", words);
};

/** An event as one sentence. */
export const sentence = (event, nowUs) => {
  const kind = event.kind;
  const level = event.level === null || event.level === undefined ? ""
    : text("levelText", { level: number(event.level), capacity: number(event.capacity) });
  const policy = event.policy ?? event.participant;
  switch (kind.type) {
    case "raised": return text("raised", { policy, severity: text(kind.to), level });
    case "lowered": return text("lowered", { policy, severity: text(kind.to), level });
    case "resolved": return kind.reason === "vanished" ? text("resolvedVanished", { policy }) : text("resolved", { policy, level });
    case "reminder": return text("reminder", { policy, severity: text(event.severity), level });
    case "predicted": return text("predictedText", { policy, time: time(kind.empty_at_us, nowUs), confidence: text(kind.confidence), level });
    case "forecast_over": return text(kind.result === "came_true" ? "cameTrue" : "averted", { policy });
    case "stale": case "still_stale": return text("staleText", { participant: event.participant, time: dateTime(kind.newest_us) });
    case "fresh": return text("freshText", { participant: event.participant });
    case "storage_failed": case "storage_still_failing": return text("storageFailed", { cause: kind.cause });
    case "storage_recovered": return text("storageRecovered");
    case "changed": return text("changedText", { subject: policy });
    default: return text("otherText", { policy, kind: kind.type });
  }
};

/** Shows what an action of the user led to. */
export const announce = (message) => {
  const box = document.getElementById("message");
  box.textContent = message;
  clearTimeout(box.timer);
  box.timer = setTimeout(() => { box.textContent = ""; }, 6000);
};

/** Runs an action of the user that changes something, and says how it ended. */
export const change = async (model, action) => {
  const access = model.status?.write_access;
  if (access === "denied") return announce(text("denied"));
  if (access === "token" && !token()) return announce(text("needToken"));
  try {
    await action();
    announce(text("done"));
  } catch (error) {
    announce(text("failed", { detail: error.message }));
  }
};

const SILENCES = [["minutes30", 30], ["hours2", 120], ["hours8", 480]];

/** The buttons of an open alert. */
export const actions = (model, participant, policy, severity, episode) => {
  const select = el("select", { "aria-label": text("silenceFor") }, SILENCES.map(([key, minutes]) => el("option", { value: minutes, text: text(key) })));
  const silence = () => change(model, () =>
    send("POST", "/api/v1/silences", { participant, policy, up_to: severity, minutes: Number(select.value) }));
  const acknowledge = () => change(model, () => send("POST", "/api/v1/acknowledgements", { episode }));
  return el("span", { class: "actions" },
    episode ? el("button", { type: "button", class: "acknowledge", title: text("acknowledgeHelp"), onclick: acknowledge, text: text("acknowledge") }) : null,
    select,
    el("button", { type: "button", class: "silence", onclick: silence, text: text("silence") }));
};
