// What several pages show: severities, bars, sparklines, sentences about events, and what needs attention.

import { el, setAttribute, setText, svg } from "./dom.js";
import { dateTime, duration, number, percent, time } from "./format.js";
import { actions } from "./operator.js";
import { language, text } from "./texts.js";

export const RANK = { EXHAUSTED: 0, CRITICAL: 1, WARNING: 2, NORMAL: 3 };

const SYMBOL = { EXHAUSTED: "■", CRITICAL: "▲", WARNING: "◆", NORMAL: "●" };

/** The most urgent first: by severity, then what is forecast to be empty, then the lowest. */
export const byUrgency = (a, b) =>
  RANK[a.severity] - RANK[b.severity] || Number(b.is_predicted) - Number(a.is_predicted) ||
  a.remaining_bp - b.remaining_bp || a.policy.localeCompare(b.policy);

const badge = (severity, symbol, word) =>
  el("span", { class: `badge ${severity}` }, el("span", { "aria-hidden": "true", text: `${symbol} ` }), word);

/** A severity as a symbol and a word, so that colour is never the only sign. */
export const severityBadge = (severity) => badge(severity, SYMBOL[severity] ?? "?", text(severity));

/** What an event did, as a symbol and a word: a resolution has the severity of its alert, but is good news. */
export const eventBadge = (event) => {
  switch (event.kind.type) {
    case "raised": case "lowered": return severityBadge(event.kind.to);
    case "resolved": case "fresh": case "storage_recovered": return badge("NORMAL", "✓", text("over"));
    case "forecast_over": return event.kind.result === "came_true" ? badge("CRITICAL", "◷", text("predicted")) : badge("NORMAL", "✓", text("over"));
    case "predicted": return badge(event.severity === "EXHAUSTED" ? "CRITICAL" : event.severity, "◷", text("predicted"));
    case "changed": return badge("unknown", "↔", text("changed"));
    case "acknowledged": return badge("NORMAL", "✓", text("acknowledged"));
    case "unacknowledged": return badge("WARNING", "↺", text("undone"));
    case "closed": return badge("NORMAL", "✓", text("closedWord"));
    case "silenced": return badge("unknown", "‖", text("silenced"));
    case "silence_ended": return badge("unknown", "▶", text("silenceOver"));
    default: return severityBadge(event.severity);
  }
};

/** A text that may be broken after each underscore, so that long names are not broken elsewhere. */
export const breakable = (label) => label.split(/(?<=_)/).flatMap((part, index) => (index === 0 ? [part] : [el("wbr"), part]));

export const policyLink = (participant, policy, label = policy) =>
  el("a", { href: `#/policy/${encodeURIComponent(participant)}/${encodeURIComponent(policy)}` }, breakable(label));

/** A bucket drawn as a bar with its thresholds; `update` follows the newest state. */
export const bar = () => {
  const fill = el("div", { class: "fill" });
  const label = el("span", { class: "bar-label" });
  const warning = el("div", { class: "threshold warning" });
  const critical = el("div", { class: "threshold critical" });
  const root = el("div", { class: "bar", role: "meter", "aria-valuemin": "0" }, fill, warning, critical, label);
  const update = (bucket, isOld = false) => {
    const share = Math.max(0, Math.min(100, bucket.remaining_bp / 100));
    fill.style.width = `${share}%`;
    warning.style.left = `${bucket.warning_bp / 100}%`;
    critical.style.left = `${bucket.critical_bp / 100}%`;
    const isEmpty = bucket.level <= 0;
    root.className = `bar ${bucket.severity}${isEmpty ? " empty" : ""}${isOld ? " old" : ""}`;
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
const HOUR_US = 3600e6;

/** The level over the last hour, or since the first sample if that is less, as a small line; null
 * with fewer than two samples. */
export const sparkline = (bucket) => {
  const points = bucket.recent ?? [];
  if (points.length < 2) return null;
  const untilUs = points.at(-1)[0];
  const fromUs = Math.max(points[0][0], untilUs - HOUR_US);
  const x = (us) => (Math.max(0, (us - fromUs) / Math.max(1, untilUs - fromUs)) * WIDTH).toFixed(1);
  const y = (level) => (1.5 + (HEIGHT - 3) * (1 - Math.max(0, Math.min(1, level / bucket.capacity)))).toFixed(1);
  const path = points.map(([us, level]) => `${x(us)},${y(level)}`).join(" ");
  const levels = points.map(([, level]) => level);
  const words = { from: number(Math.min(...levels)), to: number(Math.max(...levels)) };
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "sparkline", role: "img", "aria-label": text("trend", words) },
    svg("line", { class: "zero", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    svg("polygon", { points: `${x(points[0][0])},${HEIGHT} ${path} ${WIDTH},${HEIGHT}` }),
    svg("polyline", { points: path }));
};

/** Whether the consumption is known: a bucket that was full in every sample hides it. */
export const isBurnKnown = (bucket) => bucket.burn_rates.length > 0 && !bucket.burn_rates[0].is_upper_bound;

/** The burn rate; unknown if the bucket was full in every sample. */
export const burn = (bucket) => {
  if (!isBurnKnown(bucket)) return text("unknown");
  const perMinute = bucket.burn_rates[0].expected_milli_per_minute / 1000;
  return text("burnUnit", { rate: number(perMinute, perMinute < 10 ? 1 : 0) });
};

/** When the bucket will be empty, in a few words. */
export const emptyIn = (bucket) => {
  if (bucket.level <= 0) return text("emptyNow");
  const forecast = bucket.time_to_empty;
  if (forecast?.expected_us != null) return duration(forecast.expected_us);
  return isBurnKnown(bucket) ? text("notAtThisRate") : text("unknown");
};

/** How long until the bucket is full again if nothing more is consumed. */
export const recovery = (bucket) => {
  if (bucket.recovery_us === null) return text("never");
  return bucket.recovery_us === 0 ? text("fullNow") : duration(bucket.recovery_us);
};

export const forecastSentence = (bucket) => {
  const forecast = bucket.time_to_empty;
  if (bucket.level <= 0) return text("emptyNow");
  if (forecast?.expected_us == null) return isBurnKnown(bucket) ? text("notAtThisRate") : `${text("unknown")}: ${text("burnUnknownWhy")}`;
  const words = {
    expected: duration(forecast.expected_us),
    earliest: duration(forecast.earliest_us),
    latest: forecast.latest_us === null ? "" : duration(forecast.latest_us),
    confidence: text(forecast.confidence),
  };
  return text(forecast.latest_us === null ? "forecastOpen" : "forecastText", words);
};

/** What changed in a participant's limits. */
const changeSentence = (kind) => {
  const refill = ([tokens, periodUs]) => text("refillText", { tokens: number(tokens), period: duration(periodUs) });
  const shown = { category: (value) => value, capacity: number, refill }[kind.change] ?? (() => "");
  return text(`changed_${kind.change}`, { policy: kind.policy ?? "", from: shown(kind.from), to: shown(kind.to) });
};

/** A sentence with the words of another system, which are English: a page in another language leaves them out. */
export const withCause = (sentence, cause) => (language() === "en" && cause ? `${sentence}: ${cause}` : sentence);

/** Why the last poll of a participant failed; null if it did not. */
export const pollError = (status) => {
  if (!status?.last_error) return null;
  return language() === "en" ? status.last_error : text(`poll_${status.last_error_label ?? "other"}`);
};

const via = (kind) => (kind.via === "pagerduty" ? text("viaPagerDuty") : "");

/** What a silence covers. The monitor itself stands for every participant. */
const silencedWhat = (event) => [event.participant === "monitor" ? "" : event.participant, event.policy].filter(Boolean).join(" ") || text("everything");

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
    case "storage_failed": case "storage_still_failing": return withCause(text("storageFailed"), kind.cause);
    case "acknowledged": return text("acknowledgedText", { policy, by: kind.by, via: via(kind) });
    case "unacknowledged": return text("unacknowledgedText", { policy, by: kind.by, via: via(kind) });
    case "closed": return text("closedText", { policy, by: kind.by, via: via(kind), level });
    case "silenced": return text("silencedText", { what: silencedWhat(event), by: kind.by, time: time(kind.until_us, nowUs), severity: text(kind.up_to) });
    case "silence_ended": return text("silenceEndedText", { what: silencedWhat(event), by: kind.by });
    case "storage_recovered": return text("storageRecovered");
    case "changed": return changeSentence(kind);
    default: return text("otherText", { policy, kind: kind.type });
  }
};

/** An event as a row: time, what it did, the sentence, and whom it concerns. */
export const eventRow = (event, nowUs, isLinked = true) =>
  el("li", { class: event.severity },
    el("time", { datetime: new Date(event.at_us / 1000).toISOString(), text: dateTime(event.at_us) }),
    eventBadge(event),
    el("span", { class: "what" }, event.policy && isLinked ? policyLink(event.participant, event.policy, sentence(event, nowUs)) : sentence(event, nowUs)),
    el("span", {}, isLinked ? el("span", { class: "quiet", text: event.participant }) : "",
      event.silenced_by ? el("span", { class: "tag", text: text("silenced") }) : ""));

const needsAttention = (bucket) => bucket.severity !== "NORMAL" || bucket.is_predicted;

/** What needs attention across all participants, the most urgent first; `update` rebuilds it only when
 * something has changed, and never while one of its selects is open. */
export const attention = (model) => {
  const root = el("div");
  let shown = "";
  const line = (bucket) => {
    const level = bar();
    level.update(bucket);
    const detail = [
      text("tokensLeft", { level: number(bucket.level), capacity: number(bucket.capacity) }),
      bucket.level > 0 && bucket.time_to_empty?.expected_us != null ? text("emptyInAbout", { time: duration(bucket.time_to_empty.expected_us) }) : "",
      bucket.recovery_us > 0 ? text("recoveryIn", { time: duration(bucket.recovery_us) }) : "",
      bucket.severity === "NORMAL" ? "" : text("since", { time: time(bucket.since_us, model.nowUs()) }),
    ];
    return el("li", { class: bucket.severity, "data-policy": bucket.policy },
      bucket.severity === "NORMAL" ? badge("WARNING", "◷", text("predicted")) : severityBadge(bucket.severity),
      el("span", { class: "what" }, policyLink(bucket.participant, bucket.policy), el("span", { class: "quiet", text: ` ${bucket.participant}` }),
        el("small", { text: detail.filter(Boolean).join(" · ") })),
      level.root,
      actions(model, bucket.participant, bucket.policy, bucket.severity, bucket));
  };
  const update = () => {
    const participants = model.states?.participants ?? [];
    const found = participants.flatMap((state) => state.buckets.filter(needsAttention).map((bucket) => ({ ...bucket, recent: undefined, participant: state.participant })));
    // Nothing is known about participants whose answers are old, or that cannot be read at all.
    const errorOf = (state) => pollError(model.status?.participants?.[state.participant]);
    const stale = participants.filter((state) => state.is_stale && (state.last_poll_us !== null || errorOf(state)));
    const key = JSON.stringify([found, stale.map((state) => [state.participant, errorOf(state), state.stale_alert])]);
    if (key === shown || root.contains(document.activeElement?.closest?.("select"))) return;
    // A button that has the focus keeps it when its line is drawn again.
    const focused = root.contains(document.activeElement) ? [document.activeElement.closest("li")?.dataset.policy, document.activeElement.className] : null;
    shown = key;
    found.sort(byUrgency);
    if (!found.length && !stale.length) {
      root.replaceChildren(el("p", { class: "calm", text: text("nothing") }));
      return;
    }
    root.replaceChildren(el("ul", { class: "attention" },
      found.filter((bucket) => bucket.severity === "EXHAUSTED").slice(0, 50).map(line),
      stale.map((state) => el("li", { class: "CRITICAL", "data-policy": `stale ${state.participant}` }, badge("CRITICAL", "?", text("unknown")),
        el("span", { class: "what wide" }, el("strong", { text: text("participant", { participant: state.participant }) }),
          el("small", { text: errorOf(state) ? text("pollError", { error: errorOf(state) }) : text("stale") })),
        actions(model, state.participant, undefined, "CRITICAL", state.stale_alert))),
      found.filter((bucket) => bucket.severity !== "EXHAUSTED").slice(0, 50).map(line)),
      found.length > 50 ? el("p", { class: "muted", text: text("andMore", { count: number(found.length - 50) }) }) : "");
    if (focused?.[0]) {
      const row = [...root.querySelectorAll("li")].find((item) => item.dataset.policy === focused[0]);
      (row?.querySelector(`.${focused[1] || "none"}`) ?? row?.querySelector("a"))?.focus();
    }
  };
  return { root, update };
};

/** Calls `action` now, or once when `ms` have passed since it was last called. */
export const atMostEvery = (ms, action) => {
  let last = -Infinity;
  let timer = null;
  const run = () => { timer = null; last = performance.now(); action(); };
  const call = () => {
    if (timer !== null) return;
    const wait = last + ms - performance.now();
    if (wait <= 0) run();
    else timer = setTimeout(run, wait);
  };
  call.stop = () => clearTimeout(timer);
  return call;
};
