#!/usr/bin/env bash
# Builds balde with profile-guided optimisation: builds it with counters, sends requests to its gateway,
# and builds it again with what the counters say, which saves a quarter of the processor time that the
# gateway spends in its own code (docs/benchmarks.md). The binary is target/TRIPLE/dist/balde, and its path is
# the last line of the output. BALDE_PROFILE=FILE uses a recorded profile; one fits the source, the
# features and the target it was recorded with, and the compiler ignores what does not fit.
#
# Installs wrk and nginx from Debian's packages, and rustup's llvm-tools, where they are missing.
# Loopback only. It takes twice as long as `cargo build --profile dist`.
# usage: scripts/build-dist.sh [OPTION of cargo build]...
set -euo pipefail
given=${BALDE_PROFILE:+$(realpath "$BALDE_PROFILE")}
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
profile=${given:-$target/balde.profdata}
seconds=5

say() { printf '== %s (%d s)\n' "$*" "$SECONDS" >&2; }

triple=$(rustc --version --verbose | sed -n 's/^host: //p')
build() { # FLAG TARGET-DIR OPTION...
  # With a target, so that build scripts and macros are built without these flags. Encoded, since a path
  # may contain spaces.
  CARGO_ENCODED_RUSTFLAGS=$1 cargo build --profile dist --locked --package balde-cli --target "$triple" --target-dir "$2" "${@:3}"
}
build_guided() {
  say "building with the profile"
  build "-Cprofile-use=$profile" "$target" "$@"
  echo "$target/$triple/dist/balde"
}
if [ -n "$given" ]; then build_guided "$@"; exit; fi

source scripts/common.sh
missing=()
command -v wrk >/dev/null || missing+=(wrk)
[ -x /usr/sbin/nginx ] || missing+=(nginx-light)
install_packages "${missing[@]}" >&2
profdata=$(rustc --print sysroot)/lib/rustlib/$triple/bin/llvm-profdata
if [ ! -x "$profdata" ]; then
  command -v rustup >/dev/null || { say "llvm-profdata is missing: install the toolchain's llvm-tools"; exit 1; }
  rustup component add llvm-tools >&2
fi

start_folder

say "building with counters"
# Always the same folder, because it is part of the flags: another one would build everything again.
raw=$target/profile/raw
build "-Cprofile-generate=$raw" "$target/profile" "$@"
rm -rf "$raw"
balde=$target/profile/$triple/dist/balde

upstream_port=19800
nginx_conf nginx $upstream_port '
    location / { return 200 "hello world\n"; }
    location /none { return 204; }
    location /missing { return 404 "{}\n"; }' ''
gateway_conf free 19801 ''
gateway_conf limited 19802 "$unreached_policy"
gateway_conf refusing 19803 '[[policies.policy]]
name = "all"
scope = "user"
limit = "10/s"'
cat >"$folder/post.lua" <<'LUA'
wrk.method = "POST"
wrk.body = string.rep("x", 400)
wrk.headers["Content-Type"] = "application/xml"
wrk.headers["User-Agent"] = "profile/1.0"
wrk.headers["Accept"] = "*/*"
LUA

run /usr/sbin/nginx -c "$folder/nginx.conf" -p "$folder"
for name in free limited refusing; do run "$balde" gateway -c "$folder/$name.toml"; done
run "$balde" up --dict 127.0.0.1:0 --gateway 127.0.0.1:0 --state 127.0.0.1:0 --monitor 127.0.0.1:0
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
for port in 19800 19801 19802 19803; do
  for _ in $(seq 100); do
    if answers $port; then break; fi
    sleep 0.1
  done
  answers $port || { cat "$folder/out.log" >&2; say "nothing answers on port $port"; exit 1; }
done
for pid in "${pids[@]}"; do
  kill -0 "$pid" 2>/dev/null || { cat "$folder/out.log" >&2; say "a process has ended"; exit 1; }
done
say "sending requests"
load() { wrk -t1 -c64 -d"${seconds}s" "$@" | sed -n 's/^Requests\/sec: */   requests a second: /p' >&2; }
for port in 19801 19802; do
  for path in / /none /missing; do load "http://127.0.0.1:$port$path"; done
  load -s "$folder/post.lua" "http://127.0.0.1:$port/"
done
load http://127.0.0.1:19803/
# Counters are written when the processes end.
stop_processes
"$profdata" merge -o "$profile" "$raw"
build_guided "$@"
