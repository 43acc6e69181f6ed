#!/usr/bin/env bash
# Runs one test binary for scripts/test.sh, and ends it if it hangs: a test that waits for ever must fail with its
# name, and not hold up everything behind it. The threads of a test binary have the names of its tests.
#
#   scripts/run-test-binary.sh PROGRAM [ARGUMENTS]
#
# BALDE_TEST_BINARY_MAX_S sets how long a binary may take; by default four times what the slowest needs.
set -uo pipefail
limit=${BALDE_TEST_BINARY_MAX_S:-600}

# A process and all that it started, the youngest first.
family() {
  local child
  for child in $(pgrep -P "$1"); do family "$child"; done
  echo "$1"
}

watch() {
  for ((second = 0; second < limit; second++)); do
    sleep 1
    kill -0 $$ 2>/dev/null || return
  done
  {
    printf '\n== %s still runs after %d s. Its threads:\n' "$1" "$limit"
    for thread in /proc/$$/task/*; do
      printf '%s (%s)\n' "$(cat "$thread/comm")" "$(cat "$thread/wchan" 2>/dev/null)"
    done | sort | uniq -c
    printf '\n== What it started:\n'
    pgrep -a -P $$
  } >&2
  for process in $(family $$); do
    [ "$process" = "$BASHPID" ] || kill -KILL "$process" 2>/dev/null
  done
}

watch "$1" >/dev/null </dev/null &
exec "$@"
