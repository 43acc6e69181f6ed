#!/usr/bin/env bash
# Runs one test binary for scripts/test.sh, and ends it if it hangs: a test that waits for ever must be reported with
# its name, and not hold up everything behind it. The threads of a test binary have the names of its tests. A binary
# that hung is run once more, so that one such test does not hide the results of the others; if it hangs again, it
# fails. The reports are collected in the file that BALDE_TEST_HANGS names, if it is set.
#
#   scripts/run-test-binary.sh PROGRAM [ARGUMENTS]
#
# BALDE_TEST_BINARY_MAX_S sets how long a binary may take; by default four times what the slowest needs.
set -uo pipefail
limit=${BALDE_TEST_BINARY_MAX_S:-600}
report=$(mktemp)
trap 'rm -f "$report"' EXIT

# A process and all that it started, the youngest first.
family() {
  local child
  for child in $(pgrep -P "$1"); do family "$child"; done
  echo "$1"
}

watch() { # PROCESS PROGRAM
  for ((second = 0; second < limit; second++)); do
    sleep 1
    kill -0 "$1" 2>/dev/null || return
  done
  {
    printf '\n== %s still ran after %d s. Its threads:\n' "$2" "$limit"
    for thread in /proc/"$1"/task/*; do
      printf '%s (%s)\n' "$(cat "$thread/comm")" "$(cat "$thread/wchan" 2>/dev/null)"
    done | sort | uniq -c
    printf 'What it started:\n'
    pgrep -a -P "$1"
  } >"$report" 2>&1
  for process in $(family "$1"); do
    [ "$process" = "$BASHPID" ] || kill -KILL "$process" 2>/dev/null
  done
}

run() {
  (
    process=$BASHPID
    watch "$process" "$1" >/dev/null 2>&1 </dev/null &
    exec "$@"
  )
}

run "$@"
status=$?
if [ -s "$report" ]; then
  cat "$report" >&2
  [ -z "${BALDE_TEST_HANGS:-}" ] || cat "$report" >>"$BALDE_TEST_HANGS"
  run "$@"
  status=$?
fi
exit "$status"
