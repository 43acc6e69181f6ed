#!/usr/bin/env bash
# Runs the tests again and again, the last runs beside busy loops on all cores, and lists every test that failed at
# least once. Ends with 1 if there is one.
#
#   scripts/hunt-flaky.sh [RUNS, 10] [of these, beside busy loops, 3] [OPTION of cargo test, such as --test NAME]...
#
# Needs what scripts/test.sh installs. BALDE_HUNT_LOGS names the folder for the output of runs that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-10} busy=${2:-3}
shift $(($# < 2 ? $# : 2))
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
logs=${BALDE_HUNT_LOGS:-$target/flaky}
export BALDE_REQUIRE_SERVICES=1 BALDE_TEST_PATIENT_REDIS=1
export BALDE_TEST_TOOLS="${BALDE_TEST_TOOLS:-$target/test-tools}"
ulimit -n 16384 2>/dev/null || ulimit -n "$(ulimit -Hn)"
everything=(--workspace --exclude balde-bench --all-features)
cargo test "${everything[@]}" --no-run "$@"
rm -rf "$logs"
mkdir -p "$logs"
loops=()
stop_loops() { for pid in "${loops[@]}"; do kill "$pid" 2>/dev/null || true; done; loops=(); }
trap stop_loops EXIT
for run in $(seq "$runs"); do
  how=quiet
  if [ "$run" -gt $((runs - busy)) ]; then
    how=busy
    for _ in $(seq "$(nproc)"); do
      (while :; do :; done) &
      loops+=($!)
    done
  fi
  started=$SECONDS
  if cargo test "${everything[@]}" --no-fail-fast "$@" >"$logs/$run.log" 2>&1; then
    printf 'run %d of %d (%s): passed in %d s\n' "$run" "$runs" "$how" $((SECONDS - started))
    rm "$logs/$run.log"
  else
    printf 'run %d of %d (%s): FAILED after %d s\n' "$run" "$runs" "$how" $((SECONDS - started))
    sed -n 's/^test \(.*\) \.\.\. FAILED$/  \1/p' "$logs/$run.log" | sort -u
  fi
  stop_loops
done
if compgen -G "$logs/*.log" >/dev/null; then
  printf 'tests that failed, and in how many runs:\n'
  for log in "$logs"/*.log; do sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | sort -u; done | sort | uniq -c | sort -rn
  exit 1
fi
