// Requests to the monitor and the live stream of its states.

const TOKEN = "balde-token";

export const token = () => sessionStorage.getItem(TOKEN) ?? "";
export const setToken = (value) => sessionStorage.setItem(TOKEN, value);

const problem = async (response) => {
  try {
    return (await response.json()).detail ?? response.statusText;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
};

export const get = async (path, parameters = {}) => {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== ""));
  const address = query.size ? `${path}?${query}` : path;
  const response = await fetch(address, { headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(await problem(response));
  return response.json();
};

export const send = async (method, path, body) => {
  const headers = { "content-type": "application/json" };
  if (token()) headers.authorization = `Bearer ${token()}`;
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (!response.ok) throw new Error(await problem(response));
  return response.status === 204 ? null : response.json();
};

/** How long to wait before a stream is opened again that the server refused, in milliseconds. */
const REFUSED_RETRY = 10_000;

/**
 * Follows the live stream. The browser reconnects by itself; `onDown` is called while it does. It gives up
 * when the server refuses the stream, because too many are open: then it is opened again later.
 */
export const follow = (handlers, onUp, onDown) => {
  const stream = new EventSource("/api/v1/stream");
  for (const [name, handle] of Object.entries(handlers)) {
    stream.addEventListener(name, (event) => {
      onUp();
      handle(JSON.parse(event.data));
    });
  }
  stream.addEventListener("error", () => {
    onDown();
    if (stream.readyState === EventSource.CLOSED) {
      setTimeout(() => follow(handlers, onUp, onDown), REFUSED_RETRY);
    }
  });
};
