// The first page: what needs attention, then every bucket of every participant.

import { el, setText } from "./dom.js";
import { duration, number } from "./format.js";
import { marks } from "./operator.js";
import { RANK, attention, bar, burn, byUrgency, emptyIn, forecastSentence, isBurnKnown, policyLink, pollError, recovery, severityBadge, sparkline } from "./parts.js";
import { text } from "./texts.js";

/** One row of the table, kept while its bucket exists and changed in place. */
const bucketRow = (model, participant, policy) => {
  const level = bar();
  const cells = {
    tokens: el("td", { class: "number", role: "cell" }),
    state: el("td", { role: "cell" }),
    burn: el("td", { class: "number", role: "cell" }),
    empty: el("td", { class: "empty", role: "cell" }),
    recovery: el("td", { class: "empty", role: "cell" }),
    trend: el("td", { role: "cell", class: "trend" }),
  };
  const row = el("tr", { role: "row", "data-policy": policy },
    el("th", { scope: "row", role: "rowheader" }, policyLink(participant, policy)),
    el("td", { class: "level", role: "cell" }, level.root),
    cells.tokens, cells.state, cells.burn, cells.empty, cells.recovery, cells.trend);
  let shown = null;
  let shownKey = "";
  const update = (bucket, labels, isStale) => {
    const key = `${isStale} ${labels.join()}`;
    // The model keeps the object of a bucket that has not changed.
    if (bucket === shown && key === shownKey) return;
    shown = bucket;
    shownKey = key;
    row.className = bucket.severity;
    level.update(bucket, isStale);
    for (const [index, cell] of Object.values(cells).entries()) cell.dataset.label = labels[index];
    setText(cells.tokens, `${number(bucket.level)} / ${number(bucket.capacity)}`);
    cells.state.replaceChildren(severityBadge(bucket.severity), " ",
      bucket.is_predicted ? el("span", { class: "tag", text: text("predicted") }) : "",
      ...marks(model, bucket));
    setText(cells.burn, burn(bucket));
    cells.burn.classList.toggle("quiet", !isBurnKnown(bucket));
    cells.burn.title = isBurnKnown(bucket) ? "" : text("burnUnknownWhy");
    setText(cells.empty, emptyIn(bucket));
    cells.empty.classList.toggle("quiet", bucket.level > 0 && bucket.time_to_empty?.expected_us == null);
    cells.empty.title = forecastSentence(bucket);
    setText(cells.recovery, recovery(bucket));
    cells.recovery.classList.toggle("quiet", bucket.recovery_us === 0);
    cells.recovery.title = text("recoveryHelp");
    const line = sparkline(bucket);
    cells.trend.replaceChildren(...(line ? [line] : []));
  };
  return { row, update };
};

const participantSection = (participant) => {
  const title = el("h2");
  const facts = el("p", { class: "facts" });
  const problems = el("div");
  const head = el("tr", { role: "row" });
  const body = el("tbody", { role: "rowgroup" });
  const root = el("section", { class: "card", "data-participant": participant }, title, facts, problems,
    el("table", { role: "table", class: "buckets stacked", hidden: true }, el("thead", { role: "rowgroup" }, head), body));
  const rows = new Map();
  let state = null;
  const tick = (model) => {
    if (!state) return;
    setText(facts, state.last_poll_us === null ? text("noAnswer") : text("answerAge", { age: duration(model.nowUs() - state.last_poll_us) }));
  };
  const update = (newest, model, isShown) => {
    state = newest;
    const labels = ["tokens", "state", "burn", "emptyIn", "recovery", "lastHour"].map((key) => text(key));
    const columns = [text("policy"), text("level"), ...labels];
    if (head.textContent !== columns.join("")) {
      head.replaceChildren(...columns.map((name, index) =>
        el("th", { scope: "col", role: "columnheader", class: index === 2 || index === 4 ? "number" : null, text: name })));
    }
    setText(title, text("participant", { participant }) + (state.category ? `, ${text("category", { category: state.category })}` : ""));
    tick(model);
    const error = pollError(model.status?.participants?.[participant]);
    problems.replaceChildren(
      state.is_stale && state.last_poll_us !== null ? el("p", { class: "problem", text: text("stale") }) : "",
      error ? el("p", { class: "problem", text: text("pollError", { error }) }) : "");
    const buckets = [...state.buckets].sort(byUrgency).filter(isShown);
    const wanted = new Set(buckets.map((bucket) => bucket.policy));
    for (const [policy, { row }] of rows) {
      if (!wanted.has(policy)) { row.remove(); rows.delete(policy); }
    }
    buckets.forEach((bucket, index) => {
      if (!rows.has(bucket.policy)) rows.set(bucket.policy, bucketRow(model, participant, bucket.policy));
      const { row, update } = rows.get(bucket.policy);
      update(bucket, labels, state.is_stale);
      if (body.children[index] !== row && !row.contains(document.activeElement)) body.insertBefore(row, body.children[index] ?? null);
    });
    body.parentElement.hidden = buckets.length === 0;
    root.hidden = buckets.length === 0 && state.buckets.length > 0;
  };
  return { root, update, tick };
};

/** How many buckets are in each state. A tile shows only those, and again all. */
const tiles = (onChoose) => {
  let chosen = "";
  const counts = {};
  const root = el("div", { class: "tiles", role: "group", "aria-label": text("severityLabel") },
    Object.keys(RANK).map((severity) => {
      const count = el("span", { class: "count" });
      const button = el("button", { type: "button", class: `tile ${severity} none`, "data-severity": severity, "aria-pressed": "false" }, count, severityBadge(severity));
      button.addEventListener("click", () => {
        chosen = chosen === severity ? "" : severity;
        for (const other of root.children) other.setAttribute("aria-pressed", String(other.dataset.severity === chosen));
        onChoose();
      });
      counts[severity] = { button, count };
      return button;
    }));
  const update = (states) => {
    for (const [severity, { button, count }] of Object.entries(counts)) {
      const found = states.participants.flatMap((state) => state.buckets).filter((bucket) => bucket.severity === severity).length;
      setText(count, number(found));
      button.classList.toggle("none", found === 0);
    }
  };
  return { root, update, chosen: () => chosen };
};

const INTRO = "balde-intro";

/** What the page shows, for somebody who sees it for the first time. */
const intro = () => {
  const root = el("details", { class: "card intro", open: localStorage.getItem(INTRO) !== "closed" },
    el("summary", { text: text("introTitle") }),
    el("ul", {}, ["introBar", "introMarks", "introForecast", "introAlert"].map((key) => el("li", { text: text(key) }))));
  root.addEventListener("toggle", () => localStorage.setItem(INTRO, root.open ? "open" : "closed"));
  return root;
};

export const overview = (main, model) => {
  const urgent = attention(model);
  const filter = el("input", { type: "search", id: "filter", "aria-label": text("filter"), placeholder: text("filter") });
  const counts = tiles(() => update());
  const sections = new Map();
  const list = el("div");
  main.replaceChildren(
    el("h1", { class: "hidden", text: text("navBuckets") }),
    counts.root,
    el("section", {}, el("h2", { text: text("attention") }), urgent.root),
    intro(),
    el("div", { class: "filters" }, filter, el("span", { class: "muted" }, el("kbd", { text: "/" }), ` ${text("filterKey")}`)), list);
  const update = () => {
    if (!model.states) return;
    counts.update(model.states);
    urgent.update();
    const wanted = filter.value.trim().toUpperCase();
    const isShown = (bucket) => bucket.policy.toUpperCase().includes(wanted) && (!counts.chosen() || bucket.severity === counts.chosen());
    const names = new Set(model.states.participants.map((state) => state.participant));
    for (const [name, { root }] of sections) {
      if (!names.has(name)) { root.remove(); sections.delete(name); }
    }
    // The participant with the most urgent bucket first. Not to know comes after exhausted.
    const worst = (state) => Math.min(state.is_stale ? 0.5 : 9, ...state.buckets.map((bucket) => RANK[bucket.severity] * 2 - Number(bucket.is_predicted)));
    const ordered = [...model.states.participants].sort((a, b) => worst(a) - worst(b) || a.participant.localeCompare(b.participant));
    ordered.forEach((state, index) => {
      if (!sections.has(state.participant)) sections.set(state.participant, participantSection(state.participant));
      const section = sections.get(state.participant);
      section.update(state, model, isShown);
      if (list.children[index] !== section.root && !section.root.contains(document.activeElement)) list.insertBefore(section.root, list.children[index] ?? null);
    });
  };
  filter.addEventListener("input", update);
  update();
  return { update, tick: () => sections.forEach((section) => section.tick(model)) };
};
