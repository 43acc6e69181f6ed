#!/usr/bin/env bash
# Builds release archives, a bill of materials (CycloneDX) and their SHA-256 sums into FOLDER (default:
# target/release-archives): x86-64 and, where the cross toolchain is installed, arm64. Each archive has the binary with Pulsar and
# Temporal compiled in, the licences, systemd units, Prometheus rules, Grafana dashboards and the
# reference configuration files. The binary for this machine's architecture is built by
# scripts/build-dist.sh, with a profile that is recorded first; see there for what that needs.
# BALDE_PROFILE=FILE uses a recorded one, so that the same commit gives the same binary.
#
# arm64 on x86-64 needs: rustup target add aarch64-unknown-linux-gnu, and Debian's
# gcc-aarch64-linux-gnu and libc6-dev-arm64-cross.
# usage: scripts/release.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/release-archives}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)
mkdir -p "$out"

say() { printf '== %s\n' "$*"; }

linker_of() { # TARGET
  case $1 in
    x86_64-unknown-linux-gnu) echo x86_64-linux-gnu-gcc ;;
    aarch64-unknown-linux-gnu) echo aarch64-linux-gnu-gcc ;;
  esac
}

archives=()
for triple in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu; do
  linker=$(linker_of "$triple")
  if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
    say "left out $triple: rustup target add $triple"
    continue
  fi
  if ! command -v "$linker" >/dev/null; then
    say "left out $triple: $linker is not installed"
    continue
  fi
  say "$triple"
  options=(--features pulsar,temporal)
  if [ "$triple" = "$(rustc --version --verbose | sed -n 's/^host: //p')" ]; then
    scripts/build-dist.sh "${options[@]}"
  else
    # A profile is recorded by running the binary, so only this machine's architecture has one.
    name=$(tr a-z- A-Z_ <<<"$triple")
    env "CARGO_TARGET_${name}_LINKER=$linker" "CC_${triple//-/_}=$linker" \
      cargo build --profile dist --locked --package balde-cli --target "$triple" "${options[@]}"
  fi
  folder=balde-$version-$triple
  stage=$(mktemp -d)
  install -D "$target/$triple/dist/balde" "$stage/$folder/balde"
  "${linker%gcc}strip" "$stage/$folder/balde"
  install -m 644 -t "$stage/$folder" LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md
  install -D -m 644 -t "$stage/$folder/systemd" deploy/systemd/*.service
  install -D -m 644 -t "$stage/$folder/prometheus" deploy/prometheus/balde-*rules.yml
  install -D -m 644 -t "$stage/$folder/grafana" deploy/grafana/*.json
  install -D -m 644 -t "$stage/$folder/examples" docs/*.toml
  # The same binary gives the same archive: fixed order, owner and time.
  tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" \
    -cf - "$folder" | gzip -n >"$out/$folder.tar.gz"
  rm -rf "$stage"
  archives+=("$folder.tar.gz")
done
[ ${#archives[@]} -gt 0 ] || { say "nothing could be built" >&2; exit 1; }
say "bill of materials"
scripts/supply-chain.sh --sbom-only "$out"
mv "$out/balde.cdx.json" "$out/balde-$version.cdx.json"
(cd "$out" && sha256sum "${archives[@]}" "balde-$version.cdx.json" >SHA256SUMS && cat SHA256SUMS)
