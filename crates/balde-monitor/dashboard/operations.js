// The page about the monitor itself: polling, sinks, leadership, the gateway's view, and the token.

import { setToken, token } from "./api.js";
import { el } from "./dom.js";
import { duration, number } from "./format.js";
import { text } from "./texts.js";

const table = (columns, rows) =>
  el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col", text: name })))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, index) => el(index === 0 ? "th" : "td", index === 0 ? { scope: "row", text: cell } : { text: cell })))))));

export const operationsPage = (main, model) => {
  const role = el("dl", { class: "facts" });
  const polling = el("div");
  const sinks = el("div");
  const gateway = el("div");
  const input = el("input", { type: "password", id: "token", autocomplete: "off", value: token() });
  const form = el("form", { class: "token", onsubmit: (event) => { event.preventDefault(); setToken(input.value); } },
    el("label", { for: "token", text: text("token") }), input, el("button", { type: "submit", text: text("save") }),
    el("p", { class: "muted", text: text("tokenHelp") }));
  main.replaceChildren(
    el("section", {}, el("h1", { text: text("navOperations") }), el("h2", { text: text("monitor") }), role),
    el("section", {}, el("h2", { text: text("polling") }), polling),
    el("section", {}, el("h2", { text: text("sinks") }), sinks),
    el("section", {}, el("h2", { text: text("gateway") }), gateway),
    el("section", {}, el("h2", { text: text("token") }), form));

  const update = () => {
    const status = model.status;
    if (!status) return;
    const nowUs = model.nowUs();
    const fact = (name, value) => [el("dt", { text: name }), el("dd", { text: value })];
    role.replaceChildren(...fact(text("role"), text(status.is_leader ? "leader" : "standby")), ...fact(text("version"), status.version));
    polling.replaceChildren(table(
      [text("participant", { participant: "" }).trim(), text("lastSuccess"), text("duration"), text("nextPoll"), text("failures"), text("lastError")],
      Object.entries(status.participants).map(([name, poll]) => [
        name,
        poll.last_success_us === null ? text("never") : text("ago", { age: duration(nowUs - poll.last_success_us) }),
        poll.last_duration_us === null ? "–" : duration(poll.last_duration_us),
        poll.next_poll_us === null ? "–" : text("inTime", { age: duration(poll.next_poll_us - nowUs) }),
        Object.entries(poll.failures).map(([label, count]) => `${label} ${number(count)}`).join(", ") || "0",
        poll.last_error ?? "–",
      ])));
    const waiting = status.backlog ?? [];
    sinks.replaceChildren(waiting.length
      ? table([text("sink"), text("waiting"), text("oldest"), text("lastError")], waiting.map((sink) => [
        sink.sink, number(sink.waiting), sink.oldest_us === null ? "–" : text("ago", { age: duration(nowUs - sink.oldest_us) }), sink.last_error ?? "–"]))
      : el("p", { text: text("noSinks") }));
    const views = Object.entries(status.gateways ?? {});
    gateway.replaceChildren(...(views.length ? views.map(([name, view]) => gatewayView(name, view)) : [el("p", { text: text("noGateway") })]));
  };

  const gatewayView = (name, view) => el("div", {},
    el("h3", { text: name }),
    el("dl", { class: "facts" },
      el("dt", { text: text("lookups") }), el("dd", { text: view.lookups_per_order === null || view.lookups_per_order === undefined ? text("unknown") : number(view.lookups_per_order) }),
      el("dt", { text: text("notFound") }), el("dd", { text: view.not_found_ratio === null || view.not_found_ratio === undefined ? text("unknown") : `${number(Math.round(view.not_found_ratio * 1000) / 10)} %` })),
    table([text("policy"), text("refusals")], (view.refusals ?? []).map((row) => [row.policy, number(row.refused)])),
    view.worst_payers?.length ? table([text("worstPayers"), ""], view.worst_payers.map((row) => [row.payer_hash, number(row.not_found)])) : null);

  update();
  return { update, tick: update };
};
