"use strict";
// Every text is set through textContent, because policy names come from the server that is polled.

const EVERY_MS = 1000;
const byId = (id) => document.getElementById(id);
const made = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};
const numbers = new Intl.NumberFormat("en");
const clock = (us) => new Date(us / 1000).toLocaleTimeString();

const span = (us) => {
  const s = Math.round(us / 1e6);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${Math.round(s / 3600)} h`;
};

const timeToEmpty = (bucket) => {
  if (bucket.level <= 0) return "empty";
  const forecast = bucket.time_to_empty;
  if (!forecast || forecast.expected_us === null) return "–";
  return `${span(forecast.expected_us)} (${forecast.confidence})`;
};

// For a bucket that was full in every sample the rate is only an upper bound.
const burn = (bucket) => {
  if (!bucket.burn_rates.length) return "–";
  const [shortest] = bucket.burn_rates;
  const rate = numbers.format(Math.round(shortest.expected_milli_per_minute / 1000));
  return shortest.is_upper_bound ? `≤ ${rate}` : rate;
};

const row = (bucket) => {
  const line = made("tr", bucket.severity);
  line.dataset.policy = bucket.policy;
  line.append(made("td", "", bucket.policy));
  const cell = made("td", "bar");
  const trough = made("div", "trough");
  const fill = made("div", "fill");
  const percent = Math.max(0, Math.min(100, bucket.remaining_bp / 100));
  fill.style.width = `${percent}%`;
  trough.title = `${percent} % left`;
  trough.append(fill);
  cell.append(trough);
  line.append(cell);
  line.append(made("td", "number", `${numbers.format(bucket.level)} / ${numbers.format(bucket.capacity)}`));
  line.append(made("td", "severity", bucket.severity + (bucket.is_predicted ? " (predicted)" : "")));
  line.append(made("td", "number", burn(bucket)));
  line.append(made("td", "", timeToEmpty(bucket)));
  return line;
};

const heading = () => {
  const line = made("tr");
  for (const [text, name] of [["Policy"], ["Remaining"], ["Tokens", "number"], ["Severity"], ["Burn rate (tokens/min)", "number"], ["Empty in"]]) {
    const cell = made("th", name, text);
    cell.scope = "col";
    line.append(cell);
  }
  return line;
};

const participant = (state) => {
  const section = made("section");
  const title = made("h2", "", `Participant ${state.participant}` + (state.category ? `, category ${state.category}` : ""));
  section.append(title);
  if (state.is_stale) section.append(made("p", "stale", "Stale: the newest poll is too old, so the numbers below may be wrong."));
  const table = made("table");
  const head = made("thead");
  head.append(heading());
  const body = made("tbody");
  // The worst first.
  const rank = { EXHAUSTED: 0, CRITICAL: 1, WARNING: 2, NORMAL: 3 };
  const order = (a, b) => rank[a.severity] - rank[b.severity] || a.remaining_bp - b.remaining_bp || a.policy.localeCompare(b.policy);
  body.append(...[...state.buckets].sort(order).map(row));
  table.append(head, body);
  section.append(table);
  return section;
};

const describe = (event) => {
  const kind = event.kind;
  const level = event.level === null ? "" : `, ${numbers.format(event.level)} of ${numbers.format(event.capacity)} left`;
  switch (kind.type) {
    case "raised": return `${kind.to}${level}`;
    case "lowered": return `down to ${kind.to}${level}`;
    case "resolved": return `resolved${level}`;
    case "reminder": return `still ${event.severity}${level}`;
    case "predicted": return `predicted to be empty at ${clock(kind.empty_at_us)} (${kind.confidence} confidence)`;
    case "forecast_over": return kind.result === "came_true" ? "the predicted emptying happened" : "no longer predicted to be empty";
    case "stale": case "still_stale": return "no successful poll for too long";
    case "fresh": return "polls succeed again";
    case "changed": return `changed: ${kind.change}`;
    case "storage_failed": case "storage_still_failing": return `cannot store: ${kind.cause}`;
    case "storage_recovered": return "stores again";
    default: return kind.type;
  }
};

const alertLine = (event) => {
  const line = made("li", event.severity);
  line.append(made("time", "", clock(event.at_us)));
  line.append(made("span", "severity", event.policy || event.participant));
  line.append(made("span", "", ` ${describe(event)}`));
  return line;
};

const json = async (path) => {
  const response = await fetch(path, { headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
};

// While the database cannot be read, the list of alerts stays as it was.
const recentAlerts = () => json("/api/v1/alerts?limit=20").catch(() => null);

const storage = (failure) => {
  const line = byId("storage");
  line.hidden = !failure;
  if (!failure) return;
  line.textContent = `The database accepts no writes since ${clock(failure.since_us)}: ${failure.cause}. ` +
    `${numbers.format(failure.unstored_polls)} polls wait in memory.`;
};

const draw = async () => {
  try {
    const [states, alerts] = await Promise.all([json("/api/v1/states"), recentAlerts()]);
    storage(states.storage_failure);
    byId("note").textContent = states.note;
    byId("now").textContent = `as of ${clock(states.now_us)}`;
    byId("now").className = "";
    byId("participants").replaceChildren(...states.participants.map(participant));
    if (alerts) byId("alerts").replaceChildren(...alerts.map(alertLine));
  } catch (error) {
    byId("now").textContent = `the monitor does not respond: ${error.message}`;
    byId("now").className = "stale";
  }
  setTimeout(draw, EVERY_MS);
};

draw();
