#!/usr/bin/env bash
# Installs the packages of scripts/build-packages.sh where nothing else is installed, and tries them: the
# .deb in a chroot that debootstrap makes, the .rpm in a root of its own. Needs root; takes some minutes.
# The packages may be those of a debug binary (scripts/build-packages.sh --no-build target/debug), which is
# much faster to build and has the same files.
#
#   scripts/test-packages.sh [FOLDER OF THE CHROOT]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
[ "$(id -u)" = 0 ] || { echo "this script needs root, for a chroot" >&2; exit 1; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
deb=$(echo "$target"/packages/balde_*.deb)
rpm=$(echo "$target"/packages/balde-*.rpm)
for file in "$deb" "$rpm"; do
  [ -f "$file" ] || { echo "$file does not exist; run scripts/build-packages.sh first" >&2; exit 1; }
done
missing=()
command -v debootstrap >/dev/null || missing+=(debootstrap)
command -v rpm >/dev/null || missing+=(rpm)
command -v systemd-analyze >/dev/null || missing+=(systemd)
install_packages "${missing[@]}"

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

files=(usr/bin/balde etc/balde/README etc/balde/tls/README usr/share/man/man1/balde.1.gz
  usr/share/bash-completion/completions/balde usr/share/doc/balde/examples/gateway.toml
  usr/share/doc/balde/examples/monitor.toml usr/share/balde/prometheus/balde-gateway-rules.yml
  usr/share/balde/grafana/balde-gateway.json)
for unit in gateway monitor serve simulator; do files+=("usr/lib/systemd/system/balde-$unit.service"); done

# Checks the files, the units and the binary of an installation below a folder.
check_root() { # ROOT
  local file
  for file in "${files[@]}"; do [ -s "$1/$file" ] || fail "$file is missing"; done
  [ "$(stat -c %a "$1/usr/bin/balde")" = 755 ] || fail "the mode of balde"
  [ "$(stat -c %a "$1/etc/balde/tls")" = 700 ] || fail "the mode of /etc/balde/tls"
  [ "$(stat -c %U "$1/etc/balde/tls")" = root ] || fail "the owner of /etc/balde/tls"
}

export LC_ALL=C
chroot_folder=${1:-$(mktemp -d /var/tmp/balde-chroot.XXXXXX)}
rpm_root=$(mktemp -d /var/tmp/balde-rpm.XXXXXX)
trap 'rm -rf "$chroot_folder" "$rpm_root"' EXIT

say "a Debian with nothing in it"
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
debootstrap --variant=minbase --include=systemd,ca-certificates "$release" "$chroot_folder" >"$chroot_folder.log" 2>&1 ||
  { tail -n 20 "$chroot_folder.log" >&2; fail "debootstrap"; }
rm -f "$chroot_folder.log"

say "installing $(basename "$deb")"
cp "$deb" "$chroot_folder/tmp/balde.deb"
chroot "$chroot_folder" dpkg --install /tmp/balde.deb
check_root "$chroot_folder"
chroot "$chroot_folder" balde --version
for unit in gateway monitor simulator; do
  chroot "$chroot_folder" systemd-analyze verify --man=no "balde-$unit.service" || fail "balde-$unit.service"
done
# The examples are valid, the manual page can be read, and the program runs as a user without rights.
chroot "$chroot_folder" balde check --without-env /usr/share/doc/balde/examples/gateway.toml /usr/share/doc/balde/examples/monitor.toml
chroot "$chroot_folder" sh -c 'zcat /usr/share/man/man1/balde.1.gz | grep -q "^.TH balde"' || fail "the manual page"
chroot --userspec=65534:65534 "$chroot_folder" balde policies | grep -q ENTRIES_WRITE || fail "balde policies"
# Files of /etc that were changed survive an upgrade, and nothing of the program survives its removal.
echo "# changed" >>"$chroot_folder/etc/balde/README"
chroot "$chroot_folder" dpkg --install /tmp/balde.deb >/dev/null
grep -q "# changed" "$chroot_folder/etc/balde/README" || fail "a file of /etc/balde was overwritten"
chroot "$chroot_folder" dpkg --remove balde >/dev/null
[ ! -e "$chroot_folder/usr/bin/balde" ] || fail "balde is still there"
[ -e "$chroot_folder/etc/balde/README" ] || fail "a removal without purge took /etc/balde"
chroot "$chroot_folder" dpkg --purge balde >/dev/null
[ ! -e "$chroot_folder/etc/balde/README" ] || fail "a purge left /etc/balde/README"

say "installing $(basename "$rpm")"
rpm --root "$rpm_root" --initdb
# Debian's libraries are not packages of rpm, and the root has no shell for scripts.
rpm --root "$rpm_root" --install --nodeps --noscripts "$rpm"
rpm --root "$rpm_root" --query --info balde | sed -n '1,4p'
chmod 700 "$rpm_root/etc/balde/tls" # what the script after the installation does
check_root "$rpm_root"
rpm --query --package --scripts "$rpm" | grep -q 'chmod 700 /etc/balde/tls' || fail "the script of the .rpm"
rpm --query --package --requires "$rpm" | grep -q '^libc.so.6' || fail "the .rpm requires no libc"
rpm --root "$rpm_root" --verify --nodeps --nomode balde || fail "rpm --verify"
"$rpm_root/usr/bin/balde" --version
for unit in gateway monitor simulator; do
  systemd-analyze verify --man=no --root="$rpm_root" "/usr/lib/systemd/system/balde-$unit.service" 2>"$rpm_root/said" || true
  ! grep "balde-$unit.service" "$rpm_root/said" | grep -v "Failed to add dependency\|not found" || fail "balde-$unit.service"
done
rpm --root "$rpm_root" --erase --nodeps --noscripts balde
[ ! -e "$rpm_root/usr/bin/balde" ] || fail "balde is still there"

say "both packages install, run and go"
