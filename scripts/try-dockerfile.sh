#!/usr/bin/env bash
# Runs the steps of deploy/Dockerfile where there is no container runtime: each stage is a folder made
# by debootstrap, in which RUN, COPY, USER and the other instructions are carried out as the file has
# them. The last stage is then started as the image would be: its user, no capabilities, a read-only
# root, writable /tmp and VOLUME. `balde up` has to raise an alert in it, and `balde monitor` to store
# what it polls.
#
# Needs root, debootstrap, a Debian mirror, and the Rust toolchain of the `FROM rust:` line, which is
# mounted from this machine. The first run builds balde with the profile dist, which takes many minutes.
# usage: scripts/try-dockerfile.sh [--again] [FOLDER]
# Stages and caches go below FOLDER, by default target/dockerfile. --again starts the image of the last
# run without building it.
set -euo pipefail
cd "$(dirname "$0")/.."
context=$PWD
dockerfile=$context/deploy/Dockerfile
again=0
arguments=("$@")
if [ "${1:-}" = --again ]; then again=1; shift; fi
work=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/dockerfile}")

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
die() { printf 'try-dockerfile: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die "needs root, for chroot and mounts"
command -v debootstrap >/dev/null || die "needs debootstrap (apt-get install debootstrap)"
# In a mount namespace of its own: whatever is mounted below ends with this script.
if [ "${TRY_DOCKERFILE_NAMESPACE:-}" != 1 ]; then
  export TRY_DOCKERFILE_NAMESPACE=1
  exec unshare --mount --propagation private "$0" "${arguments[@]}"
fi
mkdir -p "$work/cache"

# State of the stage that is being built.
stage='' root='' user=0:0 dir=/ path=''
declare -A stages=()
declare -a environment=() volumes=() entrypoint=() command=()

# A Debian root as the official slim images have it.
debian() { # SUITE
  local archive=$work/cache/$1.tar
  if [ ! -e "$archive" ]; then
    say "debootstrap $1"
    rm -rf "$work/cache/$1"
    debootstrap --variant=minbase "$1" "$work/cache/$1" >"$work/cache/$1.log" ||
      die "debootstrap failed: see $work/cache/$1.log"
    tar -C "$work/cache/$1" -cf "$archive.part" . && mv "$archive.part" "$archive"
    rm -rf "$work/cache/$1"
  fi
  tar -C "$root" -xf "$archive"
}

from() { # IMAGE [AS NAME]
  local image=$1
  stage=${3:-final} root=$work/stages/${3:-final} user=0:0 dir=/
  path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  environment=() volumes=() entrypoint=() command=()
  stages[$stage]=$root
  if [ $again = 1 ]; then return; fi
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  case $image in
    debian:*-slim) debian "$(sed 's/debian:\(.*\)-slim/\1/' <<<"$image")" ;;
    rust:*-slim-*)
      debian "${image##*-slim-}"
      local version=${image#rust:}
      version=${version%%-*}
      [[ "$(rustc --version)" == "rustc $version."* ]] || die "$image: this machine has $(rustc --version)"
      # What the official image adds to Debian: a toolchain and what links programs.
      local toolchain
      toolchain=$(rustc --print sysroot)
      mkdir -p "$root/usr/local/rust" "$root/usr/local/cargo"
      mount --bind -o ro "$toolchain" "$root/usr/local/rust"
      path=/usr/local/rust/bin:$path
      environment+=(CARGO_HOME=/usr/local/cargo)
      in_stage /bin/sh -c 'apt-get update -qq && apt-get install -qq --yes --no-install-recommends ca-certificates gcc libc6-dev' \
        >"$work/rust-image.log" 2>&1 || die "see $work/rust-image.log" ;;
    *) die "FROM $image: only debian:SUITE-slim and rust:VERSION-slim-SUITE are known here" ;;
  esac
  # Certificate authorities of this machine, which may be behind a proxy that has its own.
  if [ "$stage" != final ] && [ -e "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" ]; then
    mkdir -p "$root/etc/ssl/certs"
    cp "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/etc/ssl/certs/build-machine.crt"
    environment+=(CARGO_HTTP_CAINFO=/etc/ssl/certs/build-machine.crt)
  fi
}

# Runs a command in the stage, as its user and in its folder.
in_stage() {
  (
    mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
    mountpoint -q "$root/dev" || { mount -t tmpfs tmpfs "$root/dev" && devices "$root/dev"; }
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    exec env -i PATH="$path" HOME=/root DEBIAN_FRONTEND=noninteractive "${environment[@]}" \
      chroot --userspec="$user" "$root" /bin/sh -c 'cd "$1" && shift && exec "$@"' sh "$dir" "$@"
  )
}

devices() { # FOLDER
  local name numbers
  while read -r name numbers; do
    # shellcheck disable=SC2086
    mknod -m 666 "$1/$name" c $numbers
  done <<<"null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0"
  ln -s /proc/self/fd "$1/fd"
  mkdir -m 1777 "$1/shm"
}

run() { # [--mount=…]… COMMAND
  local line=$* target options
  while [[ $line == --mount=* ]]; do
    options=${line%% *} line=${line#* }
    while [[ $line == ' '* ]]; do line=${line# }; done
    [[ $options == --mount=type=cache,target=* ]] || die "RUN $options is not known here"
    target=${options#--mount=type=cache,target=}
    mkdir -p "$work/cache/mounts$target" "$root$target"
    mountpoint -q "$root$target" || mount --bind "$work/cache/mounts$target" "$root$target"
  done
  in_stage /bin/sh -c "$line"
}

copy() { # [--from=STAGE] SOURCE… DESTINATION
  local from=$context
  if [[ $1 == --from=* ]]; then
    from=${stages[${1#--from=}]} || die "COPY $1: no such stage"
    shift
  fi
  local -a names=("$@")
  local target=${names[-1]}
  unset 'names[-1]'
  [[ $target == /* ]] || target=${dir%/}/$target
  local name
  for name in "${names[@]}"; do
    local source=$from/${name#/}
    if [ -d "$source" ]; then
      # As docker does: the contents of a folder, without what .dockerignore leaves out.
      mkdir -p "$root$target"
      tar -C "$source" --exclude=target --owner=0 --group=0 -cf - . | tar -C "$root$target" -xf -
    elif [[ $target == */ ]] || [ ${#names[@]} -gt 1 ]; then
      install -D -m "$(stat -c %a "$source")" "$source" "$root${target%/}/${name##*/}"
    else
      install -D -m "$(stat -c %a "$source")" "$source" "$root$target"
    fi
  done
}

json_words() { # ["a", "b"]
  python3 -c 'import json, sys; print("\n".join(json.loads(sys.argv[1])))' "$1"
}

instruction() { # WORD REST
  local word=$1 rest=$2
  if [ $again = 1 ] && [[ $word == RUN || $word == COPY ]]; then return; fi
  say "$word $rest"
  # shellcheck disable=SC2086
  case $word in
    FROM) from $rest ;;
    RUN) run "$rest" ;;
    COPY) copy $rest ;;
    WORKDIR) dir=$rest; mkdir -p "$root$dir" ;;
    USER) user=$rest ;;
    ENV) environment+=("$rest") ;;
    VOLUME) volumes+=("$rest") ;;
    ENTRYPOINT) mapfile -t entrypoint < <(json_words "$rest") ;;
    CMD) mapfile -t command < <(json_words "$rest") ;;
    *) die "$word is not known here" ;;
  esac
}

# Joins continued lines and drops comments.
instructions=()
line=''
while IFS= read -r text || [ -n "$text" ]; do
  [[ $text =~ ^[[:space:]]*# ]] && continue
  if [[ $text == *\\ ]]; then line+="${text%\\} "; continue; fi
  line+=$text
  [[ $line =~ [^[:space:]] ]] && instructions+=("$line")
  line=''
done <"$dockerfile"
for line in "${instructions[@]}"; do
  instruction "${line%% *}" "${line#* }"
done

say "starting the image: user $user, root read-only"
for place in proc dev; do
  if mountpoint -q "$root/$place"; then umount -l "$root/$place"; fi
done
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev" && devices "$root/dev"
mount -o remount,ro "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
for volume in "${volumes[@]}"; do
  # A new volume has the owner and the mode of the folder in the image.
  mount -t tmpfs -o "uid=$(stat -c %u "$root$volume"),gid=$(stat -c %g "$root$volume"),mode=$(stat -c %a "$root$volume")" tmpfs "$root$volume"
done
image() { # ARGUMENT…, as `docker run --read-only --cap-drop ALL IMAGE ARGUMENT…`
  local -a words=("$@")
  [ $# -gt 0 ] || words=("${command[@]}")
  exec env -i PATH="$path" HOME=/nonexistent "${environment[@]}" chroot "$root" \
    setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all sh -c 'cd "$1" && shift && exec "$@"' sh "$dir" "${entrypoint[@]}" "${words[@]}"
}

# Starts the image in the background, with its output in a file. Whatever still runs ends with us.
pids=()
trap 'echo "failed at line $LINENO: $BASH_COMMAND" >&2' ERR
trap 'for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done' EXIT
start() { # LOG ARGUMENT…
  local log=$1
  shift
  image "$@" >"$log" 2>&1 &
  pids+=($!)
}
# Waits for a line in a file and prints it.
line_of() { # LOG PATTERN
  local tries
  for tries in $(seq 600); do
    grep -m1 -E "$2" "$1" && return
    kill -0 "${pids[-1]}" 2>/dev/null || { cat "$1" >&2; die "it ended before it printed $2"; }
    sleep 0.1
  done
  cat "$1" >&2
  die "no line with $2 in a minute"
}
url_of() { line_of "$@" | grep -oE 'http://[0-9.:]+' | head -n1; }
# Asks until a pattern is in the answer.
answer_has() { # URL PATTERN
  local tries
  for tries in $(seq 600); do
    curl -fsS -m 10 "$1" 2>/dev/null | grep -E "$2" >/dev/null && return
    sleep 0.2
  done
  die "$1 never answered $2"
}
stop() {
  local pid=${pids[-1]} code=0
  kill -TERM "$pid"
  wait "$pid" || code=$?
  [ "$code" = 0 ] || die "exit code $code after SIGTERM"
  unset 'pids[-1]'
}
# A shell in place of the entry point, with the same user and limits.
shell() { (entrypoint=(sh -c); image "$1"); }

say "the user is unprivileged and cannot write outside of /tmp and the volumes"
[ "$(shell 'id -u; id -g' | xargs)" = "${user/:/ }" ] || die "runs as $(shell id)"
[ "$(shell 'grep ^CapEff /proc/self/status')" = $'CapEff:\t0000000000000000' ] || die "it has capabilities"
for place in / /usr/local/bin /etc /dev; do
  if shell "touch $place/written" 2>/dev/null; then die "$place is writable"; fi
done
# Not for lack of permission only: root cannot write there either.
for place in / /usr/local/bin /etc; do
  if touch "$root$place/written" 2>/dev/null; then die "$place is not mounted read-only"; fi
done
shell 'touch /tmp/written && rm /tmp/written'
for volume in "${volumes[@]}"; do shell "touch $volume/written && rm $volume/written"; done

say "Pulsar and Temporal are compiled in"
cat >"$root/tmp/features.toml" <<'TOML'
[schedule]
kind = "temporal"
temporal_address = "http://127.0.0.1:7233"
[[participant]]
ispb = "12345678"
dict = "http://127.0.0.1:8085/api/v2/"
[[sink]]
name = "topic"
kind = "pulsar"
url = "pulsar://127.0.0.1:6650"
topic = "persistent://public/default/dict-rate-limits"
TOML
chmod 644 "$root/tmp/features.toml"
(image check /tmp/features.toml)

any=127.0.0.1:0
say "balde up raises an alert"
start "$work/up.log" up --dict $any --gateway $any --state $any --monitor $any
page=$(url_of "$work/up.log" '^page ')
(image health "$page/healthz" "$page/readyz")
answer_has "$page/api/v1/alerts?limit=50" '"raised"'
grep -m1 -E '^[0-9:]{8}  .* of [0-9]{8} is ' "$work/up.log"
stop

say "balde monitor polls a simulator and stores what it gets in the volume"
start "$work/simulate.log" simulate --listen $any --participant 12345678=F
dict=$(url_of "$work/simulate.log" '"endpoint":"DICT"')
(image health "$dict/sim")
cat >"$root/tmp/monitor.toml" <<TOML
[http]
address = "$any"
[history]
address = "${volumes[0]}/monitor.db"
[[participant]]
ispb = "12345678"
dict = "$dict/api/v2/"
TOML
chmod 644 "$root/tmp/monitor.toml"
(image check /tmp/monitor.toml)
start "$work/monitor.log" monitor --config /tmp/monitor.toml
page=$(url_of "$work/monitor.log" '"endpoint":"page"')
answer_has "$page/metrics" '^dict_rate_limit_available_tokens\{.*policy="KEYS_CHECK"'
curl -fsS "$page/metrics" | grep '^dict_rate_limit_available_tokens{.*KEYS_CHECK'
(image health "$page/healthz" "$page/readyz")
stop
[ -s "$root${volumes[0]}/monitor.db" ] || die "no history in the volume"
if (image health "$page/healthz" 2>/dev/null); then die "health says yes after the end"; fi
stop

say "all passed: $(du -h "$root/usr/local/bin/balde" | cut -f1) binary, $(du -shx "$root" | cut -f1) image"
