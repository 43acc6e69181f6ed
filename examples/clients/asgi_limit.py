"""Middleware for FastAPI, Starlette and every other ASGI application. Standard library only.

    app.add_middleware(BaldeLimit, service="http://127.0.0.1:8085", limit="per_user", fail_open=True)
"""

import asyncio
import json
import math

from check import check


class BaldeLimit:
    def __init__(self, app, service, limit, fail_open, key=None, timeout=0.2):
        self.app, self.service, self.limit = app, service, limit
        self.fail_open, self.timeout = fail_open, timeout
        # By default each address has its own bucket. Behind a proxy, give a function of your own.
        self.key = key or (lambda scope: (scope.get("client") or ["unknown"])[0])

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        arguments = (self.service, self.limit, self.key(scope), 1, self.timeout)
        decision = await asyncio.to_thread(check, *arguments)
        if decision is None:
            if self.fail_open:
                return await self.app(scope, receive, send)
            return await answer(send, 503, "The rate limiter is unavailable", [("retry-after", "1")])
        fields = [
            ("x-ratelimit-limit", str(decision["capacity"])),
            ("x-ratelimit-remaining", str(decision["remaining"])),
            ("x-ratelimit-reset", str(math.ceil(decision["full_after_us"] / 1e6))),
        ]
        if not decision["allowed"]:
            if decision["retry_after_us"] is not None:
                fields.append(("retry-after", str(math.ceil(decision["retry_after_us"] / 1e6))))
            return await answer(send, 429, "Too many requests", fields)

        async def send_with_fields(message):
            if message["type"] == "http.response.start":
                message["headers"] = list(message.get("headers", [])) + encoded(fields)
            await send(message)

        await self.app(scope, receive, send_with_fields)


def encoded(fields):
    return [(name.encode(), value.encode()) for name, value in fields]


async def answer(send, status, title, fields):
    body = json.dumps({"title": title, "status": status}).encode()
    fields = fields + [("content-type", "application/problem+json"), ("content-length", str(len(body)))]
    await send({"type": "http.response.start", "status": status, "headers": encoded(fields)})
    await send({"type": "http.response.body", "body": body})
