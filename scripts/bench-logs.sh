#!/usr/bin/env bash
# Nobody reads the gateway's log: what do requests notice? Sends 100,000 requests in each round, with an
# access log, in turn to a gateway whose standard output is /dev/null and to one whose standard output is a
# pipe that nobody reads. Prints the latencies of each round and the lines that were dropped. It stops by
# itself. Loopback only; needs nginx, h2load and python3.
#
#   scripts/bench-logs.sh [ROUNDS, 5] [REQUESTS of each round, 100000]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} requests=${2:-100000}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
[ -n "${BALDE_BIN:-}" ] || cargo build --release --quiet -p balde-cli
exec python3 - "${BALDE_BIN:-$target/release/balde}" "$rounds" "$requests" <<'PYTHON'
import http.client, os, shutil, socket, statistics, subprocess, sys, tempfile, time

balde, rounds, requests = sys.argv[1], int(sys.argv[2]), sys.argv[3]
folder, started = tempfile.mkdtemp(), []
os.chmod(folder, 0o755)

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Authorization": "Bearer t"})
    return connection.getresponse().read().decode()

def wait_for(port, path):
    for _ in range(400):
        try: return get(port, path)
        except OSError: time.sleep(0.05)
    raise SystemExit(f"nothing answers on port {port}")

upstream = free_port()
with open(f"{folder}/nginx.conf", "w") as file:
    file.write(f'''
pid {folder}/nginx.pid; worker_processes 1; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 100000000;
    client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{ listen 127.0.0.1:{upstream}; return 200 "ok"; }} }}
''')
started.append(subprocess.Popen(["nginx", "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log", "-g", "daemon off;"]))
wait_for(upstream, "/")

def gateway(name, stdout):
    port, state = free_port(), free_port()
    config = f"{folder}/{name}.toml"
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
access_log = true
drain_delay = "0 s"
''')
    process = subprocess.Popen([balde, "gateway", "-c", config], stdout=stdout, stderr=stdout, env={**os.environ, "TOKEN": "t"})
    started.append(process)
    wait_for(state, "/healthz")
    return process, port, state

def measure(port):
    log = f"{folder}/times"
    if os.path.exists(log): os.remove(log)
    run = subprocess.run(["h2load", "--h1", "-n", requests, "-c", "8", "-t", "1", f"--log-file={log}", f"http://127.0.0.1:{port}/"], capture_output=True, text=True)
    with open(log) as file:
        rows = [line.split() for line in file]
    failed = sum(row[1] != "200" for row in rows) + int(requests) - len(rows)
    times = sorted(int(row[2]) for row in rows)
    return times[len(times) // 2] / 1000, times[int(len(times) * 0.99)] / 1000, failed

def dropped(state):
    for line in get(state, "/metrics").splitlines():
        if line.startswith("balde_log_lines_dropped_total"): return line.split()[1]

try:
    reader, writer = os.pipe()
    read = gateway("read", subprocess.DEVNULL)
    unread = gateway("unread", writer)
    os.close(writer)
    both = {"read": [], "unread": []}
    for number in range(rounds):
        order = [("read", read), ("unread", unread)]
        for name, (_, port, _) in order if number % 2 else reversed(order):
            p50, p99, failed = measure(port)
            both[name].append(p99)
            print(f"round {number + 1}, {name}: p50 {p50:.3f} ms, p99 {p99:.3f} ms, failed {failed}", flush=True)
    medians = {name: statistics.median(p99s) for name, p99s in both.items()}
    print(f"median p99: read {medians['read']:.3f} ms, unread {medians['unread']:.3f} ms, ratio {medians['unread'] / medians['read']:.3f}")
    print(f"dropped lines: read {dropped(read[2])}, unread {dropped(unread[2])}")
    begun = time.time()
    unread[0].terminate()
    print(f"exit code of the unread one {unread[0].wait(60)}, after {time.time() - begun:.1f} s")
finally:
    for process in started:
        if process.poll() is None: process.terminate()
    shutil.rmtree(folder, ignore_errors=True)
PYTHON
