// Requests to the monitor and the live stream of its states.

import { language, text } from "./texts.js";

const TOKEN = "balde-token";

export const token = () => sessionStorage.getItem(TOKEN) ?? "";
export const setToken = (value) => sessionStorage.setItem(TOKEN, value);

/** The header fields of a request, with the token if there is one. */
const fields = (others) => (token() ? { ...others, authorization: `Bearer ${token()}` } : others);

/**
 * What went wrong, in the language of the page. The monitor's own words are English, so only an English
 * page shows them.
 */
const problem = async (response) => {
  const known = [400, 401, 403, 404, 503].includes(response.status) ? `error_${response.status}` : "error_other";
  const sentence = text(known, { status: response.status });
  if (language() !== "en") return sentence;
  try {
    return (await response.json()).detail ?? sentence;
  } catch {
    return sentence;
  }
};

const request = async (path, options) => {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error(text("error_network"));
  }
  if (!response.ok) throw new Error(await problem(response));
  if (response.status === 204) return null;
  const body = await response.json();
  // A mark beside the data: they are from memory, because the database does not answer.
  if (response.headers.has("balde-from-memory")) Object.defineProperty(body, "isFromMemory", { value: true });
  return body;
};

const address = (path, parameters) => {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== ""));
  return query.size ? `${path}?${query}` : path;
};

export const get = (path, parameters = {}) => request(address(path, parameters), { headers: fields({ accept: "application/json" }) });

/** Changes something. The parameters of a DELETE are in its address. */
export const send = (method, path, body = {}) => (method === "DELETE"
  ? request(address(path, body), { method, headers: fields({}) })
  : request(path, { method, headers: fields({ "content-type": "application/json" }), body: JSON.stringify(body) }));

/** How long to wait before the stream is opened again: after it ended, and after the server refused it. */
const ENDED_RETRY = 500;
const REFUSED_RETRY = 10_000;

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

/** Reads server-sent events: blocks of lines, with an empty line between two. */
const readEvents = async (body, onEvent) => {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n").map((line) => line.match(/^(\w+): ?(.*)$/)).filter(Boolean);
      const name = lines.find(([, field]) => field === "event")?.[2];
      const data = lines.filter(([, field]) => field === "data").map(([, , rest]) => rest).join("\n");
      if (name && data) onEvent(name, data);
    }
  }
};

/**
 * Follows the live stream, and opens it again when it ends; `onDown` is called meanwhile. A fetch, because
 * an EventSource cannot send a token. `onUnauthorized` is called when the monitor wants one, and has to
 * return a promise that is kept when there may be one.
 */
export const follow = async (handlers, onUp, onDown, onUnauthorized) => {
  for (;;) {
    let wait = ENDED_RETRY;
    try {
      const response = await fetch("/api/v1/stream", { headers: fields({ accept: "text/event-stream" }), cache: "no-store" });
      if (response.status === 401) {
        await onUnauthorized();
        continue;
      }
      if (response.ok) {
        await readEvents(response.body, (name, data) => {
          onUp();
          handlers[name]?.(JSON.parse(data));
        });
      } else {
        wait = REFUSED_RETRY;
      }
    } catch {
      // The connection was lost.
    }
    onDown();
    await sleep(wait);
  }
};
