#!/usr/bin/env bash
# Measures `balde serve` beside throttlecrab-server (crates.io) over HTTP, the Redis protocol and gRPC, and over the
# Redis protocol beside redis-server with the module redis-cell (crates.io, too): decisions per second, decisions
# per second of the server's processor time, p50, p99, and memory per million keys. All
# servers have one core, the program that asks has another. Rounds are interleaved; the tables show the
# medians, and the median of the ratios within a round. Loopback only.
#
#   scripts/bench-service.sh [SECONDS per measurement, 3] [ROUNDS, 5] [CONNECTIONS, 32]
#
# BALDE_BIN names another binary than the one of a release build, THROTTLECRAB_BIN another server than the one
# that is installed below the target folder. PROTOCOLS selects some of: http resp resp-pipelined grpc.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3} rounds=${2:-5} connections=${3:-32}
version=0.4.40

source scripts/common.sh
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
throttlecrab=${THROTTLECRAB_BIN:-$target/bench-peers/bin/throttlecrab-server}
[ -x "$throttlecrab" ] ||
  cargo install --quiet throttlecrab-server --version $version --root "$target/bench-peers" --target-dir "$target/bench-peers/build"
cell=$target/bench-peers/redis-cell
if [ ! -e "$cell/target/release/libredis_cell.so" ]; then
  # The module is a dynamic library, which cargo builds as a dependency.
  mkdir -p "$cell/src"
  touch "$cell/src/lib.rs"
  printf '[package]\nname = "cell"\nedition = "2024"\n[dependencies]\nredis-cell = "=0.2.2"\n[workspace]\n' >"$cell/Cargo.toml"
  cargo build --quiet --release --manifest-path "$cell/Cargo.toml" --target-dir "$cell/target"
fi
balde=${BALDE_BIN:-$target/release/balde}
[ -n "${BALDE_BIN:-}" ] || cargo build --quiet --release -p balde-cli --bin balde
[ -n "${BALDE_BIN:-}" ] && [ -x "$target/release/examples/service_load" ] ||
  cargo build --quiet --release -p balde-service --example service_load
load=$target/release/examples/service_load

start_folder
cat >"$folder/service.toml" <<CONF
[limits.users]
limit = "1000000/s burst 1000000"
keys_max = 4000000
[dynamic]
keys_max = 4000000
[http]
address = "127.0.0.1:19801"
[resp]
address = "127.0.0.1:19802"
[rls]
address = "127.0.0.1:19803"
headers = false
[[rls.rule]]
domain = "edge"
match = ["user"]
limit = "users"
[server]
workers = 1
CONF
declare -A pid
declare -A port=([balde-http]=19801 [balde-resp]=19802 [balde-grpc]=19803
  [throttlecrab-http]=19811 [throttlecrab-resp]=19812 [throttlecrab-grpc]=19813 [redis-cell-resp]=19822)
start_servers() {
  run taskset -c 0 "$balde" serve -c "$folder/service.toml" --log-level error
  pid[balde]=$!
  run taskset -c 0 "$throttlecrab" --http --http-host 127.0.0.1 --http-port 19811 --redis --redis-host 127.0.0.1 \
    --redis-port 19812 --grpc --grpc-host 127.0.0.1 --grpc-port 19813 --log-level error --store-capacity 1000000
  pid[throttlecrab]=$!
  # The module is linked with the shared standard library of Rust.
  run env LD_LIBRARY_PATH="$(rustc --print target-libdir)" taskset -c 0 redis-server --bind 127.0.0.1 --port 19822 --save '' --appendonly no --dir "$folder" \
    --loadmodule "$cell/target/release/libredis_cell.so"
  pid[redis-cell]=$!
  local name
  for name in "${!port[@]}"; do
    for _ in $(seq 200); do
      (exec 3<>"/dev/tcp/127.0.0.1/${port[$name]}") 2>/dev/null && continue 2
      sleep 0.1
    done
    echo "$name does not listen" >&2
    exit 1
  done
}
# The processor time of all threads, in nanoseconds.
processor_ns() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }
resident_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# Appends decisions per second, decisions per second of processor time, p50 and p99.
measure() { # NAME SERVER PROTOCOL KEYS DISTRIBUTION CONNECTIONS PIPELINE
  local before after
  before=$(processor_ns "${pid[$2]}")
  taskset -c 1 "$load" "$3" "$2" "127.0.0.1:${port[$2-$3]}" "$4" "$5" "$seconds" "$6" "$7" >"$folder/load.txt"
  after=$(processor_ns "${pid[$2]}")
  awk -v used=$((after - before)) -v seconds="$seconds" \
    '{ printf "%.0f %.0f %d %d\n", $1 / seconds, $1 * 1e9 / used, $2, $3 }' "$folder/load.txt" >>"$folder/$1.$2"
}
servers() { # PROTOCOL
  echo balde throttlecrab
  [ "${1%-pipelined}" != resp ] || echo redis-cell
}
start_servers
cases=()
for protocol in ${PROTOCOLS:-http resp resp-pipelined grpc}; do
  for keys in 1000000-uniform 100000-zipf; do cases+=("$protocol $keys"); done
done
for _ in $(seq "$rounds"); do
  for case in "${cases[@]}"; do
    read -r protocol keys <<<"$case"
    pipeline=1
    [ "$protocol" != resp-pipelined ] || pipeline=32
    for server in $(servers "$protocol"); do
      measure "$protocol-$keys" $server "${protocol%-pipelined}" "${keys%-*}" "${keys#*-}" "$connections" $pipeline
    done
  done
done
of() { awk -v column="$2" '{ print $column }' "$folder/$1" | median; }
ratio() { paste -d' ' "$folder/$1.balde" "$folder/$1.$2" | awk -v c="$3" '{ print $c / $(c + 4) }' | median; }
echo '| protocol | keys | server | decisions/s | decisions per core and second | p50 µs | p99 µs | balde / this, per core |'
echo '| -- | -- | -- | -- | -- | -- | -- | -- |'
for case in "${cases[@]}"; do
  read -r protocol keys <<<"$case"
  for server in $(servers "$protocol"); do
    name=$protocol-$keys.$server
    shown=$(printf '%.2f' "$(ratio "$protocol-$keys" "$server" 2)")
    echo "| $protocol | ${keys/-/ } | $server | $(of "$name" 1) | $(of "$name" 2) | $(of "$name" 3) | $(of "$name" 4) | $shown |"
  done
done

# New servers, so that they hold nothing but these keys.
stop_processes
start_servers
echo
echo '| server | KiB before | bytes per key, a million keys of 24 characters |'
echo '| -- | -- | -- |'
for server in $(servers resp); do
  before=$(resident_kib "${pid[$server]}")
  "$load" resp $server "127.0.0.1:${port[$server-resp]}" 1000000 each 0 4 100 >/dev/null
  after=$(resident_kib "${pid[$server]}")
  echo "| $server | $before | $(((after - before) * 1024 / 1000000)) |"
done
