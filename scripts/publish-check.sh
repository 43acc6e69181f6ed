#!/usr/bin/env bash
# Checks that every published crate could be published as it is: metadata, what each package contains and that it
# builds from that, the minimum Rust version, other targets, and the public API against the last release. It
# publishes nothing. Needs the network, for the index of crates.io and for the standard libraries of other targets.
#
#   scripts/publish-check.sh           everything; some minutes, because each package is built on its own
#   scripts/publish-check.sh --quick   metadata and package lists only
#   BASELINE=REVISION scripts/publish-check.sh   compare the public API with this revision, not the last tag
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

say "metadata"
metadata=$(cargo metadata --no-deps --format-version 1)
python3 - "$metadata" <<'PY'
import json, os, sys

problems = []
packages = [p for p in json.loads(sys.argv[1])["packages"] if p["publish"] != []]
for package in packages:
    name, folder = package["name"], os.path.dirname(package["manifest_path"])
    for field in ["description", "license", "readme", "rust_version", "keywords", "categories"]:
        if not package[field]:
            problems.append(f"{name}: no {field}")
    if len(package["keywords"]) > 5 or len(package["categories"]) > 5:
        problems.append(f"{name}: crates.io takes at most five keywords and five categories")
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"]:
        if not os.path.isfile(os.path.join(folder, file)):
            problems.append(f"{name}: {file} is missing")
    is_library = any("lib" in target["kind"] for target in package["targets"])
    if is_library and package["features"] and not (package["metadata"] or {}).get("docs", {}).get("rs"):
        problems.append(f"{name}: docs.rs would not show its features")
    for dependency in package["dependencies"]:
        if dependency.get("path") and dependency["req"] == "*" and dependency["kind"] != "dev":
            problems.append(f"{name}: {dependency['name']} has a path but no version")
    if not package["repository"]:
        print(f"note: {name} names no repository; crates.io accepts that")
if problems:
    sys.exit("\n".join(problems))
print("published:", ", ".join(p["name"] for p in packages))
PY

say "packages, in the order of their dependencies"
if [ "${1:-}" = --quick ]; then
  cargo publish --workspace --dry-run --allow-dirty --no-verify
  exit 0
fi
# Each package is built from its archive, against the archives of the others.
CARGO_TARGET_DIR=$target/publish cargo publish --workspace --dry-run --allow-dirty

msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
say "minimum Rust version: $msrv"
everything=(--workspace --exclude balde-bench --all-features)
current=$(rustc --version | cut -d' ' -f2)
if [[ $current == "$msrv" || $current == "$msrv".* ]]; then
  cargo check "${everything[@]}"
else
  rustup toolchain install "$msrv" --profile minimal
  CARGO_TARGET_DIR=$target/msrv cargo "+$msrv" check "${everything[@]}"
fi

say "balde-core without the standard library: thumbv7em-none-eabi"
rustup target add thumbv7em-none-eabi
cargo check -p balde-core --target thumbv7em-none-eabi

say "aarch64-unknown-linux-gnu"
rustup target add aarch64-unknown-linux-gnu
if command -v aarch64-linux-gnu-gcc >/dev/null; then
  cargo check --workspace --exclude balde-bench --target aarch64-unknown-linux-gnu
  cargo check -p balde --all-features --target aarch64-unknown-linux-gnu
else
  echo "no aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu): only the crates and features without C code"
  cargo check -p balde-core -p balde-config --target aarch64-unknown-linux-gnu
  cargo check -p balde -p balde-policy -p balde-throttle --target aarch64-unknown-linux-gnu \
    --features balde/axum,balde/logs,balde/options,balde/prometheus,balde-policy/axum,balde-throttle/tower
fi

say "the public API"
baseline=${BASELINE:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
if [ -z "$baseline" ]; then
  echo "nothing to compare with: no release is tagged yet"
elif ! cargo semver-checks --version >/dev/null 2>&1; then
  echo "cargo-semver-checks is not installed: cargo install --locked cargo-semver-checks" >&2
  exit 1
else
  cargo semver-checks --workspace --exclude balde-bench --baseline-rev "$baseline"
fi

say "ready to publish"
