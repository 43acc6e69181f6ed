// The dashboard: follows the monitor's live stream and shows the page that the address names.

import { alertsPage } from "./alerts.js";
import { follow, get, setToken } from "./api.js";
import { el, setText } from "./dom.js";
import { dateTime, number, time } from "./format.js";
import { gatewayPage } from "./gateway.js";
import { incidentsPage } from "./incidents.js";
import { operationsPage } from "./operations.js";
import { actions } from "./operator.js";
import { overview } from "./overview.js";
import { withCause } from "./parts.js";
import { policyPage } from "./policy.js";
import { language, setLanguage, text } from "./texts.js";

const byId = (id) => document.getElementById(id);

/** What is known, and the server's clock, which may run faster than this one in a demonstration. */
const model = {
  states: null,
  status: null,
  /** Who uses the page, and what that person may do. */
  me: null,
  clock: null,
  async loadMe() {
    try {
      this.me = await get("/api/v1/me");
    } catch {
      // Asked again with the next token; until then the monitor refuses what is not allowed.
    }
    page?.update();
  },
  nowUs() {
    if (!this.clock) return Date.now() * 1000;
    return this.clock.us + (performance.now() - this.clock.at) * 1000 * this.clock.speed;
  },
  setNow(us) {
    const at = performance.now();
    const before = this.clock;
    let speed = before?.speed ?? 1;
    if (before && at - before.at > 500) {
      const measured = (us - before.us) / 1000 / (at - before.at);
      // A delayed message must not bend the clock.
      speed = measured > 0.8 && measured < 1.2 ? 1 : Math.max(0, Math.min(1000, measured));
    }
    this.clock = { us, at, speed };
  },
};

let page = null;

const routes = [
  [/^#\/policy\/([^/]+)\/([^/?]+)(?:\?range=(\w+))?$/, (main, [participant, policy, range]) => policyPage(main, model, participant, policy, range)],
  [/^#\/alerts$/, (main) => alertsPage(main, model)],
  [/^#\/incidents$/, (main) => incidentsPage(main, model)],
  [/^#\/gateway$/, (main) => gatewayPage(main, model)],
  [/^#\/operations$/, (main) => operationsPage(main, model)],
];

const NAVIGATION = [["#/", "navBuckets"], ["#/alerts", "navAlerts"], ["#/incidents", "navIncidents"], ["#/gateway", "navGateway"], ["#/operations", "navOperations"]];

const decoded = (part) => {
  try {
    return part === undefined ? undefined : decodeURIComponent(part);
  } catch {
    return part;
  }
};

const show = () => {
  if (!model.states) return;
  page?.close?.();
  const main = byId("main");
  const hash = location.hash || "#/";
  const found = routes.map(([pattern, open]) => [hash.match(pattern), open]).find(([match]) => match);
  page = found ? found[1](main, found[0].slice(1).map(decoded)) : overview(main, model);
  byId("nav").setAttribute("aria-label", text("pages"));
  byId("nav").replaceChildren(...NAVIGATION.map(([address, key]) =>
    el("a", { href: address, text: text(key), "aria-current": hash === address ? "page" : null })));
};

/** The monitor shows nothing without a token: asks for one, and keeps its promise when there is one. */
const signIn = () => new Promise((done) => {
  const input = el("input", { type: "password", id: "sign-in", autocomplete: "off", required: true });
  const use = async (event) => {
    event.preventDefault();
    setToken(input.value);
    await model.loadMe();
    done();
  };
  byId("main").replaceChildren(el("section", { class: "card" },
    el("h1", { text: text("signIn") }),
    el("p", { text: text(model.me?.write_access === "proxy" ? "signInSso" : "signInToken") }),
    el("form", { class: "token", onsubmit: use },
      el("label", { for: "sign-in", text: text("token") }), input, el("button", { type: "submit", text: text("save") }))));
});

const applyTexts = () => {
  document.documentElement.lang = language();
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = text(element.dataset.text);
  byId("language").value = language();
};

const applyTheme = (theme) => {
  document.documentElement.dataset.theme = theme;
  byId("theme").value = theme;
};

const connection = (isUp) => {
  const box = byId("connection");
  box.className = `connection ${isUp ? "up" : "down"}`;
  setText(box, text(isUp ? "live" : "offline"));
  // Not part of the status above, which a screen reader would read out every second.
  setText(byId("clock"), isUp ? time(model.nowUs(), Date.now() * 1000) : "");
};

/** The note of whoever started the monitor. A second line is the same in Portuguese. */
const showNote = () => {
  const lines = (model.states?.note ?? "").split("\n");
  setText(byId("note"), (language() === "pt-BR" ? lines[1] : lines[0]) ?? lines[0]);
};

let shownStorage = "";

/** What works and what does not while the database does not. Drawn again only when it has changed, so
 * that its button keeps the focus. */
const showStorage = () => {
  const failure = model.status?.storage_failure;
  const key = JSON.stringify([language(), failure ?? null]);
  if (key === shownStorage) return;
  shownStorage = key;
  const words = failure && { time: dateTime(failure.since_us), polls: number(failure.unstored_polls), changes: number(failure.unstored_changes) };
  byId("problems").replaceChildren(...(failure ? [el("p", { class: "problem", text: withCause(text("cannotStore", words), failure.cause) }),
    el("p", { class: "muted", text: `${text("worksWithoutStorage")} ${failure.unstored_changes ? text("changesWait", words) : ""}` }),
    failure.alert ? actions(model, "monitor", undefined, "CRITICAL", failure.alert) : ""] : []));
};

/** Puts changes into the states. Buckets that have not changed keep their objects. */
const merge = (states, changes) => {
  const merged = new Map(states.participants.map((state) => [state.participant, state]));
  for (const change of changes.participants) {
    const before = merged.get(change.participant)?.buckets ?? [];
    const changed = new Map(change.buckets.map((bucket) => [bucket.policy, bucket]));
    const listed = new Set(change.policies);
    const kept = before.filter((bucket) => listed.has(bucket.policy) && !changed.has(bucket.policy));
    merged.set(change.participant, { ...change, buckets: [...kept, ...change.buckets] });
  }
  return { ...states, now_us: changes.now_us, storage_failure: changes.storage_failure, participants: [...merged.values()] };
};

const start = () => {
  applyTexts();
  applyTheme(localStorage.getItem("balde-theme") ?? "auto");
  byId("language").addEventListener("change", (event) => { setLanguage(event.target.value); applyTexts(); showNote(); showStorage(); show(); });
  byId("theme").addEventListener("change", (event) => { localStorage.setItem("balde-theme", event.target.value); applyTheme(event.target.value); show(); });
  addEventListener("hashchange", () => { show(); byId("main").focus({ preventScroll: true }); scrollTo(0, 0); });
  addEventListener("keydown", (event) => {
    const filter = byId("filter");
    if (event.key === "/" && filter && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) {
      event.preventDefault();
      filter.focus();
    }
  });
  // The address names the page, so the link to the content must not change it.
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
  byId("main").replaceChildren(el("p", { text: text("loading") }));
  let isUp = false;
  let lost = null;
  follow({
    states: (states) => {
      model.setNow(states.now_us);
      const isFirst = model.states === null;
      model.states = states;
      showNote();
      if (isFirst) show();
      else page?.update();
    },
    changes: (changes) => {
      if (!model.states) return;
      model.setNow(changes.now_us);
      model.states = merge(model.states, changes);
      page?.update();
    },
    status: (status) => {
      model.setNow(status.now_us);
      model.status = status;
      showStorage();
      page?.update();
    },
  }, () => { isUp = true; clearTimeout(lost); connection(true); }, () => {
    isUp = false;
    clearTimeout(lost);
    // The server ends long streams from time to time; the browser is back at once.
    lost = setTimeout(() => connection(false), 3000);
  }, signIn);
  // A monitor whose database is away still answers the stream, but may have no states yet.
  model.loadMe();
  get("/api/v1/status").then((status) => { model.status ??= status; }).catch(() => {});
  setInterval(() => { if (isUp) connection(true); page?.tick(); }, 1000);
};

start();
