#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs Kubernetes' own programs and gpushared on two nodes in namespaces. Usage: run_kubernetes.sh
# DIRECTORY_OF_PROGRAMS CACHE RESULTS [SCENARIO...]. CACHE is the result of build_kubernetes.sh.
# Exit code 77: the test cannot run here; the reason is on stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$(realpath "$1")
cache=$(realpath "$2")
mkdir -p "$3"
results=$(realpath "$3")

skip() { echo "kubernetes: skipped: $1"; exit 77; }
[[ $EUID -eq 0 ]] || skip "needs root"
for program in ip nsenter setpriv openssl strip; do
  command -v "$program" >/dev/null || skip "needs $program (packaging/setup_debian.sh kubernetes)"
done
[[ -f $programs/gpushared-kubernetes ]] || skip "the plugin was not built; it needs gRPC"
# Leftovers of this run's containers are recognised by this name.
groups() { find /sys/fs/cgroup -maxdepth 2 -type d -name k8s.io; }
[[ -z $(groups) ]] || skip "containers of Kubernetes run on this machine, or $(groups | head -n 1) is left of some"
[[ -d /sys/fs/cgroup/memory || -e /sys/fs/cgroup/cgroup.controllers ]] || skip "no control groups are mounted"
apart=(unshare --pid --fork --kill-child --mount --net --uts --ipc --mount-proc)
"${apart[@]}" ip link add veth0 type veth peer name veth1 2>/dev/null || skip "cannot make namespaces with a network"

work=$(mktemp -d /tmp/k8s.XXXXXX)
clean_up() {
  # By now every process of the namespace has ended.
  groups | while read -r group; do find "$group" -depth -type d -exec rmdir {} +; done
  rmdir "$work"
}
trap clean_up EXIT
# The tmpfs is mounted only in the namespace, and disappears with the namespace.
timeout --kill-after=20 "${GPUSHARED_KUBERNETES_SECONDS:-660}" "${apart[@]}" \
  bash -c 'mount -t tmpfs -o mode=755 tmpfs "$1" && exec python3 -B "$2" "$3" "$4" "$1" "$5" "${@:6}"' \
  bash "$work" "$here/scenarios.py" "$programs" "$cache" "$results" "${@:4}"
