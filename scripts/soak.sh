#!/usr/bin/env bash
# Runs all parts of balde with a real Redis and PostgreSQL under steady load, with a fault every minute, and
# ends with a verdict: memory of the processes, latency, and whether anything was lost (docs/guarantees.md
# says what is judged). Loopback only; everything is in a temporary folder and ends with the script.
#
#   scripts/soak.sh [MINUTES, 120] [REPORT, target/soak.md]
#
# The short form is `scripts/soak.sh 5`: it judges everything but the growth of memory, which needs an hour.
# The binary is BALDE_BIN, or `cargo build --release`. It needs python3 (without packages), redis-server and
# PostgreSQL. It uses about a tenth of one core.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
minutes=${1:-120} report=${2:-$target/soak.md}
if [ -z "${BALDE_BIN:-}" ]; then
  cargo build --release --locked --quiet --package balde-cli
  BALDE_BIN=$target/release/balde
fi
exec python3 scripts/soak.py "$BALDE_BIN" "$minutes" "$report"
