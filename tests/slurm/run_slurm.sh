#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs Slurm's daemons and gpushared on three nodes in namespaces. Usage: run_slurm.sh
# DIRECTORY_OF_PROGRAMS PLUGIN RESULTS [SCENARIO...]. Exit code 77: the test cannot run here; the
# reason is on stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$(realpath "$1")
plugin=$(realpath "$2")
mkdir -p "$3"
results=$(realpath "$3")

skip() { echo "slurm: skipped: $1"; exit 77; }
[[ $EUID -eq 0 ]] || skip "needs root"
[[ -f $plugin ]] || skip "the plugin was not built; it needs libslurm-dev"
for program in slurmctld slurmd slurmdbd srun mariadbd munged ip nsenter setpriv; do
  command -v "$program" >/dev/null || skip "needs $program (packaging/setup_debian.sh slurm)"
done
apart=(unshare --pid --fork --kill-child --mount --net --uts --mount-proc)
"${apart[@]}" ip link add veth0 type veth peer name veth1 2>/dev/null || skip "cannot make namespaces with a network"
work=$(mktemp -d /tmp/slurm.XXXXXX)
trap 'rmdir "$work"' EXIT
# The tmpfs is mounted only in the namespace, and disappears with the namespace.
timeout --kill-after=20 "${GPUSHARED_SLURM_SECONDS:-540}" "${apart[@]}" \
  bash -c 'mount -t tmpfs -o mode=755 tmpfs "$1" && exec python3 -B "$2" "$3" "$4" "$1" "$5" "${@:6}"' \
  bash "$work" "$here/scenarios.py" "$programs" "$plugin" "$results" "${@:4}"
