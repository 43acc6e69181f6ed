#!/usr/bin/env bash
# Attacks the gateway and the monitor with slow clients, and measures what others notice: the latency of
# their requests, responses with a 5xx, and the latency of /healthz. Prints one line for each attack. It
# stops by itself. Loopback only; needs nginx as upstream and python3.
#
#   scripts/attack-gateway.sh [SECONDS of each attack, 15]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-15}
ulimit -n "$(ulimit -Hn)"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
[ -n "${BALDE_BIN:-}" ] || cargo build --release --quiet -p balde-cli
exec python3 - "${BALDE_BIN:-$target/release/balde}" "$seconds" <<'PYTHON'
import http.client, multiprocessing, os, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time

balde, seconds = sys.argv[1], float(sys.argv[2])
multiprocessing.set_start_method("fork")
folder = tempfile.mkdtemp()
os.chmod(folder, 0o755)
started = []

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

def start(arguments, **more):
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    started.append(process)
    return process

def wait_for(port, path):
    for _ in range(400):
        try:
            if get(port, path)[0] < 500: return
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"nothing answers on port {port}")

def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body

upstream, posts = free_port(), free_port()
os.mkdir(f"{folder}/www")
with open(f"{folder}/www/big", "wb") as file: file.write(b"x" * 100_000)
with open(f"{folder}/www/small", "wb") as file: file.write(b"ok")
with open(f"{folder}/nginx.conf", "w") as file:
    file.write(f'''
pid {folder}/nginx.pid;
worker_processes 1;
error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    send_timeout 600s; client_body_timeout 600s; keepalive_requests 1000000;
    server {{ listen 127.0.0.1:{upstream} backlog=8192; root {folder}/www;
        location /post {{ proxy_pass http://127.0.0.1:{posts}; }} }}
    server {{ listen 127.0.0.1:{posts}; return 200 "ok"; }}
}}
''')
start(["nginx", "-c", f"{folder}/nginx.conf", "-g", "daemon off;", "-e", f"{folder}/error.log"])
wait_for(upstream, "/small")

def gateway():
    port, state = free_port(), free_port()
    config = f"{folder}/gateway-{port}.toml"
    with open(config, "w") as file:
        file.write(f'''
[[listener]]
address = "127.0.0.1:{port}"
[[upstream]]
name = "nginx"
url = "http://127.0.0.1:{upstream}"
[[route]]
path = "/"
upstream = "nginx"
[state]
address = "127.0.0.1:{state}"
token_env = "TOKEN"
[server]
drain_delay = "0 s"
[[policies.policy]]
name = "all"
scope = "user"
limit = "1000000/s"
''')
    process = start([balde, "gateway", "-c", config, "--log-level", "error"], env={**os.environ, "TOKEN": "t"})
    wait_for(state, "/healthz")
    return process, port, state

class Load:
    """Requests of others, some hundreds a second, over connections that are kept. Probes open new ones."""
    def __init__(self, port, path, clients=8, pause=0.02, is_kept=True):
        self.port, self.path, self.pause, self.is_kept = port, path, pause, is_kept
        self.times, self.statuses, self.is_over = [], {}, False
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(clients)]
        for thread in self.threads: thread.start()
    def run(self):
        connection = None
        while not self.is_over:
            begun = time.perf_counter()
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                connection.request("GET", self.path)
                response = connection.getresponse()
                response.read()
                status = response.status
                if not self.is_kept:
                    connection.close()
                    connection = None
            except OSError as error:
                connection, status = None, type(error).__name__
            except http.client.HTTPException as error:
                connection, status = None, type(error).__name__
            self.times.append((time.perf_counter() - begun) * 1000)
            self.statuses[status] = self.statuses.get(status, 0) + 1
            time.sleep(self.pause)
    def stop(self):
        self.is_over = True
        for thread in self.threads: thread.join()
        times = sorted(self.times)
        at = lambda share: times[min(len(times) - 1, int(len(times) * share))]
        return f"{len(times)} requests, p50 {at(0.5):.1f} ms, p99 {at(0.99):.1f} ms, longest {times[-1]:.0f} ms, {self.statuses}"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

def h2_connection(port, streams):
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    # SETTINGS_INITIAL_WINDOW_SIZE = 0: the server may send no byte of a body.
    data = PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0))
    path = b"/big"
    block = b"\x82\x86" + b"\x04" + bytes([len(path)]) + path + b"\x01\x01x"
    for number in range(streams):
        data += frame(1, 5, 2 * number + 1, block)
    client.sendall(data)
    return client

def drain(clients, is_over):
    """Reads frames and answers pings, so that the connections stay open."""
    while not is_over():
        for client in clients:
            try:
                client.setblocking(False)
                received = client.recv(65536)
                at = 0
                while at + 9 <= len(received):
                    length = int.from_bytes(received[at:at + 3], "big")
                    if received[at + 3] == 6 and not received[at + 4] & 1:
                        client.sendall(frame(6, 1, 0, received[at + 9:at + 17]))
                    at += 9 + length
            except OSError:
                pass
        time.sleep(0.05)

def attack_for(run, port, state):
    held = run(port, state)
    time.sleep(seconds + 60)
    print(len(held))

def attack(name, others_path, run):
    process, port, state = gateway()
    others, health = Load(port, others_path), Load(state, "/healthz", clients=1, pause=0.01, is_kept=False)
    time.sleep(1)
    # In a process of its own, so that the measuring threads do not wait for it.
    attacker = multiprocessing.Process(target=attack_for, args=(run, port, state), daemon=True)
    attacker.start()
    time.sleep(seconds)
    print(f"{name}\n  others:   {others.stop()}\n  /healthz: {health.stop()}", flush=True)
    attacker.kill()
    process.send_signal(signal.SIGTERM)
    try: process.wait(40)
    except subprocess.TimeoutExpired: process.kill()

def windows(connections, streams):
    def run(port, _):
        clients = [h2_connection(port, streams) for _ in range(connections)]
        end = time.time() + seconds
        threading.Thread(target=drain, args=(clients, lambda: time.time() > end), daemon=True).start()
        return clients
    return run

def bodies(count):
    def run(port, _):
        clients = []
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            client.sendall(b"POST /post HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab")
            clients.append(client)
        return clients
    return run

def readers(count):
    def run(port, _):
        clients = []
        for _ in range(count):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
            clients.append(client)
        return clients
    return run

def health_readers(count):
    def run(_, state):
        clients = []
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", state), timeout=60)
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
            clients.append(client)
        return clients
    return run

def monitor(count):
    port = free_port()
    config = f"{folder}/monitor.toml"
    with open(config, "w") as file:
        file.write(f'''
[http]
address = "127.0.0.1:{port}"
[history]
address = "{folder}/monitor.db"
[[participant]]
ispb = "12345678"
dict = "http://127.0.0.1:{upstream}/"
''')
    process = start([balde, "monitor", "-c", config, "--log-level", "error"])
    wait_for(port, "/healthz")
    health = Load(port, "/healthz", clients=1, pause=0.01, is_kept=False)
    time.sleep(1)
    def streams(port, _):
        clients = []
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            client.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            clients.append(client)
        return clients
    attacker = multiprocessing.Process(target=attack_for, args=(streams, port, None), daemon=True)
    attacker.start()
    time.sleep(seconds)
    print(f"monitor: {count} event streams that read nothing\n  /healthz: {health.stop()}", flush=True)
    attacker.kill()
    process.terminate()
    process.wait(40)

try:
    attack("nobody attacks", "/small", lambda *_: [])
    attack("HTTP/2: 110 connections x 100 streams that ask for 100 kB and take nothing", "/small", windows(110, 100))
    attack("the same, and the others ask for 100 kB, too", "/big", windows(110, 100))
    attack("5,040 clients that stop within a body", "/small", bodies(5040))
    attack("2,000 HTTP/1 clients that ask for 2 MB and read nothing", "/small", readers(2000))
    attack("640 connections to the state endpoint that read nothing", "/small", health_readers(640))
    monitor(1400)
finally:
    for process in started:
        if process.poll() is None: process.terminate()
    shutil.rmtree(folder, ignore_errors=True)
PYTHON
