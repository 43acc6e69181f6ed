// The gateway's view: what it refused, and whether the participant's lookups lead to payments.

import { el, table } from "./dom.js";
import { duration, number } from "./format.js";
import { text } from "./texts.js";

const permille = (value) => (value == null ? text("unknown") : `${number(value / 10, 1)} %`);
const ratio = (value) => (value == null ? text("unknown") : number(value / 1000, 2));

const refusals = (view) => {
  const minutes = number(view.refusals_minutes);
  const refused = [...view.refusals].sort((a, b) => b.refusals - a.refusals);
  if (!refused.length) return el("p", { class: "calm", text: text("noRefusals", { minutes }) });
  const listed = new Set(view.policies.map((row) => row.policy));
  return table([text("policy"), text("refusedIn", { minutes }), text("bucketOf")],
    refused.map((row) => [row.policy, row.is_shadow ? `${number(row.refusals)} (${text("shadow")})` : number(row.refusals),
      text(listed.has(row.policy) ? "ofParticipant" : "ofPayers")]));
};

const duties = (view) => {
  const counts = view.duties;
  if (!counts) return [el("p", { class: "muted", text: text("noDuties") })];
  return [
    el("dl", { class: "facts" },
      el("dt", { text: text("lookups") }), el("dd", { text: `${ratio(counts.lookups_per_order_permille)} (${text("lookupsOf", { lookups: number(counts.lookups), orders: number(counts.orders) })})` }),
      el("dt", { text: text("refusedLookups") }), el("dd", { text: number(counts.refused) }),
      el("dt", { text: text("notFound") }), el("dd", { text: `${counts.lookups ? permille(counts.not_found_permille) : text("unknown")} (${text("notFoundOf", { count: number(counts.not_found), lookups: number(counts.lookups) })})` })),
    el("h3", { text: text("worstPayers") }),
    el("p", { class: "muted", text: text("worstPayersHelp") + (counts.worst_payer_lookups ? ` ${text("worstPayersFrom", { lookups: number(counts.worst_payer_lookups) })}` : "") }),
    counts.worst_payers.length
      ? table([text("payer"), text("lookupCount"), text("notFoundCount"), text("share"), text("refusedCountColumn"), text("orders")],
        counts.worst_payers.map((row) => [row.payer_hash, number(row.lookups), number(row.not_found), row.lookups ? permille(row.not_found_permille) : text("unknown"), number(row.refused), number(row.orders)]))
      : el("p", { class: "calm", text: text("noWorstPayers") }),
  ];
};

export const gatewayPage = (main, model) => {
  const list = el("div");
  main.replaceChildren(el("h1", { text: text("navGateway") }), el("p", { class: "muted", text: text("gatewayHelp") }), list);
  const update = () => {
    const views = Object.entries(model.status?.gateways ?? {});
    list.replaceChildren(...(views.length ? views.map(([name, view]) => el("section", { class: "card", "data-participant": name },
      el("h2", { text: text("participant", { participant: name }) }),
      view === null ? el("p", { class: "muted", text: text("gatewayUnread") }) : el("div", {},
        el("p", { class: "facts", text: text("answerAge", { age: duration(model.nowUs() - view.read_us) }) + (view.waiting == null ? "" : `, ${text("waitingRequests", { count: number(view.waiting) })}`) }),
        el("h3", { text: text("refusals") }), refusals(view),
        el("h3", { text: text("duties", { hours: number(view.duties?.hours ?? 24) }) }), duties(view))))
      : [el("p", { class: "card", text: text("noGateway") })]));
  };
  update();
  return { update, tick: update };
};
