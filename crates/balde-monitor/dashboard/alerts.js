// The page of alerts and silences.

import { get } from "./api.js";
import { el } from "./dom.js";
import { dateTime } from "./format.js";
import { endSilence } from "./operator.js";
import { RANK, atMostEvery, attention, eventRow } from "./parts.js";
import { text } from "./texts.js";

const REFRESH_MS = 3000;
const PAGE = 50;

export const alertsPage = (main, model) => {
  const open = attention(model);
  const severity = el("select", { "aria-label": text("severityLabel") }, el("option", { value: "", text: text("allSeverities") }),
    Object.keys(RANK).filter((name) => name !== "NORMAL").map((name) => el("option", { value: name, text: text(name) })));
  const participant = el("select", { "aria-label": text("participantLabel") }, el("option", { value: "", text: text("allParticipants") }),
    (model.states?.participants ?? []).map((state) => el("option", { value: state.participant, text: state.participant })));
  const mark = el("p", { class: "problem", hidden: true, text: text("fromMemory") });
  const list = el("ol", { class: "events" });
  const more = el("button", { type: "button", hidden: true, text: text("showMore") });
  const silences = el("ul", { class: "events" });
  main.replaceChildren(
    el("h1", { text: text("navAlerts") }),
    el("section", {}, el("h2", { text: text("openNow") }), open.root),
    el("section", { class: "card" }, el("h2", { text: text("timeline") }), el("div", { class: "filters" }, severity, participant), mark, list, more),
    el("section", { class: "card" }, el("h2", { text: text("silences") }), silences));
  let limit = PAGE;

  const silenceRow = (silence) => {
    const what = [silence.participant, silence.policy].filter(Boolean).join(" ") || text("everything");
    const end = async () => { await endSilence(model, silence.id); await load(); };
    const words = { time: dateTime(silence.until_us), severity: text(silence.up_to), by: silence.by ?? text("somebody") };
    return el("li", { class: "whole" }, el("span", { class: "what", text: `${what}: ${text("silencedMark", words)}` }), " ",
      el("button", { type: "button", class: "end", onclick: end, text: text("end") }));
  };

  const load = async () => {
    try {
      const [events, active] = await Promise.all([
        get("/api/v1/alerts", { limit: limit + 1, severity: severity.value, participant: participant.value }),
        get("/api/v1/silences"),
      ]);
      mark.hidden = !events.isFromMemory;
      more.hidden = events.length <= limit;
      list.replaceChildren(...(events.length ? events.slice(0, limit).map((event) => eventRow(event, model.nowUs())) : [el("li", { class: "whole", text: text("noAlerts") })]));
      // Acknowledgements are shown with their alerts.
      const listed = active.filter((silence) => !silence.acknowledged);
      silences.replaceChildren(...(listed.length ? listed.map(silenceRow) : [el("li", { class: "whole", text: text("noSilences") })]));
    } catch (error) {
      list.replaceChildren(el("li", { class: "problem whole", text: text("failed", { detail: error.message }) }));
    }
  };
  const refresh = atMostEvery(REFRESH_MS, load);
  severity.addEventListener("change", load);
  participant.addEventListener("change", load);
  more.addEventListener("click", () => { limit += PAGE; load(); });
  open.update();
  refresh();
  return { update: () => { open.update(); refresh(); }, tick: () => {}, close: refresh.stop };
};
