# SPDX-License-Identifier: Apache-2.0
# Functions that run.sh and its parts share. Expects `rows`, `logs`, `scratch`, `bin` and `short`,
# which run.sh exports.

# Adds a row to rows.tsv. A value that could not be determined is `none`, with the reason, and meets
# no bound.
row() {  # what value unit kind must [note]
  local value=${2//[$'\t\n\r']/ } note=${6:-}
  note=${note//[$'\t\n\r']/ }
  [[ -n $value ]] || { value=none note="could not be found out, see $part.log${note:+; $note}"; }
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$part" "$1" "$value" "$3" "$4" "$5" "${note:0:500}" >>"$rows"
}
fail() { echo "$part: $*" >&2; exit 1; }

# Evaluates one line of awk. Prints nothing if the number does not exist, because some awks print
# "inf" for a division by zero.
calculate() { awk "BEGIN { value = sprintf(\"%.6g\", $1); if (value ~ /^-?[0-9]/) print value }"; }
is_true() { awk "BEGIN { exit !($1) }"; }
field() { sed -n "s/.*\"$2\": \([-+0-9.e]*\).*/\1/p" "$1" | head -n 1; }  # file key
list_of() { sed -n "s/.*\"$2\": \[\([^]]*\)\].*/\1/p" "$1" | tr -d ' ' | tr ',' '\n'; }  # file key, a number a line
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
either() { if [[ $short -eq 1 ]]; then echo "$1"; else echo "$2"; fi; }  # short full

# Finds a tool of the CUDA toolkit, in its usual places and in those of Python packages below the
# directories.
find_tool() {  # name directories_of_python_packages...
  command -v "$1" && return
  local file directory files=(/usr/local/cuda/bin/"$1" /usr/local/cuda-*/bin/"$1" /opt/cuda/bin/"$1"
    /opt/nvidia/*/bin/"$1")
  for directory in "${@:2}"; do
    files+=("$directory"/nvidia/cuda_nvcc/bin/"$1" "$directory"/nvidia/cu*/bin/"$1"
      "$directory"/triton/backends/nvidia/bin/"$1")
  done
  for file in "${files[@]}"; do
    [[ -f $file && -x $file ]] && { echo "$file"; return; }
  done
  return 1
}

# ---- MPS, with a separate daemon and directories, so that no other daemon is found, joined or
# ended

mps_environment=("CUDA_MPS_PIPE_DIRECTORY=${scratch:-}/mps" "CUDA_MPS_LOG_DIRECTORY=${logs:-}/mps")
# The daemon starts its server from PATH.
find_mps() {
  command -v nvidia-cuda-mps-control >/dev/null && return
  local directory
  for directory in /usr/bin /usr/local/bin /usr/local/nvidia/bin /usr/local/cuda/bin /usr/local/cuda-*/bin /opt/cuda/bin \
    /usr/lib/nvidia/bin /usr/lib/nvidia-*/bin /usr/lib/wsl/lib /run/nvidia/driver/usr/bin; do
    [[ -x $directory/nvidia-cuda-mps-control ]] && { PATH=$PATH:$directory; return; }
  done
  return 1
}
start_mps() {
  find_mps || { why="nvidia-cuda-mps-control is in none of the usual places"; return 1; }
  mkdir -p "$scratch/mps" "$logs/mps"
  timeout 10 env "${mps_environment[@]}" nvidia-cuda-mps-control -d && return
  why="nvidia-cuda-mps-control could not be started"
  rm -rf "$scratch/mps"
  return 1
}
stop_mps() {
  [[ -d $scratch/mps ]] || return 0
  local pid=""
  [[ -r $scratch/mps/nvidia-cuda-mps-control.pid ]] && pid=$(<"$scratch/mps/nvidia-cuda-mps-control.pid")
  find_mps
  # With -t 5 the daemon kills its server after 5 s if one of our clients hangs.
  echo "quit -t 5" | timeout 10 env "CUDA_MPS_PIPE_DIRECTORY=$scratch/mps" nvidia-cuda-mps-control ||
    { [[ -n $pid ]] && kill "$pid"; }
  rm -rf "$scratch/mps"
}
