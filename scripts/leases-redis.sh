#!/usr/bin/env bash
# One and two processes flood one bucket of 1000/s with bursts of 5, 10, 20, 50 and 100, by plain checks
# and on leases, for 5 s each: prints what was granted of what there was, and fails where leases were
# granted less than 95 % of what plain checks were, or more than the limit. Stops by itself.
set -euo pipefail
cd "$(dirname "$0")/.."

export BALDE_REQUIRE_SERVICES=1
export BALDE_LEASE_SECONDS="${BALDE_LEASE_SECONDS:-5}"

timeout --signal=TERM 900 cargo test --workspace --exclude balde-bench --all-features \
  --test eight_processes -- --nocapture leased_and_plain
