#!/usr/bin/env bash
# Builds the packages of balde, a .deb and a .rpm, into target/packages.
#
#   scripts/build-packages.sh                  # with the profile of releases, which takes minutes
#   scripts/build-packages.sh --no-build DIR   # with a binary that exists already, DIR/balde
#
# cargo-deb and cargo-generate-rpm are installed below target/package-tools where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/package-tools
export PATH="$tools/bin:$PATH"
install_tool() { # NAME VERSION
  command -v "$1" >/dev/null || cargo install --quiet --locked --root "$tools" "$1@$2"
}
install_tool cargo-deb 3.8.0
install_tool cargo-generate-rpm 0.21.1

if [ "${1:-}" = --no-build ]; then
  binary=$(realpath "$2/balde")
else
  cargo build --profile dist --locked --package balde-cli --features pulsar,temporal
  binary=$target/dist/balde
fi

# A folder that looks like the repository after a release build, because both tools look for the binary in
# target/release and for everything else beside it.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/target/release" "$stage/target/package-files"
cp -r Cargo.toml Cargo.lock LICENSE LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md crates deploy docs "$stage/"
install -m 755 "$binary" "$stage/target/release/balde"
strip "$stage/target/release/balde"
"$binary" man | gzip -9n >"$stage/target/package-files/balde.1.gz"
"$binary" completions bash >"$stage/target/package-files/balde.bash"
unset CARGO_TARGET_DIR
mkdir -p "$target/packages"
rm -f "$target/packages"/balde*.{deb,rpm}
(cd "$stage" && cargo deb --quiet --package balde-cli --no-build --no-strip --output "$target/packages/")
(cd "$stage" && cargo generate-rpm --package crates/balde-cli --output "$target/packages/")
ls -l "$target/packages"
