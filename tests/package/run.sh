#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Inspects the packages, then installs, starts, uses, upgrades and removes them in a fresh Debian.
# Usage: tests/package/run.sh BUILD CACHE
#
# BUILD is a build of the preset `package`, with its packages. CACHE keeps the files fetched from
# Debian. The fresh root is booted by systemd-nspawn, and used a second time as a plain chroot,
# without systemd. Everything is on an overlay in memory, in namespaces that end with this script.
# Needs root; otherwise the second half is skipped.
set -euo pipefail
build=$(realpath "$1")
mkdir -p "$2"
cache=$(realpath "$2")
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")

if [[ ${3:-} != --in-namespaces ]]; then
  echo "package: lintian"
  lintian --allow-root --fail-on error,warning "$build"/packages/*.deb
  if [[ $(id -u) -ne 0 ]]; then
    echo "package: SKIPPED: installing needs root, for a Debian of its own"
    exit 0
  fi
  # When the first process of the namespace exits, all its processes and mounts end.
  exec unshare --mount --pid --fork --kill-child --mount-proc "${BASH_SOURCE[0]}" "$build" "$cache" --in-namespaces
fi

base=$cache/bookworm
if [[ ! -e $base/.complete ]]; then
  echo "package: fetching a Debian"
  rm -rf "$base"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm "$base" http://deb.debian.org/debian \
    >"$cache/debootstrap.log" || { tail -n 5 "$cache/debootstrap.log"; exit 1; }
  touch "$base/.complete"
fi
mkdir -p "$cache/archives/partial"

work=$(mktemp -d)
mount -t tmpfs -o size=1G package_test "$work"

# Makes a separate root on top of the fetched files, with the packages and with programs that use a
# server.
make_root() {  # name
  root=$work/$1/root
  mkdir -p "$work/$1"/{upper,overlay,root,out}
  mount -t overlay overlay -o "lowerdir=$base,upperdir=$work/$1/upper,workdir=$work/$1/overlay" "$root"
  mkdir -p "$root/opt/test"
  cp "$build"/packages/*.deb "$build/bin/vector_add_cpp" "$build/bin/train" "$here/inside.sh" "$here/../../README.md" \
    "$root/opt/test/"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  mount --bind "$cache/archives" "$root/var/cache/apt/archives"
  in_root sh -c 'apt-get -qq update && apt-get install -y -qq --no-install-recommends -o APT::Keep-Downloaded-Packages=1 \
    /opt/test/*.deb' >"$work/$1/out/install.log" 2>&1 || { cat "$work/$1/out/install.log"; exit 1; }
  umount "$root/var/cache/apt/archives"
}

in_root() { DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

# Makes the same packages with a later version number.
make_later() {
  local deb directory
  for deb in "$root"/opt/test/*.deb; do
    directory=$work/unpacked
    rm -rf "$directory"
    dpkg-deb -R "$deb" "$directory"
    sed -i -E 's/^Version: .*/&+later/; s/\(= ([^)]*)\)/(= \1+later)/g' "$directory/DEBIAN/control"
    mkdir -p "$root/opt/test/later"
    dpkg-deb -b --root-owner-group "$directory" "$root/opt/test/later/" >/dev/null
  done
}

status=0

echo "package: a Debian without a running systemd"
make_root plain
mount -t proc proc "$root/proc"
in_root bash /opt/test/inside.sh plain || status=1

echo "package: a booted Debian"
make_root booted
make_later
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
cat >"$root/etc/systemd/system/package-test.service" <<EOF
[Unit]
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/bin/bash /opt/test/inside.sh booted
StandardOutput=file:/out/log
StandardError=inherit
EOF
ln -s ../package-test.service "$root/etc/systemd/system/multi-user.target.wants/"
: >"$root/etc/machine-id"
if ! timeout --kill-after=10 300 systemd-nspawn -q -D "$root" --register=no --keep-unit --private-network --machine=gpushared-package-test \
  --console=pipe --bind="$work/booted/out:/out" --boot systemd.show_status=0 </dev/null >"$work/booted/out/console" 2>&1; then
  status=1
fi
if [[ ! -e $work/booted/out/log ]]; then
  echo "package: FAILED: systemd-nspawn did not boot:"
  tail -n 20 "$work/booted/out/console"
  exit 1
fi
cat "$work/booted/out/log"
[[ -e $work/booted/out/passed ]] || status=1
[[ $status -eq 0 ]] && echo "package: all passed" || echo "package: FAILED"
exit "$status"
