// Who uses the page, and what that person may do: the name under which changes are recorded, the token,
// and the buttons that acknowledge, silence and undo both.

import { send, token } from "./api.js";
import { el } from "./dom.js";
import { time } from "./format.js";
import { text } from "./texts.js";

const NAME = "balde-name";
const NAME_MAX = 60;

export const storedName = () => localStorage.getItem(NAME) ?? "";
export const setName = (value) => localStorage.setItem(NAME, value.trim().slice(0, NAME_MAX));

/** Shows what an action of the user led to. */
export const announce = (message) => {
  const box = document.getElementById("message");
  box.textContent = message;
  clearTimeout(box.timer);
  box.timer = setTimeout(() => { box.textContent = ""; }, 6000);
};

/** Asks for the user's name, once: it is kept in this browser. Null if the user gives none. */
const askName = () => new Promise((done) => {
  const input = el("input", { id: "your-name", maxlength: NAME_MAX, required: true, autocomplete: "name" });
  const dialog = el("dialog", { class: "ask", "aria-labelledby": "ask-title" },
    el("form", { method: "dialog", onsubmit: () => { setName(input.value); } },
      el("h2", { id: "ask-title", text: text("askName") }),
      el("p", { class: "muted", text: text("askNameWhy") }),
      el("p", {}, el("label", { for: "your-name", text: text("yourName") }), " ", input),
      el("p", { class: "actions" },
        el("button", { type: "submit", class: "acknowledge", text: text("save") }),
        el("button", { type: "button", class: "cancel", onclick: () => dialog.close(), text: text("cancel") }))));
  dialog.addEventListener("close", () => { dialog.remove(); done(storedName() || null); });
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
});

/** Why the user may not change anything; null if changes are allowed. */
const obstacle = (me) => {
  if (!me || me.role === "acknowledge" || me.role === "admin") return null;
  if (me.by !== "nothing") return text("roleTooLow", { role: text(`role_${me.role ?? "none"}`) });
  if (me.write_access === "token") return text(token() ? "wrongToken" : "needToken");
  return text(me.write_access === "proxy" ? "needSso" : "denied");
};

/** Runs an action of the user that changes something, under the user's name, and says how it ended. */
export const change = async (model, action, done = "done") => {
  const reason = obstacle(model.me);
  if (reason) return announce(reason);
  // An authenticated user has a name already, which the monitor uses.
  const by = model.me?.name ?? (storedName() || await askName());
  if (!by) return announce(text("nameNeeded"));
  try {
    const result = await action(by);
    announce(text(result?.is_stored === false ? "keptInMemory" : done));
  } catch (error) {
    announce(text("failed", { detail: error.message }));
  }
};

const SILENCES = [["minutes30", 30], ["hours2", 120], ["hours8", 480]];

/** Ends a silence. */
export const endSilence = (model, id) => change(model, (by) => send("DELETE", `/api/v1/silences/${encodeURIComponent(id)}`, { by }), "silenceEndedDone");

/** Who acknowledged an alert, with a button that takes it back. */
const acknowledgedMark = (model, alert) => {
  const undo = () => change(model, (by) => send("DELETE", "/api/v1/acknowledgements", { episode: alert.episode, by }), "undoDone");
  const words = { by: alert.acknowledged.by, time: time(alert.acknowledged.at_us, model.nowUs()) };
  return el("span", { class: "actions" },
    el("span", { class: "tag acknowledged", text: `✓ ${text("acknowledgedBy", words)}` }),
    el("button", { type: "button", class: "undo", title: text("undoHelp"), onclick: undo, text: text("undo") }));
};

/** How long a bucket is silenced and by whom, with a button that ends it. */
const silencedMark = (model, bucket) => {
  const { id, by, until_us, up_to } = bucket.silenced;
  const words = { time: time(until_us, model.nowUs()), severity: text(up_to), by: by ?? text("somebody") };
  return el("span", { class: "actions" },
    el("span", { class: "tag silenced", text: `‖ ${text("silencedMark", words)}` }),
    el("button", { type: "button", class: "end", onclick: () => endSilence(model, id), text: text("end") }));
};

/** The buttons of an alert that is not acknowledged; `isSilenced` if it cannot be silenced, or is already. */
const buttons = (model, participant, policy, severity, episode, isSilenced) => {
  const select = el("select", { "aria-label": text("silenceFor") }, SILENCES.map(([key, minutes]) => el("option", { value: minutes, text: text(key) })));
  const silence = () => change(model, (by) =>
    send("POST", "/api/v1/silences", { participant, policy, up_to: severity === "NORMAL" ? "CRITICAL" : severity, minutes: Number(select.value), by }), "silenceDone");
  const acknowledge = () => change(model, (by) => send("POST", "/api/v1/acknowledgements", { episode, by }), "acknowledgeDone");
  return el("span", { class: "actions" },
    el("button", { type: "button", class: "acknowledge", title: text("acknowledgeHelp"), onclick: acknowledge, text: text("acknowledge") }),
    isSilenced ? null : el("span", { class: "pair" },
      el("button", { type: "button", class: "silence", title: text("silenceHelp"), onclick: silence, text: text("silenceFor") }), select));
};

/** What has been done about an alert, and what can be done. `alert` has its episode, and who acknowledged
 * it; only that of a bucket can be silenced. */
export const actions = (model, participant, policy, severity, alert) => el("span", { class: "actions" },
  alert?.acknowledged ? acknowledgedMark(model, alert) : null,
  alert?.silenced ? silencedMark(model, alert) : null,
  !alert?.episode || alert.acknowledged ? null : buttons(model, participant, policy, severity, alert.episode, Boolean(alert.silenced) || !policy));

/** Small marks for a row of a table. */
export const marks = (model, bucket) => [
  bucket.acknowledged ? el("span", { class: "tag acknowledged", text: `✓ ${text("acknowledgedShort", { by: bucket.acknowledged.by })}` }) : "",
  bucket.silenced ? el("span", { class: "tag silenced", text: `‖ ${text("silencedShort", { time: time(bucket.silenced.until_us, model.nowUs()) })}` }) : "",
];
