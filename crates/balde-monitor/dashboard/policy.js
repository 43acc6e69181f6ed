// The page of one policy: its bucket now, and its history as a chart.

import { get } from "./api.js";
import { el, setText } from "./dom.js";
import { dateTime, duration, number, percent, tick } from "./format.js";
import { actions } from "./operator.js";
import { bar, breakable, burn, eventRow, forecastSentence, severityBadge, recovery } from "./parts.js";
import { text } from "./texts.js";

const HOUR = 3600e6;
const RANGES = { range1h: HOUR, range24h: 24 * HOUR, range7d: 7 * 24 * HOUR, range30d: 30 * 24 * HOUR, range1y: 366 * 24 * HOUR };
const HEIGHT = 340;

/** How often a chart is loaded again: a year does not change within seconds. */
const refreshMs = (range) => (range === "range1h" ? 5000 : range === "range24h" ? 15000 : 60000);

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Points as uPlot's columns, with a hole where there was no data. */
const columns = (series) => {
  const rows = series.points.map((p) => [p.at_us / 1e6, p.level, p.level_min, p.level_max, p.capacity]);
  for (const gap of series.gaps) rows.push([(gap.from_us + gap.until_us) / 2e6, null, null, null, null]);
  rows.sort((a, b) => a[0] - b[0]);
  return [0, 1, 2, 3, 4].map((index) => rows.map((row) => row[index]));
};

/** The spans in which the bucket was seen without tokens, so that requests were refused. */
const emptySpans = ([times, , lowest]) => {
  const spans = [];
  let from = null;
  times.forEach((at, index) => {
    const isEmpty = lowest[index] !== null && lowest[index] <= 0;
    if (isEmpty && from === null) from = at;
    if (!isEmpty && from !== null) { spans.push([from, at]); from = null; }
  });
  if (from !== null) spans.push([from, times.at(-1)]);
  return spans;
};

/** Shades the spans without tokens, behind everything else. */
const drawSpans = (spans) => (plot) => {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.fillStyle = colour("--refused");
  for (const [from, until] of spans) {
    const left = Math.max(bbox.left, plot.valToPos(from, "x", true));
    const right = Math.min(bbox.left + bbox.width, plot.valToPos(until, "x", true));
    if (right >= left) ctx.fillRect(left, bbox.top, Math.max(2 * devicePixelRatio, right - left), bbox.height);
  }
  ctx.restore();
};

const MARKS = { raised: "▲", resolved: "✓", predicted: "◷" };

/** Marks alerts with a line and a symbol: ▲ raised, ◷ forecast, ✓ over. */
const drawMarks = (marks) => (plot) => {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.textAlign = "center";
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  for (const { at, kind, name } of marks) {
    const x = plot.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = colour(name);
    ctx.fillStyle = colour(name);
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(kind === "predicted" ? [3, 3] : []);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(MARKS[kind], x, bbox.top - 4 * devicePixelRatio);
  }
  ctx.restore();
};

const chart = (host, data, bucket, marks, refusals) => {
  const line = (label, stroke, extra = {}) => ({ label, stroke, width: 1, points: { show: false }, value: (_, v) => (v == null ? "–" : number(Math.round(v))), ...extra });
  const isRolledUp = data[0].some((_, index) => data[2][index] !== data[1][index] || data[3][index] !== data[1][index]);
  const rows = [data[0], data[1]];
  const series = [
    { label: text("chartTime"), value: (_, v) => (v == null ? "–" : dateTime(v * 1e6)) },
    line(text("chartLevel"), colour("--line-level"), { width: 2, fill: isRolledUp ? undefined : colour("--area") }),
  ];
  const add = (label, stroke, values, extra) => {
    series.push(line(label, stroke, extra));
    rows.push(values);
  };
  if (isRolledUp) {
    add(text("chartLow"), colour("--line-edge"), data[2]);
    add(text("chartHigh"), colour("--line-edge"), data[3]);
  }
  add(text("chartCapacity"), colour("--muted"), data[4], { dash: [2, 4] });
  const share = (basisPoints) => data[4].map((capacity) => (capacity === null ? null : (capacity * basisPoints) / 10000));
  if (bucket) {
    add(text("chartWarning"), colour("--warning"), share(bucket.warning_bp), { dash: [8, 4] });
    add(text("chartCritical"), colour("--critical"), share(bucket.critical_bp), { dash: [4, 3] });
  }
  const hasRefusals = refusals.length > 0;
  if (hasRefusals) {
    // The gateway's count at or before each time; the first is from when this monitor began to ask.
    let index = 0;
    let count = null;
    const counts = data[0].map((at) => {
      while (index < refusals.length && refusals[index][0] / 1e6 <= at) { count = refusals[index][1]; index += 1; }
      return count;
    });
    add(text("chartRefused"), colour("--exhausted"), counts, { scale: "refused", paths: uPlot.paths.stepped({ align: 1 }), width: 1.5 });
  }
  const forecast = bucket?.time_to_empty;
  const last = data[0].length - 1;
  if (forecast?.expected_us != null && last >= 0 && bucket.level > 0) {
    // The forecast is a line from the newest sample to the time at which the bucket is empty.
    const from = data[0][last];
    const span = Math.min(forecast.expected_us / 1e6, (from - data[0][0]) / 2 || Infinity);
    const end = bucket.level * (1 - span / (forecast.expected_us / 1e6));
    rows.forEach((row, index) => { rows[index] = [...row, index === 0 ? from + span : null]; });
    add(text("chartForecast"), colour("--exhausted"), [...rows[0].slice(2).map(() => null), bucket.level, end], { dash: [3, 3], width: 2 });
  }
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const options = {
    width: Math.max(260, host.clientWidth), height: HEIGHT,
    padding: [18, hasRefusals ? 0 : 12, 0, 0],
    series,
    bands: isRolledUp ? [{ series: [3, 2], fill: colour("--band") }] : [],
    axes: [
      { ...axis, space: 75, values: (_, ticks, __, ___, step) => ticks.map((at) => tick(at, step)) },
      { ...axis, size: 62, values: (_, ticks) => ticks.map((level) => number(level)) },
      ...(hasRefusals ? [{ ...axis, scale: "refused", side: 1, size: 44, label: text("chartRefused"), labelSize: 20, grid: { show: false }, values: (_, ticks) => ticks.map((count) => (Number.isInteger(count) ? number(count) : "")) }] : []),
    ],
    scales: {
      // An alert may be newer than the newest point, which can be a day old.
      x: { range: (_, low, high) => (low == null ? [null, null] : [low, Math.max(high, ...marks.map((mark) => mark.at))]) },
      y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high) * 1.05] },
      refused: { range: (_, __, high) => [0, Math.max(4, high ?? 0) * 1.05] },
    },
    hooks: { drawClear: [drawSpans(emptySpans(data))], draw: [drawMarks(marks)] },
    legend: { live: true },
  };
  return new uPlot(options, rows, host);
};

export const policyPage = (main, model, participant, policy, rangeName = "range24h") => {
  let range = rangeName in RANGES ? rangeName : "range24h";
  const level = bar();
  const facts = el("dl", { class: "facts" });
  const state = el("div", { class: "state" });
  const host = el("div", { class: "chart", role: "img" });
  const note = el("p", { class: "muted" });
  const keys = el("ul", { class: "keys" },
    el("li", {}, `▲ ${text("keyRaised")}`), el("li", {}, `◷ ${text("keyPredicted")}`), el("li", {}, `✓ ${text("keyOver")}`),
    el("li", {}, el("span", { class: "shade", "aria-hidden": "true" }), ` ${text("keyEmpty")}`));
  const alerts = el("ol", { class: "events" });
  const choices = el("div", { class: "ranges", role: "group", "aria-label": text("range") });
  main.replaceChildren(
    el("p", {}, el("a", { href: "#/", text: `← ${text("navBuckets")}` })),
    el("h1", {}, breakable(policy)), el("p", { class: "muted", text: text("participant", { participant }) }),
    el("section", { class: "card large", "aria-label": text("now") }, level.root, state, facts),
    el("section", { class: "card" }, el("h2", { text: text("history") }), choices, host, keys, note),
    el("section", { class: "card" }, el("h2", { text: text("alertsOf") }), alerts));

  let plot = null;
  let timer = null;
  let isOpen = true;
  const bucketNow = () => model.states?.participants.find((p) => p.participant === participant)?.buckets.find((b) => b.policy === policy);

  const drawChoices = () => choices.replaceChildren(...Object.keys(RANGES).map((name) =>
    el("button", { type: "button", "aria-pressed": String(name === range), text: text(name), "data-range": name, onclick: () => {
      range = name;
      for (const button of choices.children) button.setAttribute("aria-pressed", String(button.dataset.range === range));
      load();
    } })));

  const draw = (series, events, refusals, wanted) => {
    plot?.destroy();
    plot = null;
    host.replaceChildren();
    if (!series.points.length) {
      host.setAttribute("aria-label", text("chartEmpty"));
      note.textContent = text("chartEmpty");
      return;
    }
    const marks = events.filter((event) => event.kind.type in MARKS).map((event) => ({
      at: event.at_us / 1e6, kind: event.kind.type,
      name: event.kind.type === "resolved" ? "--normal" : `--${event.severity.toLowerCase()}` }));
    plot = chart(host, columns(series), bucketNow(), marks, refusals);
    let [low, high] = [Infinity, -Infinity];
    for (const point of series.points) { low = Math.min(low, point.level_min); high = Math.max(high, point.level_max); }
    const words = { policy, range: text(wanted), low: number(low), high: number(high), last: number(series.points.at(-1).level) };
    host.setAttribute("aria-label", text("chartLabel", words));
    note.textContent = `${text("chartLabel", words)} ${text(`resolution_${series.resolution}`)}`
      + (series.gaps.length ? ` ${text("chartGaps", { count: number(series.gaps.length) })}` : "");
  };

  const load = async () => {
    clearTimeout(timer);
    const wanted = range;
    const began = performance.now();
    const nowUs = Math.round(model.nowUs());
    const fromUs = Math.max(0, nowUs - RANGES[wanted]);
    try {
      const hasGateway = model.status?.gateways?.[participant] !== undefined;
      const [series, events, refusals] = await Promise.all([
        get("/api/v1/history", { participant, policy, from_us: fromUs, until_us: nowUs + 1, points: 2000 }),
        get("/api/v1/alerts", { participant, policy, from_us: fromUs, limit: 200 }),
        hasGateway ? get("/api/v1/refusals", { participant, policy }) : [],
      ]);
      if (!isOpen || wanted !== range) return;
      draw(series, events, refusals, wanted);
      if (series.isFromMemory) note.textContent = `${text("fromMemory")} ${note.textContent}`;
      host.dataset.points = series.points.length;
      host.dataset.range = wanted;
      host.dataset.ms = Math.round(performance.now() - began);
      alerts.replaceChildren(...(events.length ? events.slice(0, 50).map((event) => eventRow(event, nowUs, false)) : [el("li", { class: "whole", text: text("noAlerts") })]));
    } catch (error) {
      if (isOpen && wanted === range) note.textContent = text("failed", { detail: error.message });
    }
    if (isOpen && wanted === range) timer = setTimeout(load, refreshMs(range));
  };

  const fact = (name, value) => [el("dt", { text: name }), el("dd", { text: value })];
  let stateKey = "";
  let shown = null;
  const ages = el("dd");
  const update = () => {
    const bucket = bucketNow();
    if (!bucket) {
      state.replaceChildren(el("span", { class: "badge unknown", text: `? ${text("unknown")}` }), el("span", { text: text("notListed") }));
      level.root.hidden = true;
      stateKey = "";
      return;
    }
    level.root.hidden = false;
    if (bucket === shown && stateKey) return;
    shown = bucket;
    level.update(bucket);
    const key = JSON.stringify([bucket.severity, bucket.acknowledged, bucket.silenced, bucket.episode, bucket.is_predicted]);
    if (key !== stateKey && !state.contains(document.activeElement?.closest?.("select"))) {
      stateKey = key;
      state.replaceChildren(severityBadge(bucket.severity),
        bucket.is_predicted ? el("span", { class: "tag", text: text("predicted") }) : "",
        bucket.severity === "NORMAL" ? "" : el("span", { class: "quiet", text: text("since", { time: dateTime(bucket.since_us) }) }),
        actions(model, participant, policy, bucket.severity, bucket));
    }
    const gateway = model.status?.gateways?.[participant];
    const refused = gateway?.policies?.find((row) => row.policy === policy);
    facts.replaceChildren(
      ...fact(text("tokens"), `${number(bucket.level)} / ${number(bucket.capacity)} (${percent(bucket.remaining_bp)} %)`),
      ...fact(text("limitLabel"), text("limit", { capacity: number(bucket.capacity), refill: number(bucket.refill_tokens), period: duration(bucket.period_us) })
        + (bucket.fill_us === null ? "" : `; ${text("fill", { time: duration(bucket.fill_us) })}`)),
      ...fact(text("burn"), burn(bucket)),
      ...fact(text("emptyIn"), forecastSentence(bucket)),
      ...fact(text("recovery"), recovery(bucket)),
      ...(refused ? fact(text("refusedByGateway"), text("refusedCount", { count: number(refused.refusals), minutes: number(gateway.refusals_minutes) })) : []),
      el("dt", { text: text("answer") }), ages);
    tickAge();
  };
  const tickAge = () => { if (shown) setText(ages, text("ago", { age: duration(model.nowUs() - shown.sampled_us) })); };
  drawChoices();
  update();
  load();
  const resize = new ResizeObserver(() => {
    const width = Math.max(260, host.clientWidth);
    if (plot && plot.width !== width) plot.setSize({ width, height: HEIGHT });
  });
  resize.observe(host);
  return { update, tick: tickAge, close: () => { isOpen = false; clearTimeout(timer); resize.disconnect(); plot?.destroy(); } };
};
