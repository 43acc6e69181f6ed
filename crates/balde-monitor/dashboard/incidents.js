// The page of incidents with their timelines.

import { get } from "./api.js";
import { el } from "./dom.js";
import { dateTime, duration } from "./format.js";
import { actions } from "./operator.js";
import { atMostEvery, eventBadge, eventRow, policyLink, sentence, severityBadge } from "./parts.js";
import { text } from "./texts.js";

const REFRESH_MS = 3000;

/** Whom an incident without a bucket concerns. */
const whom = (participant) => (participant === "monitor" ? text("monitorItself") : text("participant", { participant }));

export const incidentsPage = (main, model) => {
  const list = el("div");
  const mark = el("p", { class: "problem", hidden: true, text: text("fromMemory") });
  main.replaceChildren(el("h1", { text: text("navIncidents") }), el("p", { class: "muted", text: text("incidentsHelp") }), mark, list);
  const opened = new Set();
  const closed = new Set();
  let shown = "";

  const bucketOf = (incident) => model.states?.participants.find((p) => p.participant === incident.participant)
    ?.buckets.find((b) => b.policy === incident.policy);

  // The alert as `actions` expects it: an incident about a bucket shows the silence of that bucket.
  const alertOf = (incident) => ({ episode: incident.episode, acknowledged: incident.acknowledged, silenced: bucketOf(incident)?.silenced });

  /** A change of limits: it happened at one time, and has neither an end nor a timeline. */
  const changeCard = (incident) => {
    const event = incident.timeline[0];
    return el("article", { class: "card incident changed" },
      el("h2", {}, eventBadge(event), " ", sentence(event, model.nowUs()), el("span", { class: "quiet", text: ` ${incident.participant}` })),
      el("p", { text: dateTime(incident.opened_us) }));
  };

  const card = (incident, index) => {
    const first = incident.timeline[0];
    if (first?.kind.type === "changed") return changeCard(incident);
    // What is not about a level says what it is about.
    const isOfLevel = ["raised", "lowered", "reminder"].includes(first?.kind.type);
    const isOpen = incident.closed_us === null;
    const unfolded = opened.has(incident.episode) || (!closed.has(incident.episode) && (isOpen || index === 0));
    const details = el("details", { open: unfolded },
      el("summary", { text: text("timelineOf", { count: incident.timeline.length }) }),
      el("ol", { class: "events" }, incident.timeline.map((event) => eventRow(event, model.nowUs(), false))));
    details.addEventListener("toggle", () => {
      (details.open ? opened : closed).add(incident.episode);
      (details.open ? closed : opened).delete(incident.episode);
    });
    const ending = isOpen ? text("open") : text("closed", { time: duration(incident.closed_us - incident.opened_us) });
    return el("article", { class: `card incident ${incident.severity}` },
      el("h2", {}, severityBadge(incident.severity), " ",
        incident.policy ? policyLink(incident.participant, incident.policy) : whom(incident.participant),
        incident.policy ? el("span", { class: "quiet", text: ` ${incident.participant}` }) : null),
      first && !isOfLevel ? el("p", { text: sentence(first, model.nowUs()) }) : null,
      el("p", { text: `${text("openedAt", { time: dateTime(incident.opened_us) })}, ${ending}` }),
      isOpen ? actions(model, incident.participant, incident.policy ?? undefined, incident.severity, alertOf(incident)) : null,
      details);
  };

  const load = async () => {
    try {
      const incidents = await get("/api/v1/incidents", { limit: 50 });
      mark.hidden = !incidents.isFromMemory;
      const key = JSON.stringify([incidents, incidents.map((incident) => bucketOf(incident)?.silenced)]);
      if (key === shown || list.contains(document.activeElement?.closest?.("select"))) return;
      shown = key;
      list.replaceChildren(...(incidents.length ? incidents.map(card) : [el("p", { class: "calm", text: text("noIncidents") })]));
    } catch (error) {
      list.replaceChildren(el("p", { class: "problem", text: text("failed", { detail: error.message }) }));
    }
  };
  const refresh = atMostEvery(REFRESH_MS, load);
  refresh();
  return { update: refresh, tick: () => {}, close: refresh.stop };
};
