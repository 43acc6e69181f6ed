"""The soak test of scripts/soak.sh: starts the parts, sends requests, injects faults, measures, judges.

Requests follow an open model: they are sent when they are due, whether earlier ones are answered or not,
and their latency counts from the time they were due. A failed request is excused only if a fault that
affects its target was under way between its start and its end.
"""

import asyncio
import glob
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict

BINARY, MINUTES, REPORT = sys.argv[1], float(sys.argv[2]), sys.argv[3]
SECONDS = MINUTES * 60
FAULT_EVERY = float(os.environ.get("BALDE_SOAK_FAULT_EVERY", "60"))
# After the last step of a fault: connections are opened again, breakers close, the standby monitor leads.
RECOVERY = 10
REQUEST_TIMEOUT = 10
SAMPLE_EVERY = 10
# Growth of memory is judged from this length on: below, it is that of the start.
HEAP_JUDGED_FROM_MINUTES = 60
HEAP_GROWTH_MAX = 0.05
# The p95 of the last quarter, beside that of the second: the median of its minutes.
P95_FACTOR_MAX = 1.5
P95_SLACK_S = 0.002
ERRORS_OUTSIDE_FAULTS_MAX = 0.001
PARTICIPANT, OTHER_PARTICIPANT = "12345678", "87654321"
LEDGER_CAPACITY = 1_000_000
HOT_BURST, HOT_RATE = 20, 10
TOKEN = "soak-token-of-sixteen-or-more"

random.seed(20261117)
folder = tempfile.mkdtemp(prefix="balde-soak-")
os.chmod(folder, 0o755)
began = time.monotonic()


def now():
    return time.monotonic() - began


def say(text):
    print(f"{now():7.1f} s  {text}", flush=True)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


names = ["redis", "postgres", "simulator", "receiver"]
names += [f"{part}-{side}" for part in ("gateway", "gateway-state", "http", "resp", "proxy", "service-state", "monitor") for side in "ab"]
port = dict(zip(names, free_ports(len(names))))


def write(name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def configure():
    redis = f'[redis]\naddress = "127.0.0.1:{port["redis"]}"\ntimeout = "100 ms"\n'
    for side in "ab":
        write(f"gateway-{side}.toml", f"""
[[listener]]
address = "127.0.0.1:{port['gateway-' + side]}"
[[upstream]]
name = "dict"
url = "http://127.0.0.1:{port['simulator']}"
[[route]]
path = "/api"
upstream = "dict"
[limiting]
profile = "dict-2.12.1"
storage = "redis"
{redis}
[state]
address = "127.0.0.1:{port['gateway-state-' + side]}"
token_env = "SOAK_TOKEN"
[dict]
upstream = "dict"
participants = ["{PARTICIPANT}"]
category = "A"
""")
        write(f"service-{side}.toml", f"""
[limits.hot]
limit = "{HOT_RATE}/s burst {HOT_BURST}"
storage = "redis"
on_failure = "local"
local_share = "50%"
[limits.leased]
limit = "100/s burst 200"
storage = "redis"
on_failure = "local"
local_share = "50%"
leases = true
[limits.ledger]
limit = "1/h burst {LEDGER_CAPACITY}"
storage = "redis"
on_failure = "deny"
[limits.memory]
limit = "5/s burst 50"
{redis}
[dynamic]
storage = "redis"
on_failure = "allow"
[http]
address = "127.0.0.1:{port['http-' + side]}"
[resp]
address = "127.0.0.1:{port['resp-' + side]}"
[proxy]
address = "127.0.0.1:{port['proxy-' + side]}"
[identity]
trusted_proxies = ["127.0.0.1"]
[[policies.policy]]
name = "searches"
match = ["GET /search"]
scope = "user"
limit = "2/s burst 20"
[state]
address = "127.0.0.1:{port['service-state-' + side]}"
token_env = "SOAK_TOKEN"
""")
        write(f"monitor-{side}.toml", f"""
[http]
address = "127.0.0.1:{port['monitor-' + side]}"
[history]
address = "postgres://postgres@127.0.0.1:{port['postgres']}/soak"
[schedule]
cron = "* * * * *"
[[participant]]
ispb = "{PARTICIPANT}"
gateway = "http://127.0.0.1:{port['gateway-state-b']}/balde/states"
token_env = "SOAK_TOKEN"
[[participant]]
ispb = "{OTHER_PARTICIPANT}"
dict = "http://127.0.0.1:{port['simulator']}/api/v2/"
[severities]
WARNING = ["log", "event"]
CRITICAL = ["log", "event"]
EXHAUSTED = ["log", "event"]
[[sink]]
name = "events"
kind = "webhook"
url = "http://127.0.0.1:{port['receiver']}/"
secret_env = "SOAK_TOKEN"
""")


class Process:
    """One part: it can be killed, stopped and started again on the same port with the same data."""

    def __init__(self, name, command, **options):
        self.name, self.command, self.options = name, command, options
        self.child, self.started, self.lives, self.cpu_before = None, 0, 0, 0

    def start(self):
        log = open(os.path.join(folder, f"{self.name}.log"), "ab")
        env = dict(os.environ, SOAK_TOKEN=TOKEN, NO_COLOR="1")
        self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=folder, **self.options)
        self.started = now()
        self.lives += 1

    def send(self, which):
        self.child.send_signal(which)

    def end(self, which=signal.SIGKILL):
        self.cpu_before += cpu_s(self.child.pid)
        self.child.send_signal(which)
        self.child.wait()


def cpu_s(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(one) for one in file.read().split()]
    except OSError:
        return []


def postgres_programs():
    found = shutil.which("postgres")
    if found:
        return os.path.dirname(os.path.realpath(found))
    return os.path.dirname(sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))[-1])


def make_processes():
    programs = postgres_programs()
    data = os.path.join(folder, "postgres")
    os.mkdir(data)
    # PostgreSQL refuses to run as root.
    options = {}
    if os.getuid() == 0:
        options = {"user": "postgres", "group": "postgres", "extra_groups": []}
        shutil.chown(data, "postgres", "postgres")
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": "/", **options}
    subprocess.run([f"{programs}/initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "--no-locale", "-D", f"{data}/data"], **quiet)
    redis_data = os.path.join(folder, "redis")
    os.mkdir(redis_data)
    parts = [
        # Written before each reply, so that a killed process loses nothing (a power cut would).
        Process("redis", ["redis-server", "--port", str(port["redis"]), "--bind", "127.0.0.1", "--dir", redis_data, "--save", "", "--appendonly", "yes", "--appendfsync", "no"]),
        Process("postgres", [f"{programs}/postgres", "-D", f"{data}/data", "-k", data, "-p", str(port["postgres"]), "-c", "listen_addresses=127.0.0.1"], **options),
        Process("simulator", [BINARY, "simulate", "--listen", f"127.0.0.1:{port['simulator']}", "--entries", "1000", "--category", "A", "--log-level", "warn"]),
    ]
    for side in "ab":
        parts.append(Process(f"gateway-{side}", [BINARY, "gateway", "-c", f"{folder}/gateway-{side}.toml", "--log-level", "warn"]))
        parts.append(Process(f"service-{side}", [BINARY, "serve", "-c", f"{folder}/service-{side}.toml", "--log-level", "warn"]))
        parts.append(Process(f"monitor-{side}", [BINARY, "monitor", "-c", f"{folder}/monitor-{side}.toml", "--log-level", "warn"]))
    return {part.name: part for part in parts}, programs, quiet


class Failure(Exception):
    """A request without an answer."""


class Client:
    """Connections to one address, kept open between requests."""

    def __init__(self, name):
        self.name, self.idle = name, []

    async def connection(self):
        while self.idle:
            reader, writer = self.idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", port[self.name])

    async def exchange(self, data, read):
        connection = await self.connection()
        reader, writer = connection
        try:
            writer.write(data)
            answer, reusable = await read(reader)
        except BaseException:
            writer.close()
            raise
        if reusable and len(self.idle) < 16:
            self.idle.append(connection)
        else:
            writer.close()
        return answer


async def read_http(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = head.split("\r\n")
    status = int(lines[0].split(" ")[1])
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = b""
    if status not in (204, 304):
        if "chunked" in fields.get("transfer-encoding", ""):
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readuntil(b"\r\n")
        else:
            body = await reader.readexactly(int(fields.get("content-length", "0")))
    return (status, fields, body), fields.get("connection", "").lower() != "close"


async def read_resp(reader):
    async def value():
        line = (await reader.readuntil(b"\r\n"))[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else (await reader.readexactly(size + 2))[:-2].decode()
        if kind == b"*":
            return [await value() for _ in range(int(rest))]
        if kind == b":":
            return int(rest)
        return ("error " if kind == b"-" else "") + rest.decode()

    return await value(), True


clients = {name: Client(name) for name in names}


async def http(target, method, path, body=None, fields=()):
    body = body.encode() if isinstance(body, str) else body or b""
    lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{port[target]}", *fields]
    if body:
        lines.append(f"content-length: {len(body)}")
    return await clients[target].exchange(("\r\n".join(lines) + "\r\n\r\n").encode() + body, read_http)


async def json_call(target, path, value):
    status, _, body = await http(target, "POST", path, json.dumps(value), ["content-type: application/json"])
    return status, json.loads(body) if body else None


async def resp(target, *words):
    data = f"*{len(words)}\r\n" + "".join(f"${len(str(word))}\r\n{word}\r\n" for word in words)
    answer = await clients[target].exchange(data.encode(), read_resp)
    if isinstance(answer, str) and answer.startswith("error "):
        # BUSY and TRYAGAIN are the protocol's 503.
        return 503, answer
    return 200, answer


# What the run has seen.
requests = []  # (stream, target, due, done, result)
faults = []  # (name, affected targets, from, until)
samples = defaultdict(list)  # process -> (time, age, anonymous kB, resident kB, descriptors, threads)
gauges = []
ledger = Counter()
failed = Counter()
received = Counter()
dict_refusals = [0]
unexpected = Counter()

# Streams: each coroutine makes one request and says "ok" or what was wrong.


def expect(status, allowed, detail=""):
    return "ok" if status in allowed else f"{status} {detail}".strip()


def zipf(count):
    return int(count ** random.random())


def tax_number(seed):
    digits = [int(one) for one in f"{seed % 10**9:09}"]
    for length in (10, 11):
        rest = sum(digit * (length - place) for place, digit in enumerate(digits)) * 10 % 11
        digits.append(rest % 10)
    return "".join(map(str, digits))


async def dict_lookup(side):
    number = random.randrange(1, 1001) if random.random() > 0.02 else 5000
    fields = [
        f"PI-RequestingParticipant: {PARTICIPANT}",
        f"PI-PayerId: {tax_number(random.randrange(600))}",
        f"PI-EndToEndId: E{PARTICIPANT}202611170000{random.randrange(10**11):011}",
    ]
    status, _, body = await http(f"gateway-{side}", "GET", f"/api/v2/entries/pessoa{number:07}@exemplo.com.br", None, fields)
    return expect(status, (200, 404, 429), body[:200])


async def dict_write(side):
    key, person = f"+5561{random.randrange(10**9):09}", tax_number(random.randrange(10**9))
    entry = (
        f"<CreateEntryRequest><Signature></Signature><Entry><Key>{key}</Key><KeyType>PHONE</KeyType><Account>"
        f"<Participant>{PARTICIPANT}</Participant><Branch>0001</Branch><AccountNumber>0007654321</AccountNumber>"
        "<AccountType>CACC</AccountType><OpeningDate>2010-01-10T03:00:00Z</OpeningDate></Account><Owner>"
        f"<Type>NATURAL_PERSON</Type><TaxIdNumber>{person}</TaxIdNumber><Name>Maria Souza</Name></Owner></Entry>"
        f"<Reason>USER_REQUESTED</Reason><RequestId>a946d533-7f22-42a5-9a9b-{random.randrange(16**12):012x}</RequestId></CreateEntryRequest>"
    )
    status, _, body = await http(f"gateway-{side}", "POST", "/api/v2/entries/", entry, ["content-type: application/xml"])
    if status != 201:
        return expect(status, (429,), body[:300])
    delete = (
        f"<DeleteEntryRequest><Signature></Signature><Key>{key}</Key><Participant>{PARTICIPANT}</Participant>"
        "<Reason>USER_REQUESTED</Reason></DeleteEntryRequest>"
    )
    fields = ["content-type: application/xml"]
    status, _, body = await http(f"gateway-{side}", "POST", f"/api/v2/entries/{key.replace('+', '%2B')}/delete", delete, fields)
    return expect(status, (200, 404, 429), body[:300])


async def check(side):
    limit = random.choice(["leased", "memory"])
    status, answer = await json_call(f"http-{side}", "/v1/check", {"limit": limit, "key": f"user-{zipf(1000)}"})
    return expect(status, (200,), answer)


async def hot(side):
    status, answer = await json_call(f"http-{side}", "/v1/check", {"limit": "hot", "key": "everyone"})
    if status == 200 and answer["allowed"]:
        ledger["hot, local" if answer["fallback"] else "hot"] += 1
    return expect(status, (200,), answer)


async def counted(side):
    """A bucket that hardly refills: what it has lost at the end is what was granted."""
    ledger["asked"] += 1
    status, answer = await json_call(f"http-{side}", "/v1/check", {"limit": "ledger", "key": "everyone"})
    ledger["answered"] += 1
    if status == 200:
        if answer["fallback"] or answer["reason"] == "store_unavailable":
            # Redis may have taken the token before the time was up.
            ledger["unknown"] += 1
            return "503 store_unavailable"
        ledger["granted" if answer["allowed"] else "refused"] += 1
    else:
        ledger["unknown"] += 1
    return expect(status, (200,), answer)


async def hold(side):
    wanted = [{"limit": "memory", "key": f"hold-{zipf(100)}", "tokens": 5}]
    status, answer = await json_call(f"http-{side}", "/v1/hold", {"requests": wanted, "ttl_ms": 5000})
    if status != 200 or not answer["allowed"]:
        return expect(status, (200,), answer)
    work = random.random() / 5
    await asyncio.sleep(work)
    status, settled = await json_call(f"http-{side}", "/v1/settle", {"hold": answer["hold"], "tokens": random.randrange(8)})
    return expect(status, (200,), settled), work


async def redis_check(side):
    status, answer = await resp(f"resp-{side}", "BALDE.CHECK", "leased", f"user-{zipf(1000)}")
    return expect(status, (200,), answer)


async def throttle(side):
    status, answer = await resp(f"resp-{side}", "CL.THROTTLE", f"cell-{zipf(500)}", 15, 30, 60)
    return expect(status, (200,), answer)


async def proxy(side):
    fields = ["X-Forwarded-Method: GET", "X-Forwarded-Uri: /search?q=a", f"X-Forwarded-For: 203.0.113.{random.randrange(200)}"]
    status, _, body = await http(f"proxy-{side}", "GET", "/forward-auth", None, fields)
    return expect(status, (200, 204, 429), body[:200])


async def page(side):
    path = random.choice(["/api/v1/states", "/api/v1/status", "/metrics", "/healthz"])
    status, _, body = await http(f"monitor-{side}", "GET", path)
    return expect(status, (200,), body[:200])


# stream, target's name, requests a second
STREAMS = [
    (dict_lookup, "gateway", 10),
    (dict_write, "gateway", 0.5),
    (check, "http", 10),
    (hold, "http", 2),
    (counted, "http", 4),
    (redis_check, "resp", 10),
    (throttle, "resp", 5),
    (proxy, "proxy", 4),
    (page, "monitor", 1),
]
BURST_EVERY, BURST = 10, 40
# Which faults excuse the failures of which streams.
AFFECTS = {
    "redis": ["gateway-a", "gateway-b", "http-a", "http-b", "resp-a", "resp-b", "polls"],
    "simulator": ["gateway-a", "gateway-b", "polls"],
    "gateway-a": ["gateway-a"],
    "service-a": ["http-a", "resp-a", "proxy-a"],
    "monitor-a": ["monitor-a", "polls"],
    "monitor-b": ["monitor-b", "polls"],
    "postgres": ["monitor-a", "monitor-b"],
    "reload": [],
}


async def one(stream, part, due):
    side, work = random.choice("ab"), 0
    try:
        result = await asyncio.wait_for(stream(side), REQUEST_TIMEOUT)
    except asyncio.TimeoutError:
        result = "lost: no answer in time"
    except (OSError, EOFError, asyncio.IncompleteReadError) as error:
        result = f"lost: {type(error).__name__}"
    if isinstance(result, tuple):
        # The time between a hold and its settlement is the client's.
        result, work = result
    if result != "ok":
        failed[f"{stream.__name__} {part}-{side} {result[:80]}"] += 1
    requests.append((stream.__name__, f"{part}-{side}", due, now() - work, result))


pending = set()


def send(stream, part, due):
    task = asyncio.create_task(one(stream, part, due))
    pending.add(task)
    task.add_done_callback(pending.discard)


async def arrivals(stream, part, rate):
    due = now()
    while due < SECONDS:
        due += random.expovariate(rate)
        await asyncio.sleep(max(0, due - now()))
        send(stream, part, due)


async def bursts():
    due = now()
    while (due := due + BURST_EVERY) < SECONDS:
        await asyncio.sleep(max(0, due - now()))
        for _ in range(BURST):
            send(hot, "http", due)


async def until(what, condition, seconds=60):
    end = now() + seconds
    while now() < end:
        try:
            if await condition():
                return
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(0.1)
    raise SystemExit(f"{what} does not answer; its log is in {folder}")


async def healthy(name):
    part, _, side = name.rpartition("-")
    target = {"gateway": f"gateway-state-{side}", "service": f"service-state-{side}", "monitor": f"monitor-{side}"}.get(part, name)
    if name == "redis":
        return (await asyncio.wait_for(resp("redis", "PING"), 1))[1] == "PONG"
    if name == "postgres":
        return subprocess.run([f"{programs}/pg_isready", "-h", "127.0.0.1", "-p", str(port["postgres"]), "-U", "postgres"], stdout=subprocess.DEVNULL).returncode == 0
    path = "/sim/" if name == "simulator" else "/healthz"
    return (await asyncio.wait_for(http(target, "GET", path), 5))[0] == 200


async def kill(name, away=1.0):
    if name == "simulator":
        await count_refusals()
    parts[name].end()
    await asyncio.sleep(away)
    parts[name].start()
    if name == "simulator":
        dict_refusals.append(0)
    await until(name, lambda: healthy(name))


async def freeze(name, seconds):
    pids = [parts[name].child.pid, *children(parts[name].child.pid)]
    for which in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            try:
                os.kill(pid, which)
            except ProcessLookupError:
                pass
        if which == signal.SIGSTOP:
            await asyncio.sleep(seconds)


async def restart_postgres():
    parts["postgres"].end(signal.SIGQUIT)
    await asyncio.sleep(3)
    parts["postgres"].start()
    await until("postgres", lambda: healthy("postgres"))


async def stop_gateway():
    """SIGTERM: answers what is in flight, and drains first."""
    parts["gateway-a"].send(signal.SIGTERM)
    while parts["gateway-a"].child.poll() is None:
        await asyncio.sleep(0.1)
    parts["gateway-a"].start()
    await until("gateway-a", lambda: healthy("gateway-a"))


async def reload_all():
    for name in ("gateway-a", "gateway-b", "service-a", "service-b", "monitor-a", "monitor-b"):
        parts[name].send(signal.SIGHUP)
    await asyncio.sleep(1)


FAULTS = [
    ("Redis is killed, away for 3 s", "redis", lambda: kill("redis", 3)),
    ("gateway a is killed", "gateway-a", lambda: kill("gateway-a")),
    ("all files are read again (SIGHUP)", "reload", reload_all),
    ("service a is killed", "service-a", lambda: kill("service-a")),
    ("Redis is stopped for 5 s and goes on", "redis", lambda: freeze("redis", 5)),
    ("monitor b is stopped for 35 s and goes on", "monitor-b", lambda: freeze("monitor-b", 35)),
    ("PostgreSQL ends at once, away for 3 s", "postgres", restart_postgres),
    ("monitor a is killed", "monitor-a", lambda: kill("monitor-a")),
    ("DICT is killed, away for 2 s", "simulator", lambda: kill("simulator", 2)),
    ("PostgreSQL is stopped for 12 s and goes on", "postgres", lambda: freeze("postgres", 12)),
    ("DICT is stopped for 3 s and goes on", "simulator", lambda: freeze("simulator", 3)),
    ("gateway a ends by SIGTERM and starts again", "gateway-a", stop_gateway),
]


async def inject_faults():
    # In the middle of a minute of the wall clock: polls are at its beginning.
    await asyncio.sleep((20 - time.time()) % 60)
    number = 0
    while now() < SECONDS - 40:
        name, part, run = FAULTS[number % len(FAULTS)]
        start = now()
        say(f"fault {number + 1}: {name}")
        await run()
        faults.append((name, AFFECTS[part], start, now() + RECOVERY))
        number += 1
        await asyncio.sleep(max(0, start + FAULT_EVERY - now()))


async def raise_alerts():
    """Empties a bucket of the second participant now and then, so that alerts are raised and end."""
    # The last one is over before the end.
    for due in range(45, max(46, int(SECONDS) - 300), 285):
        await asyncio.sleep(max(0, due - now()))
        body = {"policy": "CLAIMS_WRITE", "participant": OTHER_PARTICIPANT, "level": 0}
        try:
            await http("simulator", "PUT", "/sim/buckets", json.dumps(body), ["content-type: application/json"])
        except (OSError, EOFError):
            continue


async def count_refusals():
    try:
        _, _, body = await asyncio.wait_for(http("simulator", "GET", "/sim/refusals?limit=3"), 4)
        value = json.loads(body)
        dict_refusals[-1] = max(dict_refusals[-1], value["count"])
        if value["count"]:
            say(f"DICT has refused: {value}")
    except (OSError, EOFError, asyncio.TimeoutError):
        pass


async def receive(reader, writer):
    """The receiver of alerts."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.split("content-length:")[1].split("\r\n")[0])
            event = json.loads(await reader.readexactly(length))
            received[event.get("key")] += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    except (OSError, EOFError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


def sample():
    for part in parts.values():
        pid = part.child.pid
        try:
            with open(f"/proc/{pid}/status") as file:
                status = dict(line.split(":", 1) for line in file.read().splitlines())
            kilobytes = lambda key: int(status[key].split()[0])
            row = (kilobytes("RssAnon"), kilobytes("VmRSS"), len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]))
        except (OSError, KeyError):
            continue
        samples[part.name].append((now(), now() - part.started, *row))


async def read_gauges():
    row = {}
    for side in "ab":
        try:
            _, _, body = await asyncio.wait_for(http(f"service-state-{side}", "GET", "/metrics", None, [f"authorization: Bearer {TOKEN}"]), 4)
        except (OSError, EOFError, asyncio.TimeoutError):
            continue
        for line in body.decode().splitlines():
            if line.startswith(("balde_service_open_holds", "balde_service_in_flight")):
                row[f"{line.split()[0]} {side}"] = float(line.split()[-1])
    gauges.append((now(), row))


async def observe():
    while now() < SECONDS:
        sample()
        await count_refusals()
        await read_gauges()
        with open(os.path.join(folder, "progress.json"), "w") as file:
            json.dump({"now": now(), "requests": len(requests), "failed": failed, "ledger": ledger}, file)
        await asyncio.sleep(SAMPLE_EVERY)


def excused(target, start, end):
    return any(target in affected and since <= end and start <= over for _, affected, since, over in faults)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def query(text):
    out = subprocess.run([f"{programs}/psql", "-h", "127.0.0.1", "-p", str(port["postgres"]), "-U", "postgres", "-At", "-c", text, "soak"], check=True, capture_output=True, text=True)
    return [line.split("|") for line in out.stdout.splitlines()]


class Verdict:
    def __init__(self, span):
        # The time that is judged, in seconds: all of it, or what has passed in an interim report.
        self.rows, self.span = [], span

    def judge(self, name, good, figures):
        self.rows.append((name, {True: "yes", False: "NO", None: "not judged"}[good], figures))

    def passed(self):
        return all(result != "NO" for _, result, _ in self.rows)


def judge_memory(verdict):
    for name in ("gateway-b", "service-b", "monitor-b"):
        rows = samples[name]
        quarter = lambda first, last: [row for row in rows if verdict.span * first <= row[0] < verdict.span * last]
        second, last = quarter(0.25, 0.5), quarter(0.75, 1.01)
        for column, what, unit in ((2, "heap", "kB"), (4, "file descriptors", ""), (5, "threads", "")):
            before = statistics.median(row[column] for row in second)
            after = statistics.median(row[column] for row in last)
            growth = after / before - 1
            # Connections differ from moment to moment.
            good = growth < HEAP_GROWTH_MAX or (column != 2 and after - before <= 5)
            if verdict.span < HEAP_JUDGED_FROM_MINUTES * 60 and column != 5:
                good = None
            verdict.judge(f"{what} of {name}", good, f"{before:,.0f} → {after:,.0f} {unit} ({growth * 100:+.1f} %)")


def judge_latency(verdict):
    for stream in sorted({row[0] for row in requests}):
        minutes = defaultdict(list)
        for name, target, due, done, result in requests:
            if name == stream and result == "ok" and not excused(target, due, done):
                minutes[int(due // 60)].append(done - due)
        p95 = {minute: percentile(took, 0.95) for minute, took in minutes.items()}
        quarter = lambda first, last: [value for minute, value in p95.items() if verdict.span * first <= minute * 60 < verdict.span * last]
        # The median of the minutes: one of them may be that in which the machine did something else.
        second, last = (statistics.median(quarter(*which) or p95.values()) for which in ((0.25, 0.5), (0.75, 1.01)))
        good = last <= second * P95_FACTOR_MAX + P95_SLACK_S
        verdict.judge(f"p95 of {stream}", good, f"{second * 1000:.1f} → {last * 1000:.1f} ms")


def judge_requests(verdict):
    outside = [row for row in requests if row[4] != "ok" and not excused(row[1], row[2], row[3])]
    during = [row for row in requests if row[4] != "ok" and excused(row[1], row[2], row[3])]
    lost = [row for row in outside if row[4].startswith("lost")]
    verdict.judge("every request outside of the faults of its target has an answer", not lost, f"{len(requests):,} requests, {len(lost)} without an answer, {len(during):,} failed during a fault")
    errors = len(outside) - len(lost)
    verdict.judge("errors outside of faults are below 0.1 %", errors <= len(requests) * ERRORS_OUTSIDE_FAULTS_MAX, f"{errors}")
    for row in outside[:20]:
        unexpected[f"{row[0]} at {row[1]}: {row[4][:160]}"] += 1


async def judge_ledgers(verdict):
    status, answer = await json_call("http-b", "/v1/peek", {"limit": "ledger", "key": "everyone"})
    spent = LEDGER_CAPACITY - answer["level"]
    unknown = ledger["unknown"] + ledger["asked"] - ledger["answered"]
    refilled = verdict.span / 3600 + 1
    good = status == 200 and ledger["granted"] <= spent + refilled and spent <= ledger["granted"] + unknown
    verdict.judge("a bucket in Redis has lost what was granted", good, f"{ledger['granted']:,} granted, {spent:,} taken, {unknown} without a known end")
    most = HOT_BURST + HOT_RATE * (now() + 1)
    verdict.judge("two services have not granted more than one limit", ledger["hot"] <= most, f"{ledger['hot']:,} of at most {most:,.0f}; {ledger['hot, local']} more from local buckets while Redis was away")
    verdict.judge("DICT has refused nothing", sum(dict_refusals) == 0, f"{sum(dict_refusals)} refusals in {len(dict_refusals)} lives")
    await read_gauges()
    left = {name: value for name, value in gauges[-1][1].items() if value}
    verdict.judge("no hold and no command is left", not left, f"{left or 0}")


def judge_history(verdict, wall_start):
    for participant in (PARTICIPANT, OTHER_PARTICIPANT):
        taken = [int(row[0]) / 1e6 for row in query(f"select distinct taken_us from sample join bucket on bucket.id = bucket_id where participant = '{participant}' order by 1")]
        first = (int(wall_start) // 60 + 2) * 60
        minutes = range(first, int(wall_start + verdict.span) - 60, 60)
        missing = [minute for minute in minutes if not any(minute - 1 <= at < minute + 59 for at in taken)]
        unexplained = [minute for minute in missing if not excused("polls", minute - wall_start - 30, minute - wall_start + 59)]
        verdict.judge(f"history of {participant} has no gap outside of faults", not unexplained, f"{len(minutes) - len(missing)} of {len(minutes)} minutes have a poll, {len(unexplained)} gaps are not explained by a fault")
    waiting = int(query("select count(*) from outbox where delivered_us is null")[0][0])
    keys = [row[0] for row in query("select event.key from outbox join event on event.id = event_id where sink = 'events'")]
    missed = [key for key in keys if key not in received]
    twice = sum(count - 1 for count in received.values())
    verdict.judge("every alert was delivered", waiting == 0 and not missed, f"{len(keys)} alerts to the webhook, {len(missed)} not received, {waiting} waiting, {twice} deliveries repeated")


def report(verdict, started, cpu):
    lines = [f"# Soak test of {time.strftime('%Y-%m-%d', time.gmtime(started))}", ""]
    lines += [f"`scripts/soak.sh {MINUTES:g}`, {time.strftime('%H:%M', time.gmtime(started))} to {time.strftime('%H:%M', time.gmtime())} UTC. Verdict: **{'passed' if verdict.passed() else 'failed'}**.", ""]
    lines += ["| What | Holds | Figures |", "|--|--|--|"]
    lines += [f"| {' | '.join(row)} |" for row in verdict.rows]
    lines += ["", "## Requests", "", "| Stream | Requests | Failed | p50 ms | p95 ms | p99 ms |", "|--|--|--|--|--|--|"]
    for stream in sorted({row[0] for row in requests}):
        rows = [row for row in requests if row[0] == stream]
        took = [done - due for _, target, due, done, result in rows if result == "ok" and not excused(target, due, done)]
        wrong = sum(row[4] != "ok" for row in rows)
        lines.append(f"| {stream} | {len(rows):,} | {wrong:,} | " + " | ".join(f"{percentile(took, share) * 1000:.1f}" for share in (0.5, 0.95, 0.99)) + " |")
    lines += ["", "Latencies are those outside of faults, from the time at which a request was due.", "", "## Processes", ""]
    lines += ["| Process | Lives | Heap, first and last kB | Resident kB | File descriptors | Threads | Processor s |", "|--|--|--|--|--|--|--|"]
    for name, part in parts.items():
        rows = samples[name]
        lines.append(f"| {name} | {part.lives} | {rows[0][2]:,} → {rows[-1][2]:,} | {rows[-1][3]:,} | {rows[0][4]} → {rows[-1][4]} | {rows[0][5]} → {rows[-1][5]} | {cpu[name]:.0f} |")
    lines += ["", f"The load generator used {time.process_time():.0f} s of processor time.", "", "## Faults", "", "| Fault | Times | Requests that failed |", "|--|--|--|"]
    for name, _, _ in FAULTS:
        windows = [fault for fault in faults if fault[0] == name]
        hit = sum(result != "ok" and any(target in affected and since <= done and due <= over for _, affected, since, over in windows) for _, target, due, done, result in requests)
        lines.append(f"| {name} | {len(windows)} | {hit} |")
    if unexpected:
        lines += ["", "## Failures outside of faults", "", *(f"- {count} × `{text}`" for text, count in unexpected.items())]
    return "\n".join(lines) + "\n"


async def judge(span, wall_start, cpu):
    verdict = Verdict(span)
    unexpected.clear()
    judge_requests(verdict)
    await judge_ledgers(verdict)
    judge_history(verdict, wall_start)
    judge_latency(verdict)
    judge_memory(verdict)
    text = report(verdict, wall_start, cpu)
    os.makedirs(os.path.dirname(os.path.abspath(REPORT)), exist_ok=True)
    with open(REPORT, "w") as file:
        file.write(text)
    print(text, flush=True)
    return verdict


async def interim_reports(wall_start, cpu_of):
    """Writes a report of what has passed when SIGUSR1 is received."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked.set)
    while True:
        await asked.wait()
        asked.clear()
        say("an interim report")
        try:
            await judge(now(), wall_start, cpu_of())
        except Exception as error:  # The run goes on whatever becomes of the report.
            say(f"no interim report: {error!r}")


async def main():
    global began
    server = await asyncio.start_server(receive, "127.0.0.1", port["receiver"])
    for name in ("redis", "postgres", "simulator"):
        parts[name].start()
        await until(name, lambda: healthy(name))
    subprocess.run([f"{programs}/createdb", "-h", "127.0.0.1", "-p", str(port["postgres"]), "-U", "postgres", "soak"], **quiet)
    for name in parts:
        if parts[name].child is None:
            parts[name].start()
            await until(name, lambda: healthy(name))
    await asyncio.sleep(2)
    say(f"all parts run, in {folder}")
    began, wall_start = time.monotonic(), time.time()
    for part in parts.values():
        part.started = 0
    before = {name: cpu_s(part.child.pid) for name, part in parts.items()}
    cpu_of = lambda: {name: part.cpu_before + cpu_s(part.child.pid) - before[name] for name, part in parts.items()}
    interim = asyncio.create_task(interim_reports(wall_start, cpu_of))
    jobs = [arrivals(*stream) for stream in STREAMS] + [bursts(), inject_faults(), raise_alerts(), observe()]
    await asyncio.gather(*jobs)
    while pending:
        await asyncio.sleep(0.2)
    # Holds of a killed service expire, and alerts that are being retried arrive.
    await asyncio.sleep(40)
    interim.cancel()
    cpu = cpu_of()
    await count_refusals()
    verdict = await judge(SECONDS, wall_start, cpu)
    say(f"the parts used {sum(cpu.values()) / SECONDS:.1%} of one core; the report is in {REPORT}")
    server.close()
    return verdict.passed()


def end(*_):
    raise SystemExit("ended by a signal")


signal.signal(signal.SIGTERM, end)
configure()
parts, programs, quiet = make_processes()
passed = False
try:
    passed = asyncio.run(main())
finally:
    for part in parts.values():
        if part.child and part.child.poll() is None:
            part.child.send_signal(signal.SIGCONT)
            part.child.send_signal(signal.SIGQUIT if part.name == "postgres" else signal.SIGKILL)
            part.child.wait()
    if passed:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"logs are in {folder}", file=sys.stderr)
sys.exit(0 if passed else 1)
