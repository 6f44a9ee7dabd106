#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Notebooks on one device: twelve Jupyter kernels, of which two compute. Each is an ordinary Python
# kernel that `gpusharedctl run` starts, so that Numba uses the shared device. Together they hold more
# than the memory of the device: an idle notebook is parked, that is swapped out, and its memory comes
# back when its next cell needs it.
#
# PYTHON  with pip install ipykernel jupyter_client "numba-cuda[cu13]" numpy (default: python3)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

python=$(command -v "${PYTHON:-python3}") || fail "no Python '${PYTHON:-python3}'"
"$python" -c 'import ipykernel, jupyter_client, numba.cuda' 2>"$work/python.log" ||
  { echo "notebooks.sh: skipped: $(tail -n 1 "$work/python.log")" >&2; exit 77; }

start_server <<END
policy = "fair"
device = "cpu:0"
memory = "512MiB"
overcommit = "2GiB"
idle_after = "2s"  # Minutes in practice. What an idle notebook holds is then free for the others.

[[access]]
everyone = true
client_memory = "32MiB"  # Guaranteed to each notebook.
memory_limit = "160MiB"
END

# For JupyterHub and Kubeflow this file goes into the image: it is all that a user's notebook needs.
mkdir -p "$work/jupyter/kernels/shared-gpu"
cat >"$work/jupyter/kernels/shared-gpu/kernel.json" <<END
{"display_name": "Python (shared GPU)", "language": "python",
 "argv": ["$bin/gpusharedctl", "run", "--class", "normal", "--interruptible", "--",
          "$python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
END
JUPYTER_PATH=$work/jupyter "$python" "$(dirname "${BASH_SOURCE[0]}")/notebooks.py" "$bin/gpusharedctl" --seconds "$seconds"
