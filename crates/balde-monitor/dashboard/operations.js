// The page about the monitor itself: polling, sinks, leadership and the token.

import { setToken, token } from "./api.js";
import { el, table } from "./dom.js";
import { dateTime, duration, number } from "./format.js";
import { announce, setName, storedName } from "./operator.js";
import { pollError, withCause } from "./parts.js";
import { language, text } from "./texts.js";

export const operationsPage = (main, model) => {
  const role = el("dl", { class: "facts" });
  const polling = el("div");
  const sinks = el("div");
  const input = el("input", { type: "password", id: "token", autocomplete: "off", value: token() });
  const useToken = async (event) => {
    event.preventDefault();
    setToken(input.value);
    await model.loadMe();
    announce(text("tokenKept"));
  };
  const form = el("form", { class: "token", onsubmit: useToken },
    el("label", { for: "token", text: text("token") }), input, el("button", { type: "submit", text: text("save") }));
  const name = el("input", { id: "name", autocomplete: "name", maxlength: 60, value: storedName() });
  const nameForm = el("form", { class: "token", onsubmit: (event) => { event.preventDefault(); setName(name.value); announce(text("nameKept")); } },
    el("label", { for: "name", text: text("yourName") }), name, el("button", { type: "submit", text: text("save") }));
  const you = el("p");
  const access = el("p", { class: "muted" });
  main.replaceChildren(
    el("h1", { text: text("navOperations") }),
    el("section", { class: "card" }, el("h2", { text: text("monitor") }), role),
    el("section", { class: "card" }, el("h2", { text: text("polling") }), el("p", { class: "muted", text: text("pollingHelp") }), polling),
    el("section", { class: "card" }, el("h2", { text: text("sinks") }), el("p", { class: "muted", text: text("sinksHelp") }), sinks),
    el("section", { class: "card" }, el("h2", { text: text("changes") }), access, you, form, nameForm));

  const update = () => {
    const status = model.status;
    if (!status) return;
    const nowUs = model.nowUs();
    const fact = (name, value) => [el("dt", { text: name }), el("dd", { text: value })];
    role.replaceChildren(...fact(text("role"), text(status.is_leader ? "leader" : "standby")),
      ...fact(text("storage"), status.storage_failure ? withCause(text("storageBad"), status.storage_failure.cause) : text("storageGood")),
      ...fact(text("version"), status.version));
    const names = [...new Set([...(model.states?.participants ?? []).map((state) => state.participant), ...Object.keys(status.participants)])];
    const age = (us) => (us == null ? text("never") : text("ago", { age: duration(nowUs - us) }));
    const next = (us) => (us == null ? "–" : us - nowUs < 1e6 ? text("nowWord") : text("inTime", { age: duration(us - nowUs) }));
    polling.replaceChildren(table(
      [text("participantLabel"), text("lastSuccess"), text("duration"), text("nextPoll"), text("failures"), text("lastError"), text("certificate")],
      names.map((name) => {
        const poll = status.participants[name] ?? { failures: {} };
        const expiry = status.certificates?.[name];
        return [
          name, age(poll.last_success_us),
          poll.last_duration_us == null ? "–" : duration(poll.last_duration_us),
          next(poll.next_poll_us),
          Object.entries(poll.failures).map(([label, count]) => `${label} ${number(count)}`).join(", ") || "0",
          poll.last_error ? { class: "problem", text: pollError(poll) } : "–",
          expiry === undefined ? "–" : dateTime(expiry),
        ];
      })));
    const rows = status.sinks ?? [];
    sinks.replaceChildren(rows.length
      ? table([text("sink"), text("delivered"), text("waiting"), text("oldest"), text("failedAttempts"), text("lastError")], rows.map((sink) => [
        sink.sink, number(sink.delivered), number(sink.waiting), sink.oldest_us == null ? "–" : age(sink.oldest_us),
        number(sink.failed), sink.last_error ? { class: "problem", text: language() === "en" ? sink.last_error : text("sinkFails") } : "–"]))
      : el("p", { text: text("noSinks") }));
    access.textContent = text(`access_${status.write_access}`);
    form.hidden = status.write_access !== "token";
    const me = model.me;
    you.hidden = !me || me.by === "nothing";
    if (!you.hidden) you.textContent = text("youAre", { name: me.name ?? text("unnamedToken"), role: text(`role_${me.role ?? "none"}`) });
    nameForm.hidden = Boolean(me?.name) || status.write_access === "denied";
  };

  update();
  return { update, tick: update };
};
