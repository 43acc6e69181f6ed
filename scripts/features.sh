#!/usr/bin/env bash
# Checks every published crate with no features and with each feature alone (scripts/test.sh has all
# of them on), then runs the SDK's tests without features. `cargo hack --each-feature` does the first part too,
# but would have to be installed.
#
#   scripts/features.sh         everything
#   scripts/features.sh --sdk   only the checks of the crates that services embed, as scripts/test.sh runs
#                               them: the features of the others bring in trees that take minutes to check
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

metadata=$(cargo metadata --no-deps --format-version 1)
each_feature() {
  python3 - "$metadata" "$1" <<'PY'
import json, sys
sdk = {"balde", "balde-config", "balde-core", "balde-policy", "balde-throttle"}
for package in json.loads(sys.argv[1])["packages"]:
    if package["publish"] == [] or sys.argv[2] == "--sdk" and package["name"] not in sdk:
        continue
    kinds = {kind for target in package["targets"] for kind in target["kind"]}
    target = "--lib" if "lib" in kinds else "--bins"
    for feature in ["", *sorted(f for f in package["features"] if f != "default")]:
        print(package["name"], target, feature)
PY
}

count=0
while read -r package target feature; do
  say "$package, ${feature:-no features}"
  # Not by RUSTFLAGS: those would build every dependency again.
  if ! output=$(cargo check --quiet -p "$package" "$target" --no-default-features ${feature:+--features "$feature"} 2>&1) ||
    [ -n "$output" ]; then
    printf '%s\n' "$output" >&2
    echo "features: $package does not build cleanly with ${feature:-no features}" >&2
    exit 1
  fi
  count=$((count + 1))
done < <(each_feature "${1:-}")
say "$count feature sets build without warnings"
[ "${1:-}" = --sdk ] && exit 0

say "benchmarks build"
cargo check --quiet -p balde-bench -p balde-monitor --benches

say "the SDK's tests without features"
cargo test -p balde --lib --tests
