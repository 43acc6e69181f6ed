#!/usr/bin/env bash
# Puts 10,000 slow clients, then 10,000 idle connections, then a streamed body of 1 GiB on the gateway,
# and prints its memory after each. It stops by itself. Loopback only.
#
#   scripts/abuse-gateway.sh [CLIENTS, 10000] [MEBIBYTES, 1024]
set -euo pipefail
cd "$(dirname "$0")/.."
clients=${1:-10000} mebibytes=${2:-1024}
ulimit -n "$(ulimit -Hn)"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
[ -n "${BALDE_BIN:-}" ] || cargo build --release --quiet -p balde-cli
exec python3 - "${BALDE_BIN:-$target/release/balde}" "$clients" "$mebibytes" <<'PYTHON'
import http.server, os, signal, socket, subprocess, sys, tempfile, threading, time

balde, clients, mebibytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self): self.answer("ok")
    def do_POST(self):
        left = total = int(self.headers["Content-Length"])
        while left:
            part = self.rfile.read(min(left, 1 << 20))
            if not part:
                self.close_connection = True
                return
            left -= len(part)
        self.answer(str(total))

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4096

upstream = Server(("127.0.0.1", 0), Sink)
threading.Thread(target=upstream.serve_forever, daemon=True).start()
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
folder = tempfile.mkdtemp()
config = os.path.join(folder, "gateway.toml")
with open(config, "w") as file:
    file.write(f'''
[[listener]]
address = "127.0.0.1:{port}"
[[upstream]]
name = "sink"
url = "http://127.0.0.1:{upstream.server_port}"
[[route]]
path = "/"
upstream = "sink"
[server]
body_size_max = "{mebibytes} MiB"
[[policies.policy]]
name = "all"
scope = "user"
limit = "1000000/s"
''')
gateway = subprocess.Popen([balde, "gateway", "-c", config, "--log-level", "error"], stdout=subprocess.DEVNULL)

def memory():
    with open(f"/proc/{gateway.pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status if ":" in line)
    return lines["VmRSS"].strip(), lines["VmHWM"].strip()

def connect():
    return socket.create_connection(("127.0.0.1", port), timeout=30)

def request():
    with connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while chunk := client.recv(4096):
            answer += chunk
    return answer.split(b" ", 2)[1].decode() if answer else "nothing"

def show(what, started):
    rss, peak = memory()
    print(f"{what}: {time.time() - started:.1f} s, memory {rss}, peak {peak}, another request: {request()}", flush=True)

try:
    for _ in range(200):
        try:
            assert request() == "200"
            break
        except (OSError, AssertionError):
            time.sleep(0.05)
    show("started", time.time())
    begun = time.time()
    slow = []
    for number in range(clients):
        client = connect()
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n" + (b"\r\nab" if number % 2 else b"X-Slow: "))
        slow.append(client)
    show(f"{clients} slow clients, half of them within a head and half within a body", begun)
    for client in slow:
        client.close()
    begun = time.time()
    idle = []
    for number in range(clients):
        client = connect()
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        client.recv(4096)
        idle.append(client)
    show(f"{clients} idle keep-alive connections", begun)
    for client in idle:
        client.close()
    begun = time.time()
    with connect() as client:
        length = mebibytes << 20
        client.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n".encode())
        chunk = bytes(1 << 20)
        for _ in range(mebibytes):
            client.sendall(chunk)
        answer = b""
        while part := client.recv(4096):
            answer += part
    assert answer.endswith(str(length).encode()), answer
    show(f"a streamed body of {mebibytes} MiB", begun)
finally:
    gateway.send_signal(signal.SIGTERM)
    try:
        print("exit code", gateway.wait(60))
    except subprocess.TimeoutExpired:
        gateway.kill()
PYTHON
