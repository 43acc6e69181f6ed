#!/usr/bin/env bash
# How many getEntry a second the simulator answers in memory, beside an axum server that answers the
# same bytes without any rule; wrk is the client of both, in turn. Writes docs/benchmarks.md.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-4}
connections=${CONNECTIONS:-32}

source scripts/common.sh
command -v wrk >/dev/null || install_packages wrk

cargo build --release -p balde-cli -p balde-simulator --bin balde --example answer_without_rules
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')

work=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT

# Starts a server that prints or opens its port; waits until it answers.
wait_for() {
  for _ in $(seq 100); do
    if curl -s --noproxy '*' -o /dev/null "$1"; then return; fi
    sleep 0.1
  done
  echo "nothing answers at $1" >&2
  exit 1
}

ours=127.0.0.1:18085
theirs=127.0.0.1:18086

"$target/release/balde" simulate --listen $ours --entries 1000 --log-level warn >"$work/ours.log" 2>&1 &
pids+=($!)
wait_for "http://$ours/sim/"

# No bucket may run dry while speed is measured; every request is counted all the same.
for change in \
  '{"policy": "ENTRIES_READ_PARTICIPANT_ANTISCAN", "variant": "A", "limit": "1000000/s burst 10000000"}' \
  '{"policy": "ENTRIES_READ_USER_ANTISCAN", "variant": "PF", "limit": "1000000/s burst 10000000"}'; do
  curl -sf --noproxy '*' -o /dev/null -X PUT \
    -H 'Content-Type: application/json' -d "$change" "http://$ours/sim/limits"
done

# A thousand requests, each for another payer, key and payment, made once and sent in turn.
cat >"$work/lookups.lua" <<'LUA'
local requests, turn = {}, 0
function init()
  for i = 1, 1000 do
    local headers = {
      ["PI-RequestingParticipant"] = "12345678",
      ["PI-PayerId"] = string.format("%011d", i),
      ["PI-EndToEndId"] = string.format("E12345678202601010000%011d", i),
    }
    local path = string.format("/api/v2/entries/pessoa%07d@exemplo.com.br", i)
    requests[i] = wrk.format("GET", path, headers)
  end
end
function request()
  turn = turn % 1000 + 1
  return requests[turn]
end
LUA

curl -sf --noproxy '*' -o "$work/body.xml" \
  -H 'PI-RequestingParticipant: 12345678' -H 'PI-PayerId: 00000000001' \
  -H 'PI-EndToEndId: E1234567820260101000000000000001' \
  "http://$ours/api/v2/entries/pessoa0000001@exemplo.com.br"
"$target/release/examples/answer_without_rules" $theirs "$work/body.xml" &
pids+=($!)
wait_for "http://$theirs/"

# Requests a second; fails if any answer was not a 200.
measure() {
  local out
  out=$(wrk -t1 -c"$connections" -d"${seconds}s" -s "$work/lookups.lua" "http://$1/")
  if grep -q 'Non-2xx' <<<"$out"; then
    echo "$out" >&2
    exit 1
  fi
  awk '/Requests\/sec/ { printf "%d\n", $2 }' <<<"$out"
}

measure $ours >/dev/null
measure $theirs >/dev/null
: >"$work/rounds"
for round in $(seq "$rounds"); do
  a=$(measure $ours)
  b=$(measure $theirs)
  echo "round $round: simulator $a/s, axum without rules $b/s"
  echo "$a $b" >>"$work/rounds"
done
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
a=$(awk '{ print $1 }' "$work/rounds" | median)
b=$(awk '{ print $2 }' "$work/rounds" | median)
ratio=$(awk '{ printf "%.3f\n", $1 / $2 }' "$work/rounds" | median)
echo "median: simulator $a/s, axum without rules $b/s, ratio within a round $ratio"

begin='<!-- begin simulator -->'
end='<!-- end simulator -->'
{
  awk -v b="$begin" '$0 == b { exit } { print }' docs/benchmarks.md | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
  printf '\n%s\n## simulator\n\n`scripts/bench-simulator.sh`, %s\n\n' "$begin" "$(date -u +%F)"
  printf 'getEntry over HTTP/1.1 in memory: 1,000 keys, each for another payer and payment, two buckets to each request; the other column is an axum server that answers the same %s bytes without any rule. wrk with one thread and %s connections shares the machine'"'"'s %s cores with the server; median of %s rounds of %s s, in turn, the ratio within a round.\n\n' \
    "$(stat -c %s "$work/body.xml")" "$connections" "$(nproc)" "$rounds" "$seconds"
  printf '| simulator /s | axum without rules /s | ratio |\n| -- | -- | -- |\n| %s | %s | %s |\n%s\n' "$a" "$b" "$ratio" "$end"
  awk -v e="$end" 'past { print } $0 == e { past = 1 }' docs/benchmarks.md
} >"$work/benchmarks.md"
cp "$work/benchmarks.md" docs/benchmarks.md
