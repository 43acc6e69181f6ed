#!/usr/bin/env bash
# A redis-server whose twelve connections are all taken, and 1,000 requests a second for 10 s: prints
# the connections that were tried by second, how fast the failure policy answered, and how soon
# decisions came from Redis after a slot was free. Starts its own server and stops by itself.
set -euo pipefail
cd "$(dirname "$0")/.."

export BALDE_REQUIRE_SERVICES=1
export BALDE_STORM_SECONDS="${BALDE_STORM_SECONDS:-10}"

timeout --signal=TERM 600 cargo test --workspace --exclude balde-bench --all-features --test faults -- \
  --nocapture at_maxclients
