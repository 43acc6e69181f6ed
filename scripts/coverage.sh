#!/usr/bin/env bash
# Measures how many lines the tests run, by crate and for the folders with goals of their own, and writes the
# table to FOLDER/coverage.md and every line with its count to FOLDER/html (default: target/coverage-report).
# Ends with 1 if a goal is missed: 90 % of the lines in every crate but the binary, 95 % in core, stores, policy
# engine, headers and throttler, 100 % of the burst's code. Lines of tests do not count.
#
#   scripts/coverage.sh [-p CRATE]... [-- OPTION of cargo test, such as --test NAME]...
#
# Without -p, all crates; the servers that the tests need must be installed (scripts/test.sh installs them).
# Builds everything once more, below target/coverage. Installs cargo-llvm-cov and rustup's llvm-tools where they
# are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/coverage-report
tools=${BALDE_CARGO_TOOLS:-$target/cargo-tools}
packages=()
while [ "${1:-}" = -p ]; do packages+=(-p "$2"); shift 2; done
[ "${1:-}" != -- ] || shift
[ ${#packages[@]} -gt 0 ] || packages=(--workspace --exclude balde-bench)

export PATH=$tools/bin:$PATH
command -v cargo-llvm-cov >/dev/null ||
  cargo install --quiet --locked --root "$tools" --target-dir "$tools/target" cargo-llvm-cov
[ -x "$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-cov" ] || rustup component add llvm-tools

export CARGO_TARGET_DIR=$target/coverage CARGO_INCREMENTAL=0
export BALDE_REQUIRE_SERVICES=1 BALDE_TEST_PATIENT_REDIS=1
export BALDE_TEST_TOOLS="${BALDE_TEST_TOOLS:-$target/test-tools}"
ulimit -n 16384 2>/dev/null || ulimit -n "$(ulimit -Hn)"
source <(cargo llvm-cov show-env --export-prefix 2>/dev/null)
cargo llvm-cov clean --profraw-only --workspace 2>/dev/null || true
# Some tests start examples, which `cargo test` builds unless it is told what to build.
[ $# -eq 0 ] || [[ "$*" != *"--test examples"* ]] || cargo build "${packages[@]}" --all-features --examples
failed=false
cargo test "${packages[@]}" --all-features --no-fail-fast "$@" || failed=true

mkdir -p "$out"
cargo llvm-cov report --json --ignore-filename-regex '(/tests?/|tests\.rs|_tests\.rs|/examples/|/benches/|/loom/)' --output-path "$out/coverage.json"
cargo llvm-cov report --html --ignore-filename-regex '(/tests?/|tests\.rs|/examples/|/benches/)' --output-dir "$out" >/dev/null
python3 scripts/coverage.py "$out/coverage.json" >"$out/coverage.md" || failed=true
cat "$out/coverage.md"
if $failed; then exit 1; fi
