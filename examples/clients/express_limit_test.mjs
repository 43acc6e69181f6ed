// Runs the middleware in an application of Express: node express_limit_test.mjs URL
import { once } from "node:events";
import { createRequire } from "node:module";

import { baldeLimit } from "./express_limit.mjs";

// Unlike `import`, this finds Express in NODE_PATH, too.
const express = createRequire(import.meta.url)("express");

async function ask(options, times) {
  const limited = baldeLimit({ limit: "per_user", key: () => "node", timeout: 10_000, ...options });
  const app = express().use(limited).get("/", (request, response) => response.send("hello"));
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  for (let i = 0; i < times; i++) {
    const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);
    const field = (name) => answer.headers.get(name);
    console.log(answer.status, field("x-ratelimit-limit"), field("x-ratelimit-remaining"), field("retry-after"));
  }
  server.closeAllConnections();
  server.close();
}

await ask({ service: process.argv[2], failOpen: false }, 3);
await ask({ service: "http://127.0.0.1:1", failOpen: true }, 1);
await ask({ service: "http://127.0.0.1:1", failOpen: false }, 1);
