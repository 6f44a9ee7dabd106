#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the DRA driver with the real server. The test imitates a kubelet and an API server, because
# Debian has no Kubernetes with resource.k8s.io/v1. Usage: run_dra.sh CACHE BIN_DIR [TEST...]
# Exit code 77: the test cannot run here; the reason is on stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

skip() { echo "dra: skipped: $1"; exit 77; }
[[ $EUID -eq 0 ]] || skip "needs root"
[[ -x $2/gpushared-dra ]] || skip "the driver was not built; it needs gRPC and libcurl"
for program in protoc openssl unshare; do
  command -v "$program" >/dev/null || skip "needs $program (packaging/setup_debian.sh kubernetes)"
done
unshare --mount --propagation private mount -t tmpfs tmpfs /mnt 2>/dev/null || skip "cannot mount in a namespace"
"$here/venv.sh" "$1"
PATH="$(realpath "$1")/venv/bin:$PATH" "$1/venv/bin/python3" -B "$here/dra_test.py" "$here/../../server/tools/cluster/kubernetes/dra" "$2" "${@:3}"
