// Middleware for Express, Connect and Node's own http server.
//
//   app.use(baldeLimit({ service: "http://127.0.0.1:8085", limit: "per_user", failOpen: true }));

import { check } from "./check.mjs";

export function baldeLimit({ service, limit, failOpen, key = address, timeout = 200, token }) {
  return async (request, response, next) => {
    let decision;
    try {
      decision = await check(service, limit, key(request), { timeout, token });
    } catch (error) {
      return next(error);
    }
    if (decision === null) {
      if (failOpen) return next();
      response.setHeader("Retry-After", "1");
      return answer(response, 503, "The rate limiter is unavailable");
    }
    response.setHeader("X-RateLimit-Limit", decision.capacity);
    response.setHeader("X-RateLimit-Remaining", decision.remaining);
    response.setHeader("X-RateLimit-Reset", Math.ceil(decision.full_after_us / 1e6));
    if (decision.allowed) return next();
    if (decision.retry_after_us !== null) {
      response.setHeader("Retry-After", Math.ceil(decision.retry_after_us / 1e6));
    }
    return answer(response, 429, "Too many requests");
  };
}

// Each address has its own bucket. Behind a proxy, give a function of your own.
function address(request) {
  return request.socket.remoteAddress ?? "unknown";
}

function answer(response, status, title) {
  response.statusCode = status;
  response.setHeader("Content-Type", "application/problem+json");
  response.end(JSON.stringify({ title, status }));
}
