// The page of one policy: its bucket now, and its history as a chart.

import { get } from "./api.js";
import { el } from "./dom.js";
import { dateTime, duration, number, percent } from "./format.js";
import { actions, bar, burn, forecastSentence, sentence, severityBadge } from "./parts.js";
import { language, text } from "./texts.js";

const HOUR = 3600e6;
const RANGES = { range1h: HOUR, range24h: 24 * HOUR, range7d: 7 * 24 * HOUR, range30d: 30 * 24 * HOUR, range1y: 366 * 24 * HOUR };
const REFRESH_MS = 5000;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Points as uPlot's columns, with a hole where there was no data. */
const columns = (series) => {
  const rows = series.points.map((p) => [p.at_us / 1e6, p.level, p.level_min, p.level_max, p.capacity]);
  for (const gap of series.gaps) rows.push([(gap.from_us + gap.until_us) / 2e6, null, null, null, null]);
  rows.sort((a, b) => a[0] - b[0]);
  return [0, 1, 2, 3, 4].map((index) => rows.map((row) => row[index]));
};

const drawMarks = (marks) => (plot) => {
  const { ctx } = plot;
  ctx.save();
  for (const { at, kind, name } of marks) {
    const x = plot.valToPos(at, "x", true);
    if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
    ctx.strokeStyle = colour(name);
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(kind === "line" ? [] : [3, 3]);
    ctx.beginPath();
    ctx.moveTo(x, plot.bbox.top);
    ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
    ctx.stroke();
  }
  ctx.restore();
};

const chart = (host, data, bucket, marks) => {
  const line = (label, stroke, extra = {}) => ({ label, stroke, width: 1, points: { show: false }, value: (_, v) => (v == null ? "–" : number(Math.round(v))), ...extra });
  const constant = (value) => data[0].map(() => value);
  const withThresholds = [...data];
  const series = [
    { label: "", value: (_, v) => (v == null ? "–" : dateTime(v * 1e6)) },
    line(text("chartLevel"), colour("--line-level"), { width: 2 }),
    line(text("chartLow"), colour("--line-low")),
    line(text("chartHigh"), colour("--line-high")),
    line(text("chartCapacity"), colour("--muted"), { dash: [2, 4] }),
  ];
  const add = (label, stroke, values, extra) => {
    series.push(line(label, stroke, extra));
    withThresholds.push(values);
  };
  if (bucket) {
    add(text("chartWarning"), colour("--warning"), constant((bucket.capacity * bucket.warning_bp) / 10000), { dash: [6, 4] });
    add(text("chartCritical"), colour("--critical"), constant((bucket.capacity * bucket.critical_bp) / 10000), { dash: [6, 4] });
    const forecast = bucket.time_to_empty;
    const last = data[0].length - 1;
    if (forecast?.expected_us != null && last >= 0 && bucket.level > 0) {
      // The forecast is a line from the newest sample to the time at which the bucket is empty.
      const from = data[0][last];
      const span = Math.min(forecast.expected_us / 1e6, (from - data[0][0]) / 2 || Infinity);
      const end = bucket.level * (1 - span / (forecast.expected_us / 1e6));
      withThresholds[0] = [...data[0], from + span];
      for (let index = 1; index < withThresholds.length; index += 1) {
        const threshold = index > 4 ? withThresholds[index][last] : index === 4 ? data[4][last] : null;
        withThresholds[index] = [...withThresholds[index], threshold];
      }
      add(text("chartForecast"), colour("--exhausted"), [...constant(null).slice(0, -1), bucket.level, end], { dash: [3, 3], width: 2 });
    }
  }
  const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const options = {
    width: Math.max(280, host.clientWidth), height: 320,
    series,
    bands: [{ series: [3, 2], fill: colour("--band") }],
    axes: [
      { ...axis, values: (_, ticks, __, ___, step) => ticks.map((t) => new Intl.DateTimeFormat(language(), step >= 86400 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" }).format(t * 1000)) },
      { ...axis, size: 70, values: (_, ticks) => ticks.map((t) => number(t)) },
    ],
    scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high) * 1.05] } },
    hooks: { draw: [drawMarks(marks)] },
    legend: { live: true },
  };
  return new uPlot(options, withThresholds, host);
};

export const policyPage = (main, model, participant, policy, rangeName = "range24h") => {
  let range = rangeName in RANGES ? rangeName : "range24h";
  const level = bar();
  const facts = el("dl", { class: "facts" });
  const state = el("p", { class: "state" });
  const host = el("div", { class: "chart", role: "img" });
  const note = el("p", { class: "muted" });
  const alerts = el("ul", { class: "events" });
  const choices = el("div", { class: "ranges", role: "group", "aria-label": text("range") });
  main.replaceChildren(
    el("section", {},
      el("p", {}, el("a", { href: "#/", text: `← ${text("navBuckets")}` })),
      el("h1", { text: policy }), el("p", { class: "muted", text: text("participant", { participant }) }),
      el("div", { class: "large" }, level.root), state, facts, choices, host, note),
    el("section", {}, el("h2", { text: text("alertsOf") }), alerts));

  let plot = null;
  let timer = null;
  let isOpen = true;
  const bucketNow = () => model.states?.participants.find((p) => p.participant === participant)?.buckets.find((b) => b.policy === policy);

  const drawChoices = () => choices.replaceChildren(...Object.keys(RANGES).map((name) =>
    el("button", { type: "button", "aria-pressed": String(name === range), text: text(name), "data-range": name, onclick: () => { range = name; drawChoices(); load(); } })));

  const load = async () => {
    clearTimeout(timer);
    const wanted = range;
    const nowUs = Math.round(model.nowUs());
    try {
      const fromUs = Math.max(0, nowUs - RANGES[wanted]);
      const [series, events] = await Promise.all([
        get("/api/v1/history", { participant, policy, from_us: fromUs, until_us: nowUs + 1, points: 2000 }),
        get("/api/v1/alerts", { participant, policy, from_us: fromUs, limit: 200 }),
      ]);
      if (!isOpen || wanted !== range) return;
      plot?.destroy();
      plot = null;
      host.replaceChildren();
      const bucket = bucketNow();
      if (series.points.length) {
        const marks = events.filter((event) => ["raised", "resolved", "predicted"].includes(event.kind.type)).map((event) => ({
          at: event.at_us / 1e6, kind: event.kind.type === "predicted" ? "dashed" : "line",
          name: event.kind.type === "resolved" ? "--normal" : `--${event.severity.toLowerCase()}` }));
        plot = chart(host, columns(series), bucket, marks);
        host.dataset.points = series.points.length;
        host.dataset.range = wanted;
        const lows = series.points.map((p) => p.level_min);
        const highs = series.points.map((p) => p.level_max);
        const words = { policy, range: text(wanted), low: number(Math.min(...lows)), high: number(Math.max(...highs)), last: number(series.points.at(-1).level) };
        host.setAttribute("aria-label", text("chartLabel", words));
        note.textContent = text("chartLabel", words) + (series.gaps.length ? ` ${text("chartGaps", { count: number(series.gaps.length) })}.` : "");
      } else {
        host.setAttribute("aria-label", text("chartEmpty"));
        note.textContent = text("chartEmpty");
      }
      alerts.replaceChildren(...(events.length ? events.slice(0, 50).map((event) => el("li", { class: event.severity },
        el("time", { text: dateTime(event.at_us) }), " ", severityBadge(event.severity), ` ${sentence(event, nowUs)}`)) : [el("li", { text: text("noAlerts") })]));
    } catch (error) {
      note.textContent = text("failed", { detail: error.message });
    }
    if (isOpen) timer = setTimeout(load, REFRESH_MS);
  };

  const fact = (name, value) => [el("dt", { text: name }), el("dd", { text: value })];
  let stateKey = "";
  const update = () => {
    const bucket = bucketNow();
    if (!bucket) return;
    level.update(bucket);
    const key = JSON.stringify([bucket.severity, bucket.acknowledged, bucket.episode, bucket.is_predicted]);
    if (key !== stateKey) {
      stateKey = key;
      state.replaceChildren(severityBadge(bucket.severity),
        bucket.acknowledged ? el("span", { class: "tag", text: text("acknowledgedBy", { by: bucket.acknowledged.by, time: dateTime(bucket.acknowledged.at_us) }) })
          : bucket.severity === "NORMAL" ? "" : actions(model, participant, policy, bucket.severity, bucket.episode));
    }
    facts.replaceChildren(
      ...fact(text("tokens"), `${number(bucket.level)} / ${number(bucket.capacity)} (${percent(bucket.remaining_bp)} %)`),
      ...fact(text("state"), text("limit", { capacity: number(bucket.capacity), refill: number(bucket.refill_tokens), period: duration(bucket.period_us) })),
      ...fact(text("burn"), burn(bucket)),
      ...fact(text("emptyIn"), bucket.level <= 0 ? text("emptyNow") : forecastSentence(bucket.time_to_empty)));
  };
  drawChoices();
  update();
  load();
  const resize = new ResizeObserver(() => plot?.setSize({ width: Math.max(280, host.clientWidth), height: 320 }));
  resize.observe(host);
  return { update, tick: () => {}, close: () => { isOpen = false; clearTimeout(timer); resize.disconnect(); plot?.destroy(); } };
};
