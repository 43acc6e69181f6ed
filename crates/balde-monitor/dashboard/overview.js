// The first page: what needs attention, then every bucket of every participant.

import { el, setText } from "./dom.js";
import { duration, number, time } from "./format.js";
import { RANK, actions, bar, burn, emptyIn, forecastSentence, policyLink, severityBadge, sparkline } from "./parts.js";
import { text } from "./texts.js";

const order = (a, b) =>
  RANK[a.severity] - RANK[b.severity] || Number(b.is_predicted) - Number(a.is_predicted) ||
  a.remaining_bp - b.remaining_bp || a.policy.localeCompare(b.policy);

/** One row of the table, kept while its bucket exists and changed in place. */
const bucketRow = (participant, policy) => {
  const level = bar();
  const cells = {
    tokens: el("td", { class: "number", role: "cell" }),
    state: el("td", { role: "cell" }),
    burn: el("td", { class: "number", role: "cell" }),
    empty: el("td", { role: "cell" }),
    trend: el("td", { role: "cell", class: "trend" }),
  };
  const row = el("tr", { role: "row", "data-policy": policy },
    el("th", { scope: "row", role: "rowheader" }, policyLink(participant, policy)),
    el("td", { class: "level", role: "cell" }, level.root),
    cells.tokens, cells.state, cells.burn, cells.empty, cells.trend);
  let shown = "";
  const update = (bucket, nowUs, labels) => {
    const key = JSON.stringify(bucket) + labels.join();
    if (key === shown) return;
    shown = key;
    row.className = bucket.severity;
    level.update(bucket);
    for (const [index, cell] of Object.values(cells).entries()) cell.dataset.label = labels[index];
    setText(cells.tokens, `${number(bucket.level)} / ${number(bucket.capacity)}`);
    cells.state.replaceChildren(severityBadge(bucket.severity),
      bucket.is_predicted ? el("span", { class: "tag", text: text("predicted") }) : "",
      bucket.acknowledged ? el("span", { class: "tag", text: text("acknowledged") }) : "");
    setText(cells.burn, burn(bucket));
    cells.burn.title = bucket.burn_rates[0]?.is_upper_bound ? text("burnUnknownWhy") : "";
    setText(cells.empty, emptyIn(bucket));
    cells.empty.title = forecastSentence(bucket.time_to_empty);
    const line = sparkline(bucket, nowUs);
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
  const root = el("section", { "data-participant": participant }, title, facts, problems,
    el("table", { role: "table", class: "buckets" }, el("thead", { role: "rowgroup" }, head), body));
  const rows = new Map();
  const update = (state, model, isShown) => {
    const labels = ["tokens", "state", "burn", "emptyIn", "lastHour"].map((key) => text(key));
    const columns = [text("policy"), text("level"), ...labels];
    if (head.textContent !== columns.join("")) {
      head.replaceChildren(...columns.map((name, index) =>
        el("th", { scope: "col", role: "columnheader", class: index === 2 || index === 4 ? "number" : null, text: name })));
    }
    setText(title, text("participant", { participant }) + (state.category ? `, ${text("category", { category: state.category })}` : ""));
    setText(facts, state.last_poll_us === null ? text("noAnswer") : text("answerAge", { age: duration(model.nowUs() - state.last_poll_us) }));
    const error = model.status?.participants?.[participant]?.last_error;
    problems.replaceChildren(
      state.is_stale ? el("p", { class: "problem", text: text("stale") }) : "",
      error ? el("p", { class: "problem", text: text("pollError", { error }) }) : "");
    const buckets = [...state.buckets].sort(order).filter(isShown);
    const wanted = new Set(buckets.map((bucket) => bucket.policy));
    for (const [policy, { row }] of rows) {
      if (!wanted.has(policy)) { row.remove(); rows.delete(policy); }
    }
    buckets.forEach((bucket, index) => {
      if (!rows.has(bucket.policy)) rows.set(bucket.policy, bucketRow(participant, bucket.policy));
      const { row, update } = rows.get(bucket.policy);
      update(bucket, model.nowUs(), labels);
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    });
    root.hidden = buckets.length === 0 && state.buckets.length > 0;
  };
  return { root, update };
};

const needsAttention = (bucket) => bucket.severity !== "NORMAL" || bucket.is_predicted;

const attentionList = (model) => {
  const found = model.states.participants.flatMap((state) => state.buckets.filter(needsAttention).map((bucket) => ({ ...bucket, participant: state.participant })));
  found.sort(order);
  const stale = model.states.participants.filter((state) => state.is_stale);
  if (!found.length && !stale.length) return [el("p", { class: "calm", text: text("nothing") })];
  const several = model.states.participants.length > 1;
  const line = (bucket) => el("li", { class: bucket.severity, "data-policy": bucket.policy },
    severityBadge(bucket.severity),
    el("span", { class: "what" },
      policyLink(bucket.participant, bucket.policy, several ? `${bucket.participant} ${bucket.policy}` : bucket.policy),
      ` ${number(bucket.level)} / ${number(bucket.capacity)}`,
      bucket.level > 0 && bucket.time_to_empty?.expected_us != null ? `, ${text("emptyIn").toLowerCase()} ${duration(bucket.time_to_empty.expected_us)}` : "",
      `, ${text("since", { time: time(bucket.since_us, model.nowUs()) })}`),
    bucket.acknowledged
      ? el("span", { class: "tag", text: text("acknowledgedBy", { by: bucket.acknowledged.by, time: time(bucket.acknowledged.at_us, model.nowUs()) }) })
      : bucket.severity === "NORMAL" ? "" : actions(model, bucket.participant, bucket.policy, bucket.severity, bucket.episode));
  return [el("ul", { class: "attention" },
    stale.map((state) => el("li", { class: "EXHAUSTED" }, el("strong", { text: text("participant", { participant: state.participant }) }), ` ${text("stale")}`)),
    found.slice(0, 50).map(line))];
};

export const overview = (main, model) => {
  const attention = el("div");
  const filter = el("input", { type: "search", id: "filter", "aria-label": text("filter"), placeholder: text("filter") });
  const severity = el("select", { "aria-label": text("severityLabel") }, el("option", { value: "", text: text("allSeverities") }),
    Object.keys(RANK).map((name) => el("option", { value: name, text: text(name) })));
  const sections = new Map();
  const list = el("div");
  main.replaceChildren(
    el("section", {}, el("h1", { text: text("attention") }), attention),
    el("div", { class: "filters" }, filter, severity), list);
  let attentionKey = "";
  const update = () => {
    if (!model.states) return;
    // Rebuilding the list would close an open select, so it is rebuilt only when something changed.
    const key = JSON.stringify(model.states.participants.map((s) => [s.participant, s.is_stale, s.buckets.filter(needsAttention)]));
    if (key !== attentionKey && !attention.contains(document.activeElement?.closest?.("select"))) {
      attentionKey = key;
      attention.replaceChildren(...attentionList(model));
    }
    const wanted = filter.value.trim().toUpperCase();
    const isShown = (bucket) => bucket.policy.toUpperCase().includes(wanted) && (!severity.value || bucket.severity === severity.value);
    const names = new Set(model.states.participants.map((state) => state.participant));
    for (const [name, { root }] of sections) {
      if (!names.has(name)) { root.remove(); sections.delete(name); }
    }
    for (const state of model.states.participants) {
      if (!sections.has(state.participant)) {
        const section = participantSection(state.participant);
        sections.set(state.participant, section);
        list.append(section.root);
      }
      sections.get(state.participant).update(state, model, isShown);
    }
  };
  filter.addEventListener("input", update);
  severity.addEventListener("change", update);
  update();
  return { update, tick: update };
};
