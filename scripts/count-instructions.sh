#!/usr/bin/env bash
# Counts the instructions (callgrind) of a check in memory, a decision over two buckets, a request through
# the layer, one through the gateway and a getEntry of the simulator: of this checkout, and of an earlier
# revision if one is named. Instructions do not depend on what else the machine does.
#
#   scripts/count-instructions.sh [REVISION]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
command -v valgrind >/dev/null || install_packages valgrind
start_folder
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/instructions
mkdir -p "$target"

# Builds the programs of a checkout into a folder.
build() { # CHECKOUT FOLDER
  local checkout=$1 out=$2 simulator=balde-simulator
  # Where the simulator was before it had a crate of its own.
  [ -d "$checkout/crates/balde-simulator" ] || simulator=balde-dict
  mkdir -p "$out"
  export CARGO_TARGET_DIR=$target
  (cd "$checkout" && cargo build --quiet --release -p balde --features axum --example fixed_checks)
  cp "$target/release/examples/fixed_checks" "$out/"
  (cd "$checkout" && cargo build --quiet --release -p balde-gateway --example gateway_requests)
  cp "$target/release/examples/gateway_requests" "$out/gateway"
  (cd "$checkout" && cargo build --quiet --release -p "$simulator" --example fixed_requests)
  cp "$target/release/examples/fixed_requests" "$out/simulator"
}

# The instructions of one request: from N to 3N of them.
count() { # N PROGRAM...
  local n=$1 few many
  shift
  few=$(instructions "$@" "$n")
  many=$(instructions "$@" $((3 * n)))
  echo $(((many - few) / (2 * n)))
}
instructions() { # PROGRAM...
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 >/dev/null |
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}
measure() { # FOLDER
  count 20000 "$1/fixed_checks" check
  count 20000 "$1/fixed_checks" check_all
  count 20000 "$1/fixed_checks" layer
  count 1000 "$1/gateway"
  count 1000 "$1/simulator"
}

echo "building this checkout"
build "$PWD" "$folder/now"
if [ $# -gt 0 ]; then
  echo "building $1"
  git worktree add --quiet --detach "$folder/before-tree" "$1"
  cp crates/balde/examples/fixed_checks.rs "$folder/before-tree/crates/balde/examples/"
  mkdir -p "$folder/before-tree/crates/balde-gateway/examples"
  cp crates/balde-gateway/examples/gateway_requests.rs "$folder/before-tree/crates/balde-gateway/examples/"
  build "$folder/before-tree" "$folder/before"
  git worktree remove --force "$folder/before-tree"
fi
names=("a check in memory" "check_all of two in memory" "a request through the layer"
  "a request through the gateway" "getEntry of the simulator")
mapfile -t now < <(measure "$folder/now")
before=()
[ $# -eq 0 ] || mapfile -t before < <(measure "$folder/before")
printf '| | %s | now | now / before |\n| -- | -- | -- | -- |\n' "${1:-before}"
for i in "${!names[@]}"; do
  ratio=
  [ $# -eq 0 ] || ratio=$(awk "BEGIN { printf \"%.3f\", ${now[i]} / ${before[i]} }")
  echo "| ${names[i]} | ${before[i]:-} | ${now[i]} | $ratio |"
done
