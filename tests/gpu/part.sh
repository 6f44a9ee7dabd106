#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one part of run.sh in a separate process, so that a time limit applies to it and to
# everything that it starts. Usage, by run.sh: part.sh NAME SECONDS
#
# parts/NAME.sh defines part_NAME. A part fails only if it could not determine a result; its
# findings are in its rows.
set -uo pipefail
part=$1 limit=$2
export GPUSHARED_GPU_PART=$part  # For the programs that write rows themselves.
source "$here/lib.sh"

# ---- servers

server=""
try_server() {  # policy [options]
  [[ -e $scratch/no_gpu ]] && { why="no GPU is served: $(<"$scratch/no_gpu")"; return 1; }
  # Each part has its own server, so that no server adopts the workers that another part left.
  export GPUSHARED_SOCKET=$scratch/$part.sock
  local compiler=()
  [[ -n $ptxas ]] && compiler=(--ptx-compiler "$ptxas")
  "$bin/gpushared" --policy "$1" --device "$device" --socket "$GPUSHARED_SOCKET" --code-cache "$scratch/code" \
    "${compiler[@]}" "${@:2}" 2>>"$logs/$part.gpushared.log" &
  server=$!
  await_server && { choose_device; return; }
  # The first of the server's last error messages, because the later ones are consequences.
  why="the server did not start: ${why:-$(grep -E ' (critical|error) ' "$logs/$part.gpushared.log" | tail -n 3 | head -n 1)}"
  [[ $why == *": " ]] && why+=$(tail -n 1 "$logs/$part.gpushared.log")
  stop_server
  return 1
}
start_server() {  # policy [options]
  try_server "$@" || fail "$why"
}
# Sets `why`, or leaves it empty if the server's log states the reason.
await_server() {
  local state try
  why=""
  for try in $(seq 200); do
    state=$(device_field state)
    case $state in
      ready) return ;;
      "" | starting) ;;
      # A worker that failed once fails again, so waiting for its restarts would only cost the part
      # its time.
      *) why="the device is $state: $(device_field last_death)"; return 1 ;;
    esac
    kill -0 "$server" 2>/dev/null || return 1
    sleep 0.1
  done
  why="it was not ready within 20 s"
  return 1
}
# Stops the server. Kills it if it hangs, for example because the GPU no longer answers.
stop_server() {
  [[ -n $server ]] || return 0
  local workers try
  workers=$(cat "/proc/$server/task/"*/children 2>/dev/null)
  kill "$server" 2>/dev/null
  for try in $(seq 100); do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  if kill -KILL "$server" 2>/dev/null; then
    echo "the server did not end within $((try / 10)) s" >&2
    # shellcheck disable=SC2086
    kill -KILL $workers 2>/dev/null
  fi
  wait "$server"
  server=""
}
# Prints a field of the first device that the server lists.
device_field() { "$bin/gpusharedctl" --json devices 2>/dev/null | sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" | head -n 1; }
worker_pid() { device_field worker_pid; }

# Chooses the GPU or MIG instance to measure: the first device of the run's first server. Its UUID
# names it to the driver, too, so that programs without a server use no other device from then on.
choose_device() {
  [[ ! -e $scratch/device ]] || return 0
  if [[ $(device_field kind) != cuda ]]; then
    grep -m 1 'cpu:0' "$logs/$part.gpushared.log" >"$scratch/no_gpu"
    return 0
  fi
  device_field uuid >"$scratch/device"
  use_device
}
use_device() {
  [[ -s $scratch/device ]] || return 0
  device=$(<"$scratch/device")
  export CUDA_VISIBLE_DEVICES=$device
}

# Adds a row on whether this server preempts kernels, which requires a compiler.
preemption_row() {  # server
  local preemption kind=figure must="== 1"
  preemption=$(device_field preemption)
  [[ -n $ptxas ]] || kind=fact must=-
  row "$1: kernels can be preempted" "$([[ $preemption == within* ]] && echo 1 || echo 0)" - "$kind" "$must" \
    "ptxas: ${ptxas:-none is installed}; preemption is $preemption"
}

# A block of the modelled GPU runs to its end before anything else happens, so no block may wait for
# the host.
without_costs() {
  local given=${FAKE_CUDA:-}
  [[ $modelled -eq 0 ]] || export FAKE_CUDA=${given//costs on/}
}

# Prints the directory of our libcuda.so.1.
drop_in_directory() {
  local prefix
  prefix=$(dirname "$(dirname "$(readlink -f "$bin/gpushared")")")
  [[ -e $prefix/lib/gpushared/drop_in/libcuda.so.1 ]] && { echo "$prefix/lib/gpushared/drop_in"; return; }
  echo "$prefix/lib/drop_in"  # Its place in a build that is not installed.
}

# ---- samples

find_text() {
  local file
  for file in "$root/LICENSE" "$bin/../LICENSE"; do [[ -r $file ]] && { echo "$file"; return; }; done
  fail "no text to learn: $root/LICENSE does not exist"
}

# Loads the samples' sizes that the part model determined, so that all later parts use the same
# sizes. If that part has not run, loads sizes that any GPU can handle.
load_sizes() {
  if [[ ! -s $scratch/sizes ]]; then
    local text hidden train_batch serve_batch service_ms requests rate
    text=$(find_text) || exit 1
    hidden=$(either 32 4096) train_batch=$(either 16 512) serve_batch=$(either 4 256)
    rate=$(calculate "0.5 * 256 / $(either 256 "$hidden")") service_ms=$(either 1 3) requests=$(either 12 700)
    rm -f "$scratch/model"
    save_sizes
    row "sizes" "not measured" - fact - "a hidden layer of $hidden"
  fi
  # shellcheck disable=SC1091
  source "$scratch/sizes"
  [[ -s $scratch/model ]] && return
  make_model _native 4 && return
  start_server priority
  make_model "" 4 || fail "neither train_native nor train makes a model"
  stop_server
}
save_sizes() {
  declare -p text hidden rate train_batch serve_batch service_ms requests | sed 's/^declare --/declare -g/' >"$scratch/sizes"
}
make_model() {  # suffix steps
  "$bin/train$1" --text "$text" --hidden "$hidden" --batch "$train_batch" --rate "$rate" --steps "$2" \
    --model "$scratch/model" --json "$scratch/model.json"
  [[ -s $scratch/model ]]
}

# NAME=VALUE for the programs of a pair: for both, for the low-priority one, for the high-priority
# one.
client_environment=() low_environment=() high_environment=()
# A sample that hangs costs no more than this limit.
readonly sample_limit=(timeout --foreground --kill-after=2 "$(either 120 25)")
# Sets `train_arguments` and `serve_arguments` for the current sizes and seed.
set_arguments() {
  train_arguments=(--text "$text" --hidden "$hidden" --batch "$train_batch" --rate "$rate" --steps 0)
  serve_arguments=(--model "$scratch/model" --batch "$serve_batch" --seed "${serve_seed:-1}" --service-ms "$service_ms"
    --latency-target-ms 25 --requests "$requests")
}
run_train() {  # suffix ("" or _native) json options
  set_arguments
  env "${client_environment[@]}" "${low_environment[@]}" "${sample_limit[@]}" "$bin/train$1" "${train_arguments[@]}" \
    --json "$2" "${@:3}"
}
run_serve() {  # suffix json options
  set_arguments
  env "${client_environment[@]}" "${high_environment[@]}" "${sample_limit[@]}" "$bin/serve$1" "${serve_arguments[@]}" \
    --json "$2" "${@:3}"
}
steps_per_s() { calculate "$(field "$1" steps) / $(field "$1" seconds)"; }
p50_ms() { field "$1" p50_ms; }
p99_ms() { field "$1" p99_ms; }
# Prints the time this many seconds from now, as --start-at takes it.
in_seconds() { date +%s.%N | awk -v lead="$1" '{ printf "%.3f", $1 + lead }'; }

# ---- contenders: ways to share the GPU between a low-priority and a high-priority program

# Sets up the environment of a pair, and runs the action with the contender's name and the suffix of
# its programs. "one process" has the suffix _both, because both_native starts its programs.
with_contender() {  # contender action [arguments]
  local status=0
  client_environment=() low_environment=() high_environment=()
  case $1 in
    priority | deadline) start_server "$1"; "$2" "$1" "" "${@:3}" || status=$?; stop_server; return "$status" ;;
    "time slicing") ;;
    "one process, stream priorities") "$2" "$1" _both "${@:3}"; return ;;
    MPS*)
      start_mps || { row "$1" skipped - fact - "$why"; return 0; }
      client_environment=("${mps_environment[@]}")
      case $1 in
        *"client priority") low_environment=(CUDA_MPS_CLIENT_PRIORITY=1) ;;  # "Below normal", as MPS calls it.
        *"stream priorities") low_environment=(NATIVE_PRIORITY=0) high_environment=(NATIVE_PRIORITY=-5) ;;
        *"50 % of the threads") low_environment=(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50) ;;
      esac ;;
    *) fail "no contender '$1'" ;;
  esac
  if [[ $1 != MPS* ]] || is_under_mps "$1"; then "$2" "$1" _native "${@:3}" || status=$?; fi
  client_environment=() low_environment=() high_environment=()
  stop_mps
  return "$status"
}
readonly contenders=(priority deadline "time slicing" "one process, stream priorities" "MPS, client priority"
  "MPS, stream priorities" "MPS, low has 50 % of the threads")
# Checks that a first client finds our daemon, because a client without a daemon silently runs
# without MPS. The check also makes the daemon start its server.
is_under_mps() {  # contender
  local first
  first=$(env "${client_environment[@]}" timeout --foreground 20 "$bin/gpu_ops_native" <<<device)
  row "$1: a first program is under MPS" "$([[ $first == *"under MPS"* ]] && echo 1 || echo 0)" - rule "== 1" "$first"
  [[ $first == *"under MPS"* ]]
}
# Adds a row on how many native programs were clients of MPS, because without our daemon they may
# have found another one.
mps_row() {  # contender json...
  local file under=0 wanted=0
  for file in "${@:2}"; do grep -q '"device": "[^"]*under MPS"' "$file" && under=$((under + 1)); done
  [[ $1 == MPS* ]] && wanted=$(($# - 1))
  row "$1: programs under MPS" "$under" - rule "== $wanted"
  [[ $under -eq $wanted ]]
}

source "$here/parts/$part.sh"
at_end=:  # A function that adds the rows which a part has however it ends.
trap '"$at_end"; stop_mps; stop_server' EXIT
# Handles only the first signal, because timeout signals this process and then its group, and the
# second signal would cut off the last messages. It is ignored, also by the programs that print
# these messages.
trap 'trap "" TERM INT; exit 124' TERM INT
use_device
"part_$part"
exit $?
