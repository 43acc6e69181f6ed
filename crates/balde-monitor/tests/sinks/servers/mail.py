"""A mail server (aiosmtpd) on a free port. Prints one line of JSON for its port and for each message.

Arguments: plain | starttls | tls, certificate, key, user, password (empty: no authentication).
Lines on the standard input: "defer N" answers the next N messages with 451, "down" closes the server and
its connections, "up" listens on the same port again.
"""
import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

mode, certificate, key, user, password = sys.argv[1:]


def say(**fields):
    print(json.dumps(fields), flush=True)


class Handler:
    deferred = 0

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 5.1.1 there is no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        if Handler.deferred > 0:
            Handler.deferred -= 1
            say(event="deferred", id=message["Message-ID"])
            return "451 4.7.1 greylisted, come back later"
        say(
            event="message",
            tls=server.transport.get_extra_info("ssl_object") is not None,
            user=str(session.auth_data) if session.auth_data else None,
            sender=envelope.mail_from,
            to=envelope.rcpt_tos,
            headers={name: str(value) for name, value in message.items()},
            text=message.get_content(),
        )
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    fits = data.login.decode() == user and data.password.decode() == password
    return AuthResult(success=fits, handled=fits, auth_data=user)


connections = set()


def protocol():
    context = None
    if mode != "plain":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
    smtp = SMTP(
        Handler(),
        hostname="mail.test",
        tls_context=context if mode == "starttls" else None,
        require_starttls=mode == "starttls",
        authenticator=authenticate if user else None,
        auth_required=bool(user),
        auth_require_tls=mode == "starttls",
    )
    connections.add(smtp)
    return smtp


async def main():
    loop = asyncio.get_running_loop()
    context = None
    if mode == "tls":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)

    async def listen(port):
        return await loop.create_server(protocol, "127.0.0.1", port, ssl=context)

    server = await listen(0)
    port = server.sockets[0].getsockname()[1]
    say(event="ready", port=port)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, *rest = line.split()
        if command == "defer":
            Handler.deferred = int(rest[0])
        elif command == "down":
            server.close()
            for smtp in connections:
                if smtp.transport is not None:
                    smtp.transport.abort()
            connections.clear()
        elif command == "up":
            server = await listen(port)
        say(event="done")


asyncio.run(main())
