"""Runs the middleware in front of a small application, without a server: python3 asgi_limit_test.py URL"""

import asyncio
import sys

from asgi_limit import BaldeLimit


async def application(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def ask(app):
    messages = []

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "client": ["192.0.2.7", 4000]}
    await app(scope, None, send)
    fields = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], fields


async def main(service):
    app = BaldeLimit(application, service, "per_user", fail_open=False, timeout=10)
    for _ in range(3):
        status, fields = await ask(app)
        print(status, fields["x-ratelimit-limit"], fields["x-ratelimit-remaining"], fields.get("retry-after"))
    nobody = "http://127.0.0.1:1"
    for fail_open in (True, False):
        status, _ = await ask(BaldeLimit(application, nobody, "per_user", fail_open))
        print(status)


asyncio.run(main(sys.argv[1]))
