// The page of alerts and silences.

import { get, send } from "./api.js";
import { el } from "./dom.js";
import { dateTime } from "./format.js";
import { RANK, change, policyLink, sentence, severityBadge } from "./parts.js";
import { text } from "./texts.js";

export const alertsPage = (main, model) => {
  const severity = el("select", { "aria-label": text("severityLabel") }, el("option", { value: "", text: text("allSeverities") }),
    Object.keys(RANK).map((name) => el("option", { value: name, text: text(name) })));
  const list = el("ol", { class: "events" });
  const silences = el("ul", { class: "events" });
  main.replaceChildren(
    el("section", {}, el("h1", { text: text("navAlerts") }), el("div", { class: "filters" }, severity), list),
    el("section", {}, el("h2", { text: text("silences") }), silences));

  const row = (event) => el("li", { class: event.severity },
    el("time", { text: dateTime(event.at_us) }), " ", severityBadge(event.severity), " ",
    event.policy ? policyLink(event.participant, event.policy, `${event.participant} ${event.policy}`) : el("span", { text: event.participant }),
    el("span", { class: "what", text: ` ${sentence(event, model.nowUs())}` }),
    event.silenced_by ? el("span", { class: "tag", text: text("silenced") }) : null);

  const silenceRow = (silence) => {
    const what = [silence.participant, silence.policy].filter(Boolean).join(" ") || text("everything");
    const end = () => change(model, async () => { await send("DELETE", `/api/v1/silences/${encodeURIComponent(silence.id)}`); await load(); });
    return el("li", {}, el("span", { class: "what", text: `${what}: ${text("silenceUntil", { time: dateTime(silence.until_us), severity: text(silence.up_to) })}` }), " ",
      el("button", { type: "button", onclick: end, text: text("end") }));
  };

  const load = async () => {
    try {
      const [events, active] = await Promise.all([
        get("/api/v1/alerts", { limit: 100, severity: severity.value }),
        get("/api/v1/silences"),
      ]);
      list.replaceChildren(...(events.length ? events.map(row) : [el("li", { text: text("noAlerts") })]));
      silences.replaceChildren(...(active.length ? active.map(silenceRow) : [el("li", { text: text("noSilences") })]));
    } catch (error) {
      list.replaceChildren(el("li", { class: "problem", text: text("failed", { detail: error.message }) }));
    }
  };
  severity.addEventListener("change", load);
  load();
  return { update: load, tick: () => {} };
};
