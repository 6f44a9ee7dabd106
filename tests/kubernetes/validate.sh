#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the manifests and the Helm chart against Kubernetes' published schemas, of every release that
# PyPI's kubernetes-validate has. Usage: validate.sh CACHE BIN_DIR. Contacts no cluster.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$here/venv.sh" "$1"
venv=$(realpath "$1")/venv
python=$venv/bin/python3
"$python" -B "$here/manifests_test.py" "$here/../../packaging/kubernetes"
PATH="$venv/bin:$PATH" "$python" -B "$here/chart_test.py" "$here/../../packaging" "$2"
