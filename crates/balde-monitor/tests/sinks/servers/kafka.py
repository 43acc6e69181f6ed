"""A Kafka broker on a free port: the one that librdkafka has inside (confluent-kafka), which speaks
Kafka's protocol over TCP, but neither TLS nor SASL. A front does that: it ends TLS, checks SASL itself,
and passes everything else on, with its own port in the list of brokers.

Arguments: certificate, key, CA of clients, SASL mechanism, user, password; each may be empty.
Lines on the standard input: "create TOPIC", "read TOPIC" (prints all records), "down", "up".
"""
import asyncio
import base64
import hashlib
import hmac
import json
import os
import ssl
import struct
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

certificate, key, client_ca, mechanism, user, password = sys.argv[1:]
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
SUPPORTED = [(0, 3, 7), (3, 0, 4), (API_VERSIONS, 0, 3), (SASL_HANDSHAKE, 0, 1), (SASL_AUTHENTICATE, 0, 1)]
AUTHENTICATION_FAILED, UNSUPPORTED_MECHANISM = 58, 33


def say(**fields):
    print(json.dumps(fields), flush=True)


cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(cluster.list_topics(timeout=30).brokers.values()))


def api_versions(version):
    if version >= 3:
        entries = b"".join(struct.pack(">hhhB", *entry, 0) for entry in SUPPORTED)
        return struct.pack(">hB", 0, len(SUPPORTED) + 1) + entries + struct.pack(">iB", 0, 0)
    entries = b"".join(struct.pack(">hhh", *entry) for entry in SUPPORTED)
    return struct.pack(">hi", 0, len(SUPPORTED)) + entries + (struct.pack(">i", 0) if version else b"")


class Scram:
    """The server's side of RFC 5802."""

    def __init__(self, digest):
        self.digest, self.salt = digest, os.urandom(16)
        self.salted = hashlib.pbkdf2_hmac(digest, password.encode(), self.salt, 4096)

    def mac(self, key, text):
        return hmac.new(key, text, self.digest).digest()

    def step(self, data):
        text = data.decode()
        if text.startswith("n,,"):
            self.first = text[3:]
            fields = dict(part.split("=", 1) for part in self.first.split(","))
            if fields["n"] != user:
                return None
            nonce = fields["r"] + base64.b64encode(os.urandom(12)).decode()
            self.challenge = f"r={nonce},s={base64.b64encode(self.salt).decode()},i=4096"
            return self.challenge.encode()
        bare, proof = text.rsplit(",p=", 1)
        signed = f"{self.first},{self.challenge},{bare}".encode()
        stored = hashlib.new(self.digest, self.mac(self.salted, b"Client Key")).digest()
        signature = self.mac(stored, signed)
        client = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature))
        if hashlib.new(self.digest, client).digest() != stored:
            return None
        server = self.mac(self.mac(self.salted, b"Server Key"), signed)
        return b"v=" + base64.b64encode(server)


class Plain:
    def step(self, data):
        return b"" if data == f"\0{user}\0{password}".encode() else None


def sasl():
    return {
        "PLAIN": Plain,
        "SCRAM-SHA-256": lambda: Scram("sha256"),
        "SCRAM-SHA-512": lambda: Scram("sha512"),
    }[mechanism]()


async def frame(reader):
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def accept(reader, writer):
    task = asyncio.create_task(serve(reader, writer))
    tasks.add(task)
    await asyncio.wait([task])


async def serve(reader, writer):
    inner_reader, inner_writer = await asyncio.open_connection(broker.host, broker.port)
    mine = f"{broker.host}".encode() + struct.pack(">i", broker.port)
    public = f"{broker.host}".encode() + struct.pack(">i", port)
    state, is_known = None, not mechanism

    async def replies():
        while True:
            reply = (await frame(inner_reader)).replace(mine, public)
            writer.write(struct.pack(">i", len(reply)) + reply)

    back = asyncio.create_task(replies())
    tasks.add(back)
    try:
        while True:
            request = await frame(reader)
            api, version, correlation, name = struct.unpack(">hhih", request[:10])
            body = request[10 + max(name, 0):]
            if api == API_VERSIONS:
                answer = api_versions(version)
            elif api == SASL_HANDSHAKE:
                asked = body[2:].decode()
                error = 0 if asked == mechanism else UNSUPPORTED_MECHANISM
                answer = struct.pack(">hih", error, 1, len(mechanism)) + mechanism.encode()
            elif api == SASL_AUTHENTICATE:
                state = state or sasl()
                (length,) = struct.unpack(">i", body[:4])
                proof = state.step(body[4:4 + length])
                is_known = is_known or proof == b"" or (proof or b"").startswith(b"v=")
                error = AUTHENTICATION_FAILED if proof is None else 0
                proof = proof or b""
                answer = struct.pack(">hhi", error, -1, len(proof)) + proof
                answer += struct.pack(">q", 0) if version else b""
            elif not is_known:
                say(event="intruder", api=api)
                return
            else:
                inner_writer.write(struct.pack(">i", len(request)) + request)
                continue
            answer = struct.pack(">i", correlation) + answer
            writer.write(struct.pack(">i", len(answer)) + answer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        back.cancel()
        writer.close()
        inner_writer.close()


def read(topic):
    consumer = Consumer({
        "bootstrap.servers": f"{broker.host}:{broker.port}",
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "log_level": 0,
    })
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    ended = 0
    while ended < len(partitions):
        record = consumer.poll(30)
        if record is None:
            raise RuntimeError("the broker does not answer")
        if record.error():
            ended += 1
            continue
        say(
            event="record",
            partition=record.partition(),
            offset=record.offset(),
            key=record.key().decode(),
            value=record.value().decode(),
            at_ms=record.timestamp()[1],
            headers={name: value.decode() for name, value in record.headers()},
        )
    consumer.close()


tasks = set()
port = 0


async def main():
    global port
    context = None
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        if client_ca:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    say(event="ready", port=port)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, *rest = line.split()
        if command == "create":
            cluster.list_topics(rest[0], timeout=30)
        elif command == "read":
            read(rest[0])
        elif command == "down":
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tasks.clear()
        elif command == "up":
            server = await asyncio.start_server(accept, "127.0.0.1", port, ssl=context)
        say(event="done")


asyncio.run(main())
