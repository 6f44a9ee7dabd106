#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves gpushared on this machine's first GPU, in less than 9 minutes: correctness, what it costs
# beside the driver's own calls, and what priorities are worth. Needs a driver, bash and awk.
# Changes no setting of the card.
#
# Usage: tests/gpu/run.sh [--out DIR] [--bin DIR] [--short] [--only PART]...
#   --out DIR     results.json, table.txt and logs ($OUT, else gpu-results)
#   --bin DIR     the programs (bin beside tests, else the portable or release build)
#   --short       small sizes and times, figures are not judged: for machines whose GPU is a fake
#   --only PART   only these: environment conformance hostile claims bench model solo pair churn facts
#                 limits sanitizer
#
# Each part runs under a time limit of its own and adds rows to rows.tsv, with tabs between
#   part, what, value, unit, kind (rule, figure, fact), must (">= 0.95", "-"), note.
# Exit status 0: every rule and figure that has a bound holds.
set -uo pipefail
readonly total_s=530

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() { sed -n '3,17s/^# \{0,1\}//p' "$here/run.sh" >&2; exit 2; }

main() {
  out=${OUT:-gpu-results} bin="" short=0
  local only=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --out) out=${2:?--out needs a folder}; shift 2 ;;
      --bin) bin=${2:?--bin needs a folder}; shift 2 ;;
      --short) short=1; shift ;;
      --only) only+=("${2:?--only needs a part}"); shift 2 ;;
      *) usage ;;
    esac
  done
  local folder
  for folder in "$root/bin" "$root/build/portable/bin" "$root/build/release/bin"; do
    [[ -z $bin && -x $folder/gpushared ]] && bin=$folder
  done
  [[ -n $bin && -x $bin/gpushared ]] || { echo "run.sh: no gpushared in '${bin:-$root/bin}'; name the folder with --bin" >&2; exit 2; }
  bin=$(cd "$bin" && pwd)
  mkdir -p "$out/logs" || exit 2
  out=$(cd "$out" && pwd)
  rows=$out/rows.tsv logs=$out/logs
  : >"$rows"
  rm -f "$out/bench.json"
  scratch=$(mktemp -d) || exit 2
  # Behind what the loader knows: where containers have the driver.
  local libraries
  for libraries in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib; do
    [[ -e $libraries/libcuda.so.1 ]] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries
  done
  trap 'rm -rf "$scratch"' EXIT
  export out bin short rows logs scratch

  # Most telling first: what is behind may find no time left.
  local each parts=(environment:20 conformance:130 hostile:20 claims:75 bench:130 model:30 solo:90 pair:120 churn:40 facts:25 limits:20 sanitizer:60)
  for each in "${only[@]}"; do
    [[ " ${parts[*]} " == *" $each:"* ]] || { echo "run.sh: no part '$each', there are ${parts[*]%:*}" >&2; exit 2; }
  done
  for each in "${parts[@]}"; do
    [[ ${#only[@]} -eq 0 || " ${only[*]} " == *" ${each%:*} "* ]] && run_part "${each%:*}" "${each#*:}"
  done

  local bench=""
  [[ -s $out/bench.json ]] && bench=$out/bench.json
  awk -f "$here/report.awk" -v json="$out/results.json" -v short="$short" -v seconds="$SECONDS" -v bench="$bench" \
    "$rows" | tee "$out/table.txt"
  exit "${PIPESTATUS[0]}"
}

# A part is this script again, so that a limit can be set on it and on all that it starts.
run_part() {  # name seconds
  local limit=$2 left=$((total_s - SECONDS)) begin=$SECONDS status
  [[ $limit -gt $left ]] && limit=$left
  if [[ $limit -lt 3 ]]; then
    part=$1 row "the part ran to its end" 0 - rule "== 1" "no time was left"
    return
  fi
  echo "== $1 (at most $limit s)" >&2
  GPUSHARED_GPU_PART=$1 timeout --kill-after=5 "$limit" bash "$here/run.sh" >"$logs/$1.log" 2>&1
  status=$?
  case $status in
    0) part=$1 row "the part ran to its end" 1 - rule "== 1" "$((SECONDS - begin)) s" ;;
    124 | 137) part=$1 row "the part ran to its end" 0 - rule "== 1" "still running after $limit s" ;;
    *) part=$1 row "the part ran to its end" 0 - rule "== 1" "$(tail -n 1 "$logs/$1.log" | cut -c 1-200)" ;;
  esac
  [[ $status -eq 0 ]] || { echo "   failed, last lines of logs/$1.log:" >&2; tail -n 4 "$logs/$1.log" | sed 's/^/   /' >&2; }
}

# ---- what parts are made of

row() {  # what value unit kind must [note]
  local note=${6:-}
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$part" "$1" "$2" "$3" "$4" "$5" "${note//[$'\t\n']/ }" >>"$rows"
}
fail() { echo "$part: $*" >&2; exit 1; }
calculate() { awk "BEGIN { printf \"%.6g\", $1 }"; }
field() { sed -n "s/.*\"$2\": \([-+0-9.e]*\).*/\1/p" "$1" | head -n 1; }  # file key
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
either() { if [[ $short -eq 1 ]]; then echo "$1"; else echo "$2"; fi; }  # short full

server=""
start_server() {  # policy [options]
  export GPUSHARED_SOCKET=$scratch/gpushared.sock
  "$bin/gpushared" --policy "$1" --device cuda:0 --socket "$GPUSHARED_SOCKET" --code-cache "$scratch/code" \
    "${@:2}" 2>>"$logs/$part.gpushared.log" &
  server=$!
  local try
  for try in $(seq 200); do
    [[ $("$bin/gpusharedctl" devices 2>/dev/null) == *' ready '* ]] && return
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  fail "the server did not start ($try): $(tail -n 1 "$logs/$part.gpushared.log")"
}
stop_server() {
  [[ -n $server ]] || return 0
  kill "$server" 2>/dev/null
  wait "$server"
  server=""
}

worker_pid() { "$bin/gpusharedctl" --json devices | sed -n 's/.*"worker_pid": *\([0-9]*\).*/\1/p' | head -n 1; }

mps=""
start_mps() {
  command -v nvidia-cuda-mps-control >/dev/null || { echo "nvidia-cuda-mps-control is not installed"; return 1; }
  # Its own folder, so that no daemon of anybody else is met or joined.
  export CUDA_MPS_PIPE_DIRECTORY=$scratch/mps CUDA_MPS_LOG_DIRECTORY=$logs/mps
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-cuda-mps-control -d || { echo "nvidia-cuda-mps-control could not be started"; return 1; }
}
stop_mps() {
  [[ -n $mps ]] || return 0
  echo quit | timeout 10 nvidia-cuda-mps-control
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  mps=""
}

find_text() {
  local file
  for file in "$root/LICENSE" "$bin/../LICENSE"; do [[ -r $file ]] && { echo "$file"; return; }; done
  fail "no text to learn: $root/LICENSE is not there"
}

# The samples' sizes: what model left, so that later parts agree.
load_sizes() {
  [[ -s $scratch/sizes ]] || fail "the model was not made"
  # shellcheck disable=SC1091
  source "$scratch/sizes"
}

train_environment=()  # NAME=VALUE for train alone.
run_train() {  # suffix ("" or _native) json options
  env "${train_environment[@]}" "$bin/train$1" --text "$text" --hidden "$hidden" --batch "$train_batch" --rate "$rate" --steps 0 --json "$2" "${@:3}"
}
run_serve() {  # suffix json options
  "$bin/serve$1" --model "$scratch/model" --batch "$serve_batch" --service-ms "$service_ms" --promise-ms 25 \
    --requests "$requests" --json "$2" "${@:3}"
}

# ---- parts

part_environment() {
  row "kernel" "$(uname -r)" - fact -
  row "processor" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc) cores" fact -
  row "date" "$(date -u +%FT%TZ)" - fact -
  row "gpushared" "$("$bin/gpushared" --version | head -n 1)" - fact -
  [[ -r /proc/driver/nvidia/version ]] && row "driver" "$(head -n 1 /proc/driver/nvidia/version)" - fact -
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi -q >"$logs/nvidia-smi.txt" 2>&1
    local name
    for name in name driver_version memory.total compute_mode mig.mode.current clocks.max.sm power.limit; do
      row "$name" "$(nvidia-smi --query-gpu="$name" --format=csv,noheader -i 0 2>/dev/null)" - fact -
    done
  fi
  start_server priority
  "$bin/gpusharedctl" devices
  row "the server serves a GPU" "$("$bin/gpusharedctl" devices | grep -c '^cuda:')" - rule ">= 1"
  "$bin/vector_add_cpp" && "$bin/vector_add_c"
  row "vector add in C++ and C" $((! $?)) - rule "== 1"
}

part_conformance() {
  local test=$bin/cuda_conformance_test filter
  [[ -x $test ]] || test=$bin/../tests/cuda_conformance_test
  [[ -x $test ]] || fail "cuda_conformance_test is not there"
  filter=$(either '*OrderOfSubmission*:*Copy*:*Variables*_events' '*')
  "$test" --gtest_color=no --gtest_filter="$filter" >"$logs/conformance.gtest.log" 2>&1
  local status=$? log=$logs/conformance.gtest.log
  count() { sed -n "s/^\[  $1 *\] \([0-9]*\) tests\{0,1\}[.,].*/\1/p" "$log" | head -n 1 | grep . || echo 0; }
  row "rules passed" "$(count PASSED)" - rule ">= 1"
  row "rules failed" "$(count FAILED)" - rule "== 0" "$(sed -n 's/^\[  FAILED  \] \(.*\/.*\), where.*/\1/p' "$log" | sort -u | head -n 3 | tr '\n' ' ')"
  row "rules beyond the device, skipped" "$(count SKIPPED)" - fact - "$(grep -c '^skipped: ' "$log") of them for want of a driver"
  row "exit status" "$status" - rule "== 0"
}

part_hostile() {
  start_server priority --memory contain --kernel-limit low=200ms
  local before
  before=$(worker_pid)
  "$bin/gpu_hostile" --rows "$rows" || fail "gpu_hostile: $(tail -n 1 "$logs/hostile.log")"
  row "the worker went on" "$([[ $before -gt 0 && $(worker_pid) == "$before" ]] && echo 1 || echo 0)" - rule "== 1"
}

part_claims() {
  "$bin/gpu_claims" --rows "$rows" --ms "$(either 10 400)" --programs "$(either 6 1000)" ||
    fail "gpu_claims: $(tail -n 1 "$logs/claims.log")"
}

part_bench() {
  start_server priority
  local worker
  worker=$(worker_pid)
  [[ ${worker:-0} -gt 0 ]] || fail "the server has no worker"
  "$bin/gpu_bench" --rows "$rows" --json "$out/bench.json" --worker "$worker" \
    --ms "$(either 5 80)" --bytes-max "$(either 1048576 1073741824)" || fail "gpu_bench: $(tail -n 1 "$logs/bench.log")"
}

part_model() {
  local text hidden rate train_batch serve_batch service_ms requests
  text=$(find_text) hidden=$(either 32 16384) train_batch=$(either 16 1024) serve_batch=$(either 4 256)
  rate=$(calculate "0.5 * 256 / $(either 256 16384)")
  "$bin/train_native" --text "$text" --hidden "$hidden" --batch "$train_batch" --rate "$rate" \
    --steps "$(either 4 30)" --model "$scratch/model" --json "$scratch/model.json" || fail "train_native failed"
  row "train_native agrees with plain C++" "$(grep -c '"results_checked": true' "$scratch/model.json")" - rule "== 1"
  service_ms=$(service_time)
  # A request takes about 3 ms, whatever this GPU is.
  serve_batch=$(awk -v batch="$serve_batch" -v wanted="$(either 0.5 3)" -v is="$service_ms" -v step="$(either 4 32)" \
    'BEGIN { b = int(batch * wanted / is / step) * step; print (b < step ? step : (b > 16384 ? 16384 : b)) }')
  service_ms=$(service_time)
  [[ -n $service_ms ]] || fail "serve_native failed"
  row "hidden layer" "$hidden" floats fact - "train: $train_batch contexts per step, serve: $serve_batch per request"
  row "serve: time of a request, native" "$service_ms" ms fact -
  # At a load of 0.45, which is what serve does by itself.
  requests=$(either 12 "$(calculate "int(6 / ($service_ms / 0.45 / 1000))")")
  declare -p text hidden rate train_batch serve_batch service_ms requests | sed 's/^declare --/declare -g/' >"$scratch/sizes"
}

service_time() {  # of a request of $serve_batch, in ms
  "$bin/serve_native" --model "$scratch/model" --batch "$serve_batch" --requests 1 | sed -n 's/.*service \([0-9.]*\) ms.*/\1/p'
}

part_solo() {
  load_sizes
  requests=$(either 12 "$(calculate "int($requests / 2)")")
  start_server priority
  local round side
  for round in $(seq "$(either 1 3)"); do
    for side in _native ""; do
      run_train "$side" "$scratch/solo.train$side.$round" --seconds "$(either 0.3 3)" || fail "train$side failed"
      run_serve "$side" "$scratch/solo.serve$side.$round" --seed "$round" || fail "serve$side failed"
    done
  done
  solo_ratio "train alone: steps/s" train steps_per_s ">= 0.99"
  solo_ratio "serve alone: p50" serve p50_ms "<= 1.01"
  solo_ratio "serve alone: p99" serve p99_ms -
}
# The median over the rounds of shared / native; both sides of a round ran one after the other.
solo_ratio() {  # what sample function must
  local round ratios="" native shared
  for round in $(seq "$(either 1 3)"); do
    native=$("$3" "$scratch/solo.$2_native.$round") shared=$("$3" "$scratch/solo.$2.$round")
    ratios+="$(calculate "$shared / $native") "
  done
  row "$1, shared / native" "$(tr ' ' '\n' <<<"$ratios" | grep . | median)" - figure "$4" \
    "ratios $ratios; last round native $native, shared $shared"
}
steps_per_s() { calculate "$(field "$1" steps) / $(field "$1" seconds)"; }
p50_ms() { field "$1" p50_ms; }
p99_ms() { field "$1" p99_ms; }

# Both samples at once, or one of them; all begin at the same moment.
phase() {  # name suffix who...
  local name=$1 suffix=$2 who pids=() start status=0 lead
  lead=$(either 2 3.5)
  start=$(date +%s.%N | awk -v lead="$lead" '{ printf "%.3f", $1 + lead }')
  for who in "${@:3}"; do
    if [[ $who == serve ]]; then
      run_serve "$suffix" "$scratch/$part.serve.$name" --start-at "$start" &
    else
      run_train "$suffix" "$scratch/$part.train.$name" --seconds "$(either 0.5 6)" --start-at "$start" &
    fi
    pids+=($!)
  done
  for who in "${pids[@]}"; do wait "$who" || status=1; done
  row "$name: both ran and agree with plain C++" $((! status)) - rule "== 1"
  return "$status"
}
pair_rows() {  # name title name_of_serve_alone
  local p99 alone steps steps_alone
  [[ -s $scratch/pair.serve.$1 && -s $scratch/pair.train.$1 ]] || return 0
  p99=$(field "$scratch/pair.serve.$1" p99_ms) alone=$(field "$scratch/pair.serve.$3" p99_ms)
  steps=$(steps_per_s "$scratch/pair.train.$1") steps_alone=$(steps_per_s "$scratch/pair.train.alone")
  row "$2: p99 of serve" "$p99" ms fact - "p50 $(field "$scratch/pair.serve.$1" p50_ms) ms, alone p99 $alone ms"
  row "$2: p99 / alone" "$(calculate "$p99 / $alone")" - fact -
  row "$2: train, of alone" "$(calculate "$steps / $steps_alone")" - fact - \
    "$steps steps/s, used $(calculate "$steps / $steps_alone / (1 - $(field "$scratch/pair.serve.$3" busy))") of what serve left"
}

part_pair() {
  load_sizes
  start_server priority
  phase alone "" serve
  phase alone "" train
  phase priority "" serve train
  stop_server
  start_server fifo
  phase fifo "" serve train
  stop_server
  phase native_alone _native serve
  phase time_slicing _native serve train
  mps=$(start_mps) && mps=started
  if [[ $mps == started ]]; then
    phase mps _native serve train
    # Below normal, as MPS calls it.
    train_environment=(CUDA_MPS_CLIENT_PRIORITY=1)
    phase mps_priority _native serve train
    train_environment=()
    stop_mps
  else
    row "MPS" skipped - fact - "$mps"
    mps=""
  fi
  pair_rows priority "both, policy priority" alone
  pair_rows fifo "both, policy fifo" alone
  pair_rows time_slicing "both, native time slicing" native_alone
  pair_rows mps "both, MPS" native_alone
  pair_rows mps_priority "both, MPS, train below normal" native_alone
  row "p99 of serve: policy priority / native time slicing" "$(calculate \
    "$(field "$scratch/pair.serve.priority" p99_ms) / $(field "$scratch/pair.serve.time_slicing" p99_ms)")" - figure "<= 1"
}

part_churn() {
  load_sizes
  start_server priority
  run_serve "" "$scratch/churn.alone" || fail "serve failed"
  "$bin/gpu_churn" "$(either 2 8)" "$(either 2 512)" >"$scratch/churn.rounds" &
  local churn=$!
  run_serve "" "$scratch/churn.beside" || fail "serve failed beside churn"
  wait "$churn" || fail "gpu_churn failed"
  local alone beside
  alone=$(field "$scratch/churn.alone" p99_ms) beside=$(field "$scratch/churn.beside" p99_ms)
  row "rounds of connect, load, map, leave" "$(sed 's/ .*//' "$scratch/churn.rounds")" - rule ">= 1" "$(cat "$scratch/churn.rounds")"
  row "p99 of serve beside it / alone" "$(calculate "$beside / $alone")" - figure "<= 1.2" "$beside ms, alone $alone ms"
}

part_facts() {
  "$bin/gpu_facts" --rows "$rows" --ms "$(either 10 300)" || fail "gpu_facts failed"
}

part_limits() {
  local limit grant
  limit=$(either 100% 50%)
  (start_server priority --sm-limit "low=$limit"; stop_server) 2>/dev/null
  if grep -q 'option sm-limit refused' "$logs/limits.gpushared.log"; then
    row "--sm-limit" refused - fact - "$(grep -o 'option sm-limit refused.*' "$logs/limits.gpushared.log" | head -n 1)"
    return 0
  fi
  start_server priority --sm-limit "low=$limit"
  grant=$("$bin/gpusharedctl" devices | sed -n 's/^cuda:0: class low has //p')
  row "multiprocessors of class low under --sm-limit low=$limit" "${grant%% *}" - fact - "$grant"
  "$bin/gpu_churn" "$(either 0.2 2)" 2 >"$scratch/limits.rounds"
  row "a low client computes within it" $((! $?)) - rule "== 1" "$(cat "$scratch/limits.rounds")"
  "$bin/vector_add_cpp"
  row "a normal client computes beside the limit" $((! $?)) - rule "== 1"
}

part_sanitizer() {
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || {
    row "compute-sanitizer" skipped - fact - "it is not installed"
    return 0
  }
  "$sanitizer" --error-exitcode 99 "$bin/train_native" --text "$(find_text)" --hidden 64 --batch 16 --steps 4 \
    >"$logs/sanitizer.txt" 2>&1
  local status=$?
  if grep -q 'Device not supported' "$logs/sanitizer.txt"; then
    row "compute-sanitizer" skipped - fact - "it says that this device is not supported, as under gVisor"
    return 0
  fi
  row "compute-sanitizer over train_native: exit status" "$status" - rule "== 0" "$(tail -n 1 "$logs/sanitizer.txt")"
}

if [[ -n ${GPUSHARED_GPU_PART:-} ]]; then
  part=$GPUSHARED_GPU_PART
  trap 'stop_mps; stop_server' EXIT
  trap 'exit 124' TERM INT
  "part_$part"
  # What a part found stands in its rows; it failed only when it could not find out.
  exit $?
fi
main "$@"
