// The page "Limits" of `balde serve`: decisions and refusals of each limit, protocols, keys and Redis, live.

import { el, setText, table } from "./dom.js";

const EVERY_MS = 2_000;
const TOKEN = "balde-token";

const rate = (value) => new Intl.NumberFormat("en", { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value);
const whole = (value) => new Intl.NumberFormat("en").format(value ?? 0);
const percent = (share) => `${new Intl.NumberFormat("en", { maximumFractionDigits: 1 }).format(100 * share)} %`;

/** Prometheus' text as a function: the sum of a metric's lines that have these labels. */
const parse = (text) => {
  const lines = new Map();
  for (const line of text.split("\n")) {
    const match = line.match(/^(\w+)(?:\{(.*)\})? (\S+)/);
    if (!match) continue;
    const [, name, labels = "", value] = match;
    const fields = Object.fromEntries([...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, field, text]) => [field, text]));
    if (!lines.has(name)) lines.set(name, []);
    lines.get(name).push([fields, Number(value)]);
  }
  const select = (name, wanted = {}) => (lines.get(name) ?? [])
    .filter(([fields]) => Object.entries(wanted).every(([field, value]) => fields[field] === value));
  const sum = (name, wanted) => select(name, wanted).reduce((total, [, value]) => total + value, 0);
  return { sum, values: (name, field) => [...new Set(select(name).map(([fields]) => fields[field]))] };
};

const connection = document.getElementById("connection");
const problems = document.getElementById("problems");
const main = document.getElementById("main");

class Unauthorized extends Error {}

const fetchWith = async (path) => {
  const token = sessionStorage.getItem(TOKEN);
  const response = await fetch(path, { cache: "no-store", headers: token ? { authorization: `Bearer ${token}` } : {} });
  if (response.status === 401) throw new Unauthorized();
  if (!response.ok) throw new Error(`${path} answers ${response.status}`);
  return response;
};

const read = async () => {
  const [metrics, limits] = await Promise.all([fetchWith("/metrics"), fetchWith("/limits")]);
  return { at: performance.now(), metrics: parse(await metrics.text()), ...await limits.json() };
};

/** Asks for the token of [state]. */
const askForToken = () => new Promise((given) => {
  const input = el("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const use = (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, input.value);
    given();
  };
  const isWrong = sessionStorage.getItem(TOKEN) !== null;
  main.replaceChildren(el("h1", { text: "Limits" }), el("form", { class: "token card", onsubmit: use },
    el("p", { text: isWrong ? "This token is wrong." : "This page needs the token of [state] in the service's file." }),
    el("label", { for: "token", text: "Token" }), input, el("button", { type: "submit", text: "Show" })));
  input.focus();
});

const tile = (name, value, state = "") => el("div", { class: `tile ${state}`, "data-tile": name },
  el("span", { class: "count", text: value }), el("span", { class: "muted", text: name }));

const number = (text) => ({ class: "number", text });

const card = (name, content, help) =>
  el("section", { class: "card" }, el("h2", { text: name }), help ? el("p", { class: "muted", text: help }) : null, content);

/** How much a metric grows in a second, between two readings. */
const growth = (now, last) => (name, labels) => {
  const seconds = (now.at - last.at) / 1000;
  return seconds > 0 ? Math.max(0, now.metrics.sum(name, labels) - last.metrics.sum(name, labels)) / seconds : 0;
};

const limitRows = (now, perSecond) => {
  const known = new Map(now.limits.map((limit) => [limit.name, limit]));
  const names = new Set([...known.keys(), ...now.metrics.values("rate_limiter_decisions_total", "policy")]);
  // What is not a limit of the file is a policy, or `dynamic`; it is shown once it has decided something.
  const isUsed = (name) => known.has(name) || now.metrics.sum("rate_limiter_decisions_total", { policy: name }) > 0;
  return [...names].filter(isUsed).map((name) => {
    const limit = known.get(name);
    const of = (metric, labels) => now.metrics.sum(metric, { policy: name, ...labels });
    const refused = perSecond("rate_limiter_decisions_total", { policy: name, decision: "deny" });
    const all = perSecond("rate_limiter_decisions_total", { policy: name });
    const tokens = of("rate_limiter_lease_tokens");
    return { name, all, refused, cells: [
      name, limit?.limit ?? (name === "dynamic" ? "limits of requests" : "policy"), limit?.storage ?? "–",
      number(rate(all)), number(rate(refused)), number(all > 0 ? percent(refused / all) : "–"),
      number(whole(of("rate_limiter_keys"))), number(whole(of("rate_limiter_waiters"))),
      number(limit?.leases ? `${whole(limit.leases)} keys, ${whole(tokens)} tokens` : "–"),
    ] };
  }).sort((a, b) => b.all - a.all || a.name.localeCompare(b.name));
};

const isAsked = (now) => (protocol) => now.metrics.sum("balde_service_requests_total", { protocol }) > 0
  || now.metrics.sum("balde_service_connections", { protocol }) > 0;

const protocolRows = (now, perSecond) => ["http", "resp", "rls", "proxy"].filter(isAsked(now)).map((protocol) => {
  const of = (result) => number(rate(perSecond("balde_service_requests_total", { protocol, result })));
  return [protocol, number(whole(now.metrics.sum("balde_service_connections", { protocol }))),
    of("allowed"), of("refused"), of("invalid"), of("failed")];
});

const redisFacts = (now, perSecond) => {
  const isOpen = now.metrics.sum("rate_limiter_breaker_open") > 0;
  const fact = (name, text, state) => [el("dt", { text: name }), el("dd", { class: state, text })];
  if (now.redis.state === "unused") return el("p", { class: "muted", text: "All buckets are in memory." });
  return el("dl", { class: "facts" },
    fact("State", now.redis.problem ? `unavailable: ${now.redis.problem}` : "available", now.redis.problem ? "problem" : "calm"),
    fact("Circuit breaker", isOpen ? "open: calls are held back" : "closed", isOpen ? "problem" : null),
    fact("Calls", `${rate(perSecond("rate_limiter_backend_calls_total"))} / s`),
    fact("Failed calls", `${rate(perSecond("rate_limiter_backend_errors_total"))} / s`),
    fact("Decisions by on_failure", `${rate(perSecond("rate_limiter_fallback_total"))} / s`));
};

const show = (now, last) => {
  const perSecond = growth(now, last);
  const rows = limitRows(now, perSecond);
  const total = (field) => rows.reduce((sum, row) => sum + row[field], 0);
  const overloads = perSecond("balde_service_overloads_total");
  setText(document.getElementById("version"), `version ${now.version}`);
  problems.replaceChildren(
    ...(now.is_draining ? [el("p", { class: "problem", text: "The service is shutting down." })] : []),
    ...(now.redis.problem ? [el("p", { class: "problem", text: `Redis is unavailable: ${now.redis.problem}` })] : []),
    ...(overloads > 0 ? [el("p", { class: "problem", text: `${rate(overloads)} commands per second are refused as overload.` })] : []),
    ...(now.metrics.sum("balde_service_reload_refused") > 0 ? [el("p", { class: "problem", text: "The last reload was refused; an older file is in force." })] : []));
  main.replaceChildren(
    el("h1", { text: "Limits" }),
    el("div", { class: "tiles" },
      tile("decisions / s", rate(total("all"))),
      tile("refusals / s", rate(total("refused")), total("refused") > 0 ? "WARNING" : ""),
      tile("under way", whole(now.metrics.sum("balde_service_in_flight"))),
      tile("open holds", whole(now.metrics.sum("balde_service_open_holds")))),
    card("Limits and policies", table(["Name", "Limit", "Storage", "Decisions / s", "Refusals / s", "Refused", "Keys in memory", "Waiting", "Leases"], rows.map((row) => row.cells))),
    card("Top keys", now.top_keys.length
      ? table(["Key", "Limit", "Asked", "Refused"], now.top_keys.map((top) => [now.has_plain_keys ? top.key : top.key.slice(0, 16), top.limit, number(whole(top.asked)), number(whole(top.refused))]))
      : el("p", { class: "muted", text: "Nothing was asked in the last minute." }),
    `Requests in the last one to two minutes; the counts are lower bounds.${now.has_plain_keys ? "" : " Keys are shown as the first digits of the hashes that logs have; plain_keys in [state] shows them as they are."}`),
    card("Protocols in use", table(["Protocol", "Connections", "Allowed / s", "Refused / s", "Invalid / s", "Failed / s"], protocolRows(now, perSecond))),
    card("Redis", redisFacts(now, perSecond)));
};

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

const follow = async () => {
  let last = null;
  for (;;) {
    try {
      const now = await read();
      show(now, last ?? now);
      last = now;
      connection.className = "connection up";
      setText(connection, "live");
    } catch (error) {
      if (error instanceof Unauthorized) {
        await askForToken();
        continue;
      }
      connection.className = "connection down";
      setText(connection, "no connection; trying again");
    }
    await sleep(EVERY_MS);
  }
};

follow();
