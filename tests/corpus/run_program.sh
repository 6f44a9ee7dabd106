#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a CUDA program with a dedicated gpushared server, on the cpu device.
# Usage: tests/corpus/run_program.sh FILE.cu [ARGUMENT ...]       compiled first
#        tests/corpus/run_program.sh PROGRAM [ARGUMENT ...]       linked with -lgpushared_cudart
# The exit code is the program's; 2 if it could not be compiled or started.
#
# BUILD       the build tree (build/dev), with the targets gpushared and gpushared_cudart_whole
# NVCC        the compiler (nvcc)
# NVCC_FLAGS  further flags and files for it, such as -I and -std
# SERVER_ARGUMENTS  further arguments of the server
# LIMIT_S     seconds after which the program is ended (600)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${BUILD:-$root/build/dev}
[[ $# -ge 1 ]] || { sed -n '4,5p' "${BASH_SOURCE[0]}" >&2; exit 2; }
source=$1
shift
[[ -e $source ]] || { echo "run_program.sh: no file '$source'" >&2; exit 2; }
[[ -x $build/bin/gpushared && -e $build/lib/libgpushared_cudart.so ]] ||
  { echo "run_program.sh: $build has no server or no CUDA runtime for it; build the targets gpushared and gpushared_cudart_whole" >&2; exit 2; }

scratch=$(mktemp -d)
server=
finish() {
  if [[ -n $server ]]; then
    # The second SIGTERM ends the server at once.
    kill -TERM "$server" 2>/dev/null && sleep 0.2 && kill -TERM "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$scratch"
}
trap finish EXIT

program=$source
if [[ $source == *.cu ]]; then
  program=$scratch/program
  # Generates only PTX, because servers accept PTX and PTX needs no assembler.
  # shellcheck disable=SC2086
  "${NVCC:-nvcc}" -cudart none -gencode arch=compute_75,code=compute_75 -I "$root" "$source" ${NVCC_FLAGS:-} \
    -L "$build/lib" -lgpushared_cudart -Xlinker -rpath -Xlinker "$build/lib" -o "$program" || exit 2
fi

export GPUSHARED_SOCKET=$scratch/socket
# shellcheck disable=SC2086
"$build/bin/gpushared" --device cpu:0 ${SERVER_ARGUMENTS:-} >"$scratch/log" 2>&1 &
server=$!
for ((i = 0; i < 200; ++i)); do
  [[ -S $GPUSHARED_SOCKET ]] && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.05
done
[[ -S $GPUSHARED_SOCKET ]] || { cat "$scratch/log" >&2; exit 2; }

status=0
timeout "${LIMIT_S:-600}" "$program" "$@" || status=$?
# Prints the text that kernels printed, and the server's warnings and errors.
grep -E ' prints| warn| error' "$scratch/log" >&2 || true
exit "$status"
