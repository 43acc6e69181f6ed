// Runs the middleware in front of a small server: node express_limit_test.mjs URL
import http from "node:http";

import { baldeLimit } from "./express_limit.mjs";

async function ask(options, times) {
  const limited = baldeLimit({ limit: "per_user", key: () => "node", timeout: 10_000, ...options });
  const server = http.createServer((request, response) => {
    limited(request, response, () => response.end("hello"));
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
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
