#!/usr/bin/env bash
# Eight processes share one bucket for 20 s, in every mode, with a restart of Redis in the middle.
# Starts its own servers, stops by itself, and prints what was granted of what there was.
set -euo pipefail
cd "$(dirname "$0")/.."

export BALDE_REQUIRE_SERVICES=1
export BALDE_SOAK_SECONDS="${BALDE_SOAK_SECONDS:-20}"

cargo test -p balde --features redis --test eight_processes --no-run
timeout --signal=TERM 600 \
  cargo test -p balde --features redis --test eight_processes -- --nocapture
