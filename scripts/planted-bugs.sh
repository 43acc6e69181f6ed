#!/usr/bin/env bash
# Plants one bug at a time into a copy of the sources, and runs the test that has to fail because of it. Ends
# with 1 if a bug is not caught. Takes about three minutes for each bug on two cores, after the dependencies are
# built once more: the copy must not share a target folder with this workspace, whose packages have the same names.
#
#   scripts/planted-bugs.sh [NAME]...
#
# The names are those of the table in docs/guarantees.md.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target/planted-bugs CARGO_INCREMENTAL=0 BALDE_REQUIRE_SERVICES=1 BALDE_TEST_PATIENT_REDIS=1
export BALDE_TEST_TOOLS="${BALDE_TEST_TOOLS:-$target/test-tools}"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"

# NAME FILE TEXT REPLACEMENT TARGET TEST
bugs=(
  "refill" crates/balde-core/src/bucket.rs
  "saturating_sub(refilled)," "saturating_sub(refilled + 1)," laws every_answer_is_the_models
  "script" crates/balde/src/store/redis/decide.lua
  "before = before - (tick - at) * refill" "before = before - (tick - at) * refill - 1" redis_suite the_script_and_the_core_agree
  "settle-once" crates/balde/src/hold/settlement.rs
  "id: Some(&self.id)," "id: None," simulation every_law_holds_in_every_simulated_world
  "hold-expiry" crates/balde-core/src/hold.rs
  "Command::Charge { n: held.tokens }" "Command::Charge { n: held.tokens / 2 }" laws law_10_an_expired_hold_is_a_charge_at_its_expiry
  "late-reply" crates/balde/src/store/redis/call.rs
  "self.undo_when_answered(Arc::clone(call), requesting);" "drop(requesting);" simulation every_law_holds_in_every_simulated_world
  "path" crates/balde-policy/src/path/spelling.rs
  "Class::Unreserved => self.plain(byte)," "Class::Unreserved => self.encode(byte)," paths the_spellings_of_a_path_have_one_normal_form
  "identity" crates/balde/src/http/identity/chain.rs
  "Ok(!self.trusted.contains(self.last))" "Ok(false)" identity behind_trusted_proxies_the_key_is_the_right_most_untrusted_address
  "outbox" crates/balde-monitor/src/history/outbox.rs
  "SET delivered_us = \$2, attempts" "SET due_us = \$2, attempts" sinks everything_arrives_once_after_deduplication_although_half_of_it_fails
)
missed=0
for ((i = 0; i < ${#bugs[@]}; i += 6)); do
  name=${bugs[i]} file=${bugs[i + 1]} text=${bugs[i + 2]} other=${bugs[i + 3]} binary=${bugs[i + 4]} test=${bugs[i + 5]}
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  cp "$file" "$copy/$file"
  python3 - "$copy/$file" "$text" "$other" <<'PY'
import sys
path, old, new = sys.argv[1:]
text = open(path).read()
if text.count(old) != 1:
    sys.exit(f"{path}: {text.count(old)} places have {old!r}")
open(path, "w").write(text.replace(old, new))
PY
  run=(cargo test --quiet --manifest-path "$copy/Cargo.toml" --workspace --exclude balde-bench --all-features --test "$binary")
  "${run[@]}" --no-run 2>"$copy/build.log" || { tail -n 20 "$copy/build.log"; exit 1; }
  if "${run[@]}" -- "$test" >"$copy/run.log" 2>&1; then
    printf '%-12s NOT CAUGHT by %s\n' "$name" "$test"
    missed=$((missed + 1))
  elif grep -q "$test.*FAILED\|^    .*$test" "$copy/run.log"; then
    printf '%-12s caught by %s\n' "$name" "$test"
  else
    tail -n 20 "$copy/run.log"
    exit 1
  fi
  cp "$file" "$copy/$file"
done
[ $missed = 0 ]
