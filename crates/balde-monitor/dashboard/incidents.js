// The page of incidents with their timelines.

import { get } from "./api.js";
import { el } from "./dom.js";
import { dateTime, duration } from "./format.js";
import { actions, policyLink, sentence, severityBadge } from "./parts.js";
import { text } from "./texts.js";

export const incidentsPage = (main, model) => {
  const list = el("div");
  main.replaceChildren(el("section", {}, el("h1", { text: text("navIncidents") }), list));
  const opened = new Set();

  const bucketOf = (incident) => model.states?.participants.find((p) => p.participant === incident.participant)
    ?.buckets.find((b) => b.policy === incident.policy && b.episode === incident.episode);
  // Only the open alert of a bucket can be acknowledged.
  const openEpisode = (incident) => bucketOf(incident)?.episode;

  const card = (incident) => {
    const details = el("details", { open: opened.has(incident.episode) },
      el("summary", { text: text("timeline") }),
      el("ol", { class: "events" }, incident.timeline.map((event) =>
        el("li", { class: event.severity }, el("time", { text: dateTime(event.at_us) }), ` ${sentence(event, model.nowUs())}`))));
    details.addEventListener("toggle", () => (details.open ? opened.add(incident.episode) : opened.delete(incident.episode)));
    const ending = incident.closed_us === null ? text("open") : text("closed", { time: duration(incident.closed_us - incident.opened_us) });
    const acknowledged = bucketOf(incident)?.acknowledged;
    return el("article", { class: `incident ${incident.severity}` },
      el("h2", {}, severityBadge(incident.severity), " ",
        incident.policy ? policyLink(incident.participant, incident.policy, `${incident.participant} ${incident.policy}`) : incident.participant),
      el("p", { text: `${text("openedAt", { time: dateTime(incident.opened_us) })}, ${ending}` }),
      acknowledged ? el("p", { text: text("acknowledgedBy", { by: acknowledged.by, time: dateTime(acknowledged.at_us) }) })
        : incident.closed_us === null ? actions(model, incident.participant, incident.policy ?? undefined, incident.severity, openEpisode(incident)) : null,
      details);
  };

  const load = async () => {
    try {
      const incidents = await get("/api/v1/incidents", { limit: 50 });
      if (list.contains(document.activeElement?.closest?.("select"))) return;
      list.replaceChildren(...(incidents.length ? incidents.map(card) : [el("p", { text: text("noIncidents") })]));
    } catch (error) {
      list.replaceChildren(el("p", { class: "problem", text: text("failed", { detail: error.message }) }));
    }
  };
  load();
  return { update: load, tick: () => {} };
};
