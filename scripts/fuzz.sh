#!/bin/sh
# Fuzzes each target for a bounded time (in seconds, 60 by default), on stable Rust. Inputs that fail
# are kept in fuzz/artifacts, and the run fails.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
case $seconds in
'' | *[!0-9]*)
    echo "usage: scripts/fuzz.sh [SECONDS]" >&2
    exit 2
    ;;
esac

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "This needs cargo-fuzz and a C++ compiler. To install it:" >&2
    echo "    cargo install cargo-fuzz --locked" >&2
    echo "Without it, the same bodies run over random bytes in the ordinary tests:" >&2
    echo "    cargo test -p balde --features http,options,redis --test fuzz" >&2
    exit 3
fi

# The flags of the sanitizer are the only thing that cargo-fuzz needs a nightly compiler for.
export RUSTC_BOOTSTRAP=1
for target in identity keys fields options replies; do
    echo "== $target, $seconds s"
    mkdir -p "fuzz/corpus/$target"
    cargo fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
done
