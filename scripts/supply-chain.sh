#!/usr/bin/env bash
# Checks what balde is built from: licences, sources, banned and duplicate crates and known vulnerabilities
# (cargo-deny with deny.toml, and cargo-audit), and writes a bill of materials (CycloneDX 1.5, JSON) for the
# binary into FOLDER (default: target/supply-chain). Installs the three tools below target/ where they are
# missing.
#
# The advisory database is a git repository at github.com. Where it cannot be fetched, the script checks
# everything else, says so, and ends with 2.
# usage: scripts/supply-chain.sh [--sbom-only] [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
sbom_only=false
if [ "${1:-}" = --sbom-only ]; then sbom_only=true; shift; fi
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/supply-chain}")
tools=${BALDE_CARGO_TOOLS:-$target/cargo-tools}
export PATH=$tools/bin:$PATH
mkdir -p "$out"

say() { printf '== %s\n' "$*"; }
need() { # PROGRAM
  command -v "$1" >/dev/null || cargo install --quiet --locked --root "$tools" --target-dir "$tools/target" "$1"
}

need cargo-cyclonedx
say "bill of materials"
# The tool writes beside the manifest of each package.
cargo cyclonedx --quiet --manifest-path crates/balde-cli/Cargo.toml --features pulsar,temporal --format json \
  --spec-version 1.5 --override-filename balde.cdx
mv crates/balde-cli/balde.cdx.json "$out/"
find crates -name balde.cdx.json -delete
# A random serial number, the time and this folder would make every build another one.
python3 - "$out/balde.cdx.json" "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" "$PWD" <<'PY'
import datetime, json, sys
path, epoch, root = sys.argv[1], int(sys.argv[2]), sys.argv[3]
bom = json.loads(open(path).read().replace(f"file://{root}/", "file:///"))
bom.pop("serialNumber", None)
bom["metadata"]["timestamp"] = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).isoformat()
json.dump(bom, open(path, "w"), indent=1, sort_keys=True)
print(f"{len(bom['components'])} components")
PY
if $sbom_only; then exit; fi

need cargo-deny
say "licences, sources, bans"
cargo deny --log-level error --all-features check licenses sources bans
say "advisories"
if ! cargo deny fetch db >"$out/fetch.log" 2>&1; then
  tail -n 3 "$out/fetch.log" >&2
  say "the advisory database could not be fetched: known vulnerabilities were NOT checked" >&2
  exit 2
fi
cargo deny --all-features check advisories
need cargo-audit
cargo audit --deny warnings
say "clean"
