#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the server under a real systemd, in a container on a throw-away copy of this machine's own
# file system. Usage: run_service.sh DIRECTORY_OF_PROGRAMS DIRECTORY_OF_RESULTS. Exit code 77: the
# test cannot run here; the reason is on stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$(realpath "$1")
mkdir -p "$2"
results=$(realpath "$2")
kills=${GPUSHARED_BROKER_KILLS:-5}

skip() { echo "service: skipped: $1"; exit 77; }
[[ $EUID -eq 0 ]] || skip "needs root"
command -v systemd-nspawn >/dev/null || skip "needs systemd-nspawn (package systemd-container)"
[[ -x /usr/lib/systemd/systemd ]] || skip "needs systemd"
work=$(mktemp -d)
mounted=""
clean() {
  [[ -z $mounted ]] || { umount -R "$work/root" 2>/dev/null || umount -l "$work/root"; }
  umount "$work" 2>/dev/null || umount -l "$work" 2>/dev/null || true
  rmdir "$work" 2>/dev/null || true
}
trap clean EXIT
mount -t tmpfs -o mode=755 tmpfs "$work" || skip "cannot mount a tmpfs"
mkdir "$work"/{root,upper,inner}
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/inner" "$work/root" 2>/dev/null ||
  skip "cannot mount an overlay of /"
mounted=yes

root=$work/root
rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/systemd/system/default.target "$root"/var/log/journal
rm -rf "${root:?}/run" && mkdir -p "$root/run" "$root/etc/gpushared" "$root/service" "$root/results"
install -m 755 "$programs"/{gpushared,gpusharedctl,train,serve} "$root/usr/bin/"
install -m 644 "$here/../../README.md" "$here/../../packaging/gpushared.service" "$here/../../packaging/gpushared.socket" "$root/service/"
install -m 755 "$here/scenarios.sh" "$programs/../tests/compile_test" "$root/service/"
hostile=$(realpath "$(find "$programs/.." -name gpushared_hostile_compiler -type f)")
install -m 755 "$hostile" "$root/service/"
install -m 644 "$here/../../packaging/gpushared.toml" "$root/etc/gpushared/"
: >"$root/etc/machine-id"
cat >"$root/etc/systemd/system/scenarios.service" <<UNIT
[Unit]
After=basic.target
[Service]
Type=oneshot
Environment=GPUSHARED_BROKER_KILLS=$kills HOSTILE_COMPILER=$hostile
ExecStart=/bin/bash /service/scenarios.sh
UNIT
mkdir -p "$root/etc/systemd/system/basic.target.wants"
ln -s ../scenarios.service "$root/etc/systemd/system/basic.target.wants/"
rm -f "$results"/{log,console}
status=0
timeout --kill-after=20 "${GPUSHARED_SERVICE_SECONDS:-600}" \
  unshare --pid --fork --kill-child --mount-proc systemd-nspawn --quiet --directory="$root" --register=no --keep-unit \
  --system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" \
  --private-network --machine=gpushared-service --console=pipe --bind="$results:/results" --boot \
  systemd.unit=basic.target systemd.log_target=console systemd.show_status=0 \
  </dev/null >"$results/console" 2>&1 || status=$?
if [[ ! -s $results/log ]]; then
  tail -n 20 "$results/console"
  skip "systemd does not start in a container here (exit code $status)"
fi
cat "$results/log"
grep -q '^SERVICE OK$' "$results/log"
