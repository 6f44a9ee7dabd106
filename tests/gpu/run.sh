#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves gpushared on one GPU of this machine, in less than 9 minutes: correctness, what it costs
# beside the driver's own calls, and what priorities are worth. Needs a driver, bash and awk.
# Changes no setting of the card.
#
# Usage: tests/gpu/run.sh [--out DIR] [--bin DIR] [--device NAME] [--smoke] [--short] [--modelled] [--only PART]...
#   --out DIR      results.json, table.txt and logs ($OUT, else gpu-results)
#   --bin DIR      the programs (bin beside tests, else the portable or release build)
#   --device NAME  a GPU or MIG instance as gpushared calls it (the first that it would use)
#   --smoke        environment and facts only, in 90 s: does everything that the full run needs work here?
#   --short        small sizes and times, figures are not judged: for machines whose GPU is a fake
#   --modelled     the GPU is the fake with the costs of a real one: figures are marked so
#   --only PART    only these: environment facts model pair bench conformance solo hostile claims
#                  churn limits sanitizer
#
# Each part runs under a time limit of its own and adds rows to rows.tsv, with tabs between
#   part, what, value, unit, kind (rule, figure, fact), must (">= 0.95", "-"), note.
# Exit status 0: every rule and figure that has a bound holds.
set -uo pipefail
readonly total_s=535 smoke_s=90
# Most telling first. What a part takes where all is well, and its limit; in s. None gets the time
# that those behind it take where all is well.
readonly parts=(environment:25:50 facts:35:60 model:15:40 pair:150:190 bench:100:140 conformance:50:130
  solo:50:75 hostile:10:25 claims:40:80 churn:18:40 limits:12:25 sanitizer:30:60)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() { sed -n '3,20s/^# \{0,1\}//p' "$here/run.sh" >&2; exit 2; }

main() {
  out=${OUT:-gpu-results} bin="" short=0 modelled=0 smoke=0 device=auto
  local only=() total=$total_s
  while [[ $# -gt 0 ]]; do
    case $1 in
      --out) out=${2:?--out needs a folder}; shift 2 ;;
      --bin) bin=${2:?--bin needs a folder}; shift 2 ;;
      --device) device=${2:?--device needs a name}; shift 2 ;;
      --smoke) smoke=1 total=$smoke_s only=(environment facts); shift ;;
      --short) short=1; shift ;;
      --modelled) modelled=1; shift ;;
      --only) only+=("${2:?--only needs a part}"); shift 2 ;;
      *) usage ;;
    esac
  done
  local tool
  for tool in awk grep paste sed stat timeout; do
    command -v "$tool" >/dev/null || { echo "run.sh: this machine has no $tool, which the measurements need" >&2; exit 2; }
  done
  has_driver || { echo "run.sh: there is no GPU to measure: libcuda.so.1, NVIDIA's driver, is not on this machine" >&2; exit 1; }
  local folder
  for folder in "$root/bin" "$root/build/portable/bin" "$root/build/release/bin"; do
    [[ -z $bin && -x $folder/gpushared ]] && bin=$folder
  done
  bin=${bin:-$root/bin}
  [[ -e $bin/gpushared ]] || { echo "run.sh: no gpushared in '$bin'; name the folder with --bin" >&2; exit 2; }
  [[ -x $bin/gpushared ]] || { echo "run.sh: $bin/gpushared may not be executed; was it copied without its permissions?" >&2; exit 2; }
  bin=$(cd "$bin" && pwd)
  local says
  says=$("$bin/gpushared" --version 2>&1) ||
    { echo "run.sh: $bin/gpushared does not run on this machine: ${says:-it says nothing}" >&2; exit 2; }
  mkdir -p "$out/logs" || exit 2
  out=$(cd "$out" && pwd)
  rows=$out/rows.tsv logs=$out/logs
  : >"$rows"
  rm -f "$out/bench.json"
  scratch=$(mktemp -d) || exit 2
  # Only then: what stands in the variable goes ahead of what the loader knows.
  local libraries
  if ! loader_has_driver; then
    for libraries in "${driver_folders[@]}"; do
      [[ -e $libraries/libcuda.so.1 ]] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries
    done
  fi
  trap clean_up EXIT
  # Nobody else's home is written to, and each program finds what another had the driver compile.
  export CUDA_CACHE_PATH=$scratch/jit
  mkdir "$CUDA_CACHE_PATH" || exit 2
  ptxas=$(find_ptxas)
  export out bin short smoke modelled rows logs scratch device ptxas

  local each chosen=() behind
  for each in "${only[@]}"; do
    [[ " ${parts[*]} " == *" $each:"* ]] || { echo "run.sh: no part '$each', there are ${parts[*]%%:*}" >&2; exit 2; }
  done
  for each in "${parts[@]}"; do
    [[ ${#only[@]} -eq 0 || " ${only[*]} " == *" ${each%%:*} "* ]] && chosen+=("$each")
  done
  hold_gpus
  while [[ ${#chosen[@]} -gt 0 ]]; do
    each=${chosen[0]}
    chosen=("${chosen[@]:1}")
    behind=$(sum_least "${chosen[@]}")
    run_part "${each%%:*}" "$(part_limit "$each" "$((total - SECONDS))" "$behind")"
    # Who ends this script early finds what there was.
    report >/dev/null
    # The others could only say the same.
    [[ -e $scratch/no_gpu ]] && { echo "run.sh: no GPU is served, the parts behind are left out: $(<"$scratch/no_gpu")" >&2; break; }
  done

  report
  exit $?
}
report() {
  local bench=""
  [[ -s $out/bench.json ]] && bench=$out/bench.json
  awk -f "$here/report.awk" -v json="$out/results.json" -v short="$short" -v seconds="$SECONDS" -v bench="$bench" \
    -v modelled="$modelled" \
    "$rows" | tee "$out/table.txt"
  return "${PIPESTATUS[0]}"
}

holders=()
# Where containers have the driver, which the loader does not know.
readonly driver_folders=(/usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib)
has_driver() {
  local folder
  loader_has_driver && return
  for folder in "${driver_folders[@]}"; do
    [[ -e $folder/libcuda.so.1 ]] && return
  done
  return 1
}
loader_has_driver() {
  local folder folders=() known
  IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
  for folder in "${folders[@]}" /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib; do
    [[ -e $folder/libcuda.so.1 ]] && return
  done
  known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null)
  [[ $known == *libcuda.so.1* ]]
}

# Without persistence mode a GPU that no process has open goes down, and takes seconds to come back.
hold_gpus() {
  local node
  for node in /dev/nvidia[0-9]*; do
    [[ -c $node && -r $node ]] || continue
    # shellcheck disable=SC2217
    sleep "$total_s" 2>/dev/null <"$node" &
    holders+=($!)
  done
}
clean_up() {
  local holder
  for holder in "${holders[@]}"; do kill "$holder" 2>/dev/null; done
  stop_mps
  rm -rf "$scratch"
}

# The compiler of the toolkit, without which the server cannot make kernels that can be stopped. Machines without a
# toolkit may have it with PyTorch.
find_ptxas() {
  local python
  [[ -x $bin/ptxas ]] && { echo "$bin/ptxas"; return; }  # Who carries the folder may add one.
  python=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)
  find_tool ptxas "${python:-/usr/lib/python3/dist-packages}" /usr/lib/python3/dist-packages \
    /usr/local/lib/python3*/dist-packages /usr/local/lib/python3*/site-packages /opt/conda/lib/python3*/site-packages
}
# A tool of the CUDA toolkit, in all of its usual places and in those that Python packages have below the folders.
find_tool() {  # name folders_of_python_packages...
  command -v "$1" && return
  local file folder files=(/usr/local/cuda/bin/"$1" /usr/local/cuda-*/bin/"$1" /opt/cuda/bin/"$1"
    /usr/local/cuda*/compute-sanitizer/"$1" /opt/cuda/extras/compute-sanitizer/"$1" /opt/nvidia/*/bin/"$1")
  for folder in "${@:2}"; do
    files+=("$folder"/nvidia/cuda_nvcc/bin/"$1" "$folder"/nvidia/cu*/bin/"$1" "$folder"/triton/backends/nvidia/bin/"$1")
  done
  for file in "${files[@]}"; do
    [[ -f $file && -x $file ]] && { echo "$file"; return; }
  done
  return 1
}

sum_least() {  # parts ...
  local each sum=0
  for each in "$@"; do
    each=${each#*:}
    sum=$((sum + ${each%:*}))
  done
  echo "$sum"
}
part_limit() {  # part seconds_left seconds_of_those_behind
  local least limit=${1##*:} spare=$(($2 - $3))
  least=$(sum_least "$1")
  # A fake GPU is a processor that others may be busy with.
  [[ $short -eq 1 ]] && limit=$((3 * limit))
  [[ $spare -lt $least ]] && spare=$least
  [[ $limit -gt $spare ]] && limit=$spare
  [[ $limit -gt $2 ]] && limit=$2
  echo "$limit"
}

# A part is this script again, so that a limit can be set on it and on all that it starts.
run_part() {  # name seconds
  local limit=$2 begin=$SECONDS status
  if [[ $limit -lt 3 ]]; then
    part=$1 row "the part ran to its end" 0 - rule "== 1" "no time was left"
    return
  fi
  echo "== $1 (at most $limit s)" >&2
  GPUSHARED_GPU_PART=$1 GPUSHARED_GPU_LIMIT=$limit timeout --kill-after=5 "$limit" bash "$here/run.sh" >"$logs/$1.log" 2>&1
  status=$?
  case $status in
    0) part=$1 row "the part ran to its end" 1 - rule "== 1" "$((SECONDS - begin)) s" ;;
    124 | 137) part=$1 row "the part ran to its end" 0 - rule "== 1" "still running after $limit s" ;;
    *) part=$1 row "the part ran to its end" 0 - rule "== 1" "$(tail -n 1 "$logs/$1.log" | cut -c 1-200)" ;;
  esac
  [[ $status -eq 0 ]] || say_what_failed "$1" >&2
  stop_mps  # Of a part that had to be killed.
}

say_what_failed() {  # part
  echo "   failed, last lines of logs/$1.log:"
  tail -n 4 "$logs/$1.log" | sed 's/^/   /'
  [[ -s $logs/$1.gpushared.log ]] || return 0
  echo "   last complaints of the server, from logs/$1.gpushared.log:"
  grep -E ' (critical|error|warning) ' "$logs/$1.gpushared.log" | tail -n 4 | sed 's/^/   /'
}

# ---- what parts are made of

# What could not be found out has a reason in its place, and holds no bound.
row() {  # what value unit kind must [note]
  local value=$2 note=${6:-}
  [[ -n $value ]] || { value=none note="could not be found out, see logs/$part.log${note:+; $note}"; }
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$part" "$1" "$value" "$3" "$4" "$5" "${note//[$'\t\n']/ }" >>"$rows"
}
fail() { echo "$part: $*" >&2; exit 1; }
# On one line, as awk wants it. Nothing where there is no such number: of a division by zero some awks say "inf".
calculate() { awk "BEGIN { value = sprintf(\"%.6g\", $1); if (value ~ /^-?[0-9]/) print value }"; }
field() { sed -n "s/.*\"$2\": \([-+0-9.e]*\).*/\1/p" "$1" | head -n 1; }  # file key
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
either() { if [[ $short -eq 1 ]]; then echo "$1"; else echo "$2"; fi; }  # short full

# The GPU or MIG instance that is measured, by the name that the driver knows too: the first that
# the server takes. Programs without a server then see no other.
choose_device() {
  if [[ ! -e $scratch/device ]]; then
    # Twice, and then no part waits for it any more.
    echo >>"$scratch/choices"
    [[ $(wc -l <"$scratch/choices") -le 2 ]] || return 0
    try_server fifo || return 0
    "$bin/gpusharedctl" --json devices | awk -F'"' '
      $2 == "device" { kind = ""; state = "" }
      $2 == "kind" { kind = $4 }
      $2 == "state" { state = $4 }
      $2 == "uuid" && kind == "cuda" && state == "ready" { print $4; exit }' >"$scratch/device"
    [[ -s $scratch/device ]] || grep -m 1 'cpu:0' "$logs/$part.gpushared.log" >"$scratch/no_gpu"
    stop_server
  fi
  [[ -s $scratch/device ]] || return 0
  device=$(<"$scratch/device")
  export CUDA_VISIBLE_DEVICES=$device
}

server=""
try_server() {  # policy [options]
  [[ -e $scratch/no_gpu ]] && { why="no GPU is served: $(<"$scratch/no_gpu")"; return 1; }
  export GPUSHARED_SOCKET=$scratch/gpushared.sock
  local try compiler=()
  [[ -n $ptxas ]] && compiler=(--ptx-compiler "$ptxas")
  "$bin/gpushared" --policy "$1" --device "$device" --socket "$GPUSHARED_SOCKET" --code-cache "$scratch/code" \
    "${compiler[@]}" "${@:2}" 2>>"$logs/$part.gpushared.log" &
  server=$!
  for try in $(seq 200); do
    [[ $("$bin/gpusharedctl" devices 2>/dev/null) == *' ready '* ]] && return
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  # The first of its last complaints: the others follow from it.
  why=$(grep -E ' (critical|error) ' "$logs/$part.gpushared.log" | tail -n 3 | head -n 1)
  why="the server did not start ($try): ${why:-$(tail -n 1 "$logs/$part.gpushared.log")}"
  stop_server
  return 1
}
start_server() {  # policy [options]
  try_server "$@" || fail "$why"
}
# By force where it hangs: with a GPU that no longer answers, say.
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
    echo "the server did not end within $try tenths of a second" >&2
    # shellcheck disable=SC2086
    kill -KILL $workers 2>/dev/null
  fi
  wait "$server"
  server=""
}

device_field() { "$bin/gpusharedctl" --json devices | sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" | head -n 1; }
worker_pid() { device_field worker_pid; }
# Whether this server stops kernels half way, which takes a compiler.
claims_row() {  # server
  local stops kind=figure must="== 1"
  stops=$(device_field preemption)
  [[ -n $ptxas ]] || kind=fact must=-
  row "$1: kernels can be stopped half way" "$([[ $stops == within* ]] && echo 1 || echo 0)" - "$kind" "$must" \
    "ptxas: ${ptxas:-none is installed}; it stops $stops"
}

# A daemon of our own in a folder of its own: nobody else's is met, joined or ended.
mps_environment=("CUDA_MPS_PIPE_DIRECTORY=${scratch:-}/mps" "CUDA_MPS_LOG_DIRECTORY=${logs:-}/mps")
# The daemon starts its server from PATH.
find_mps() {
  command -v nvidia-cuda-mps-control >/dev/null && return
  local folder
  for folder in /usr/bin /usr/local/bin /usr/local/nvidia/bin /usr/local/cuda/bin /usr/local/cuda-*/bin /opt/cuda/bin \
    /usr/lib/nvidia/bin /usr/lib/nvidia-*/bin /usr/lib/wsl/lib /run/nvidia/driver/usr/bin; do
    [[ -x $folder/nvidia-cuda-mps-control ]] && { PATH=$PATH:$folder; return; }
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
  # Its server goes by force where a client of ours hangs.
  echo "quit -t 5" | timeout 10 env "CUDA_MPS_PIPE_DIRECTORY=$scratch/mps" nvidia-cuda-mps-control ||
    { [[ -n $pid ]] && kill "$pid"; }
  rm -rf "$scratch/mps"
}

find_text() {
  local file
  for file in "$root/LICENSE" "$bin/../LICENSE"; do [[ -r $file ]] && { echo "$file"; return; }; done
  fail "no text to learn: $root/LICENSE is not there"
}

# The samples' sizes: what model left, so that later parts agree; else some that any GPU copes with.
load_sizes() {
  if [[ ! -s $scratch/sizes ]]; then
    local text hidden train_batch serve_batch service_ms requests rate
    text=$(find_text) || exit 1
    hidden=$(either 32 4096) train_batch=$(either 16 512) serve_batch=$(either 4 256)
    rate=$(calculate "0.5 * 256 / $(either 256 "$hidden")") service_ms=$(either 1 3) requests=$(either 12 900)
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

client_environment=()  # NAME=VALUE for both samples,
train_environment=()   # and for train alone.
# One that hangs costs no more than that.
sample_limit() { echo "--foreground --kill-after=2 $(either 120 25)"; }
run_train() {  # suffix ("" or _native) json options
  # shellcheck disable=SC2046
  env "${client_environment[@]}" "${train_environment[@]}" timeout $(sample_limit) "$bin/train$1" \
    --text "$text" --hidden "$hidden" --batch "$train_batch" --rate "$rate" --steps 0 --json "$2" "${@:3}"
}
run_serve() {  # suffix json options
  # shellcheck disable=SC2046
  env "${client_environment[@]}" timeout $(sample_limit) "$bin/serve$1" --model "$scratch/model" \
    --batch "$serve_batch" --seed "${serve_seed:-1}" --service-ms "$service_ms" --promise-ms 25 --requests "$requests" --json "$2" "${@:3}"
}

# ---- parts

part_environment() {
  row "kernel" "$(uname -r)" - fact -
  row "processor" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc) cores" fact -
  row "date" "$(date -u +%FT%TZ)" - fact -
  row "gpushared" "$("$bin/gpushared" --version | head -n 1)" - fact -
  [[ -r /proc/driver/nvidia/version ]] && row "driver" "$(head -n 1 /proc/driver/nvidia/version)" - fact -
  [[ -n $ptxas ]] && row "ptxas" "$("$ptxas" --version | tail -n 1)" - fact - "$ptxas"
  row "device" "${CUDA_VISIBLE_DEVICES:-none}" - fact -
  start_server priority
  "$bin/gpusharedctl" devices
  row "the server serves a GPU" "$([[ $(device_field kind) == cuda ]] && echo 1 || echo 0)" - rule "== 1"
  claims_row "policy priority"
  timeout --foreground 15 "$bin/vector_add_cpp" && timeout --foreground 15 "$bin/vector_add_c"
  row "vector add in C++ and C" $((! $?)) - rule "== 1"
  stop_server
  nvidia_smi_rows
}
# Last: what it says is good to know, and it may take long.
nvidia_smi_rows() {
  command -v nvidia-smi >/dev/null || return 0
  local names=(name driver_version memory.total compute_mode mig.mode.current persistence_mode ecc.mode.current
    clocks.max.sm clocks.max.memory power.limit pcie.link.gen.max pcie.link.width.max)
  local list=${names[*]} all values i
  all=$(timeout --foreground 15 nvidia-smi --query-gpu="uuid,${list// /,}" --format=csv,noheader)
  # An instance is none of them: then the first.
  IFS=, read -r -a values < <(grep -F "${CUDA_VISIBLE_DEVICES:-GPU-}" <<<"$all" || echo "$all")
  for i in "${!names[@]}"; do row "${names[i]}" "${values[i + 1]# }" - fact -; done
  timeout --foreground 10 nvidia-smi -q >"$logs/nvidia-smi.txt" 2>&1
  return 0
}

# A block of the modelled GPU runs to its end before anything else happens, so none may wait for the host.
without_costs() {
  local given=${FAKE_CUDA:-}
  [[ $modelled -eq 0 ]] || export FAKE_CUDA=${given//costs on/}
}

part_conformance() {
  local filter
  without_costs
  filter=$(either '*SubmissionOrder*:*Copy*:*Variables*_events' '*')
  at_end=conformance_rows
  : >"$logs/conformance.gtest.log"
  run_rules "$filter"
}
# One that hangs or crashes costs itself: those behind it run in another process.
run_rules() {  # filter
  local log=$logs/conformance.gtest.log lost=() begun test status
  test=$(conformance_test)
  for ((;;)); do
    begun=$(begun_rules "$log" | paste -sd:)
    "$test" --gtest_color=no --gtest_filter="$1${begun:+-$begun}" >>"$log" 2>&1 &
    await_rules $!
    status=$?
    [[ $status -gt 1 && $(begun_rules "$log" | wc -l) -gt $(ended_rules "$log") ]] || break
    lost+=("$(begun_rules "$log" | tail -n 1)")
    [[ ${#lost[@]} -lt 3 ]] || break
  done
  row "rules that hung or crashed" "${#lost[@]}" - rule "== 0" "${lost[*]}"
  row "exit status" "$status" - rule "== 0"
}
begun_rules() { sed -n 's/^\[ RUN      \] //p' "$1"; }
ended_rules() { grep -c -E '^\[ (      OK| SKIPPED| FAILED ) \].* \([0-9]* ms\)$' "$1"; }
# What has said nothing for longer than any rule takes is ended.
await_rules() {  # pid
  local size=-1 now since=$SECONDS
  while kill -0 "$1" 2>/dev/null; do
    now=$(stat -c %s "$logs/conformance.gtest.log")
    [[ $now -ne $size ]] && size=$now since=$SECONDS
    [[ $((SECONDS - since)) -le $(either 15 10) ]] || kill -KILL "$1"
    sleep 0.1
  done
  wait "$1"
}
conformance_test() {
  local file
  for file in "$bin/cuda_conformance_test" "$bin/../tests/cuda_conformance_test"; do
    [[ -x $file ]] && { echo "$file"; return; }
  done
  echo "cuda_conformance_test is not there" >&2
  echo false
}
# From its log, so that a run that was cut short counts too.
conformance_rows() {
  local log=$logs/conformance.gtest.log all passed failed skipped
  count() { grep -c "$1" "$log"; }
  all=$(sed -n 's/^\[==========\] Running \([0-9]*\) test.*/\1/p' "$log" | head -n 1)
  passed=$(count '^\[       OK \]') failed=$(count '^\[  FAILED  \].* ([0-9]* ms)$') skipped=$(count '^\[  SKIPPED \].* ([0-9]* ms)$')
  row "rules passed" "$passed" - rule ">= 1"
  row "rules failed" "$failed" - rule "== 0" "$(sed -n 's/^\[  FAILED  \] \(.*\/.*\), where.*/\1/p' "$log" | sort -u | head -n 3 | tr '\n' ' ')"
  row "rules beyond the device, skipped" "$skipped" - fact - "$(grep -c '^skipped: ' "$log") of them for want of a driver"
  row "rules that no answer came from" "$((${all:-1} - passed - failed - skipped))" - rule "== 0" \
    "of ${all:-0}; begun last: $(sed -n 's/^\[ RUN      \] //p' "$log" | tail -n 1)"
}

part_hostile() {
  without_costs
  start_server priority --memory contain --kernel-limit low=200ms
  local before
  before=$(worker_pid)
  "$bin/gpu_hostile" --rows "$rows" || fail "$(tail -n 1 "$logs/hostile.log")"
  row "the worker went on" "$([[ $before -gt 0 && $(worker_pid) == "$before" ]] && echo 1 || echo 0)" - rule "== 1"
}

part_claims() {
  local options=(--rows "$rows" --ms "$(either 10 400)" --programs "$(either 6 1000)" --blocks "$(either 8192 1048576)"
    --seconds "$((GPUSHARED_GPU_LIMIT > 20 ? GPUSHARED_GPU_LIMIT - 10 : 10))")
  # With costs the fake driver runs a group of blocks at once, so no stop finds one half done.
  (without_costs; "$bin/gpu_claims" --part stops "${options[@]}") && "$bin/gpu_claims" --part costs "${options[@]}" ||
    fail "$(tail -n 1 "$logs/claims.log")"
}

part_bench() {
  if completions writes; then
    row "completions by writes: measured" 1 - rule "== 1"
  else
    row "completions by writes: measured" 0 - rule "== 1" "$why"
  fi
  stop_server
  completions events || fail "$why"
  [[ -s $scratch/completions.writes ]] && row "completions by writes / by events, round trip p50" \
    "$(calculate "$(p50_of "$scratch/completions.writes") / $(p50_of "$scratch/completions.events")")" - fact -
  local worker
  worker=$(worker_pid)
  [[ ${worker:-0} -gt 0 ]] || fail "the server has no worker"
  "$bin/gpu_bench" --rows "$rows" --json "$out/bench.json" --worker "$worker" \
    --ms "$(either 5 80)" --limit "$(either 60 20)" --bytes-max "$(either 1048576 1073741824)" ||
    fail "$(tail -n 1 "$logs/bench.log")"
  stop_server
  start_server priority --memory contain
  "$bin/gpu_bench" --only-low "a contained low client beside an idle high session" --rows "$rows" \
    --ms "$(either 5 80)" --limit "$(either 60 20)" || fail "$(tail -n 1 "$logs/bench.log")"
}
# What a server whose ends of work become known one way or the other does with null launches.
completions() {  # writes or events
  try_server priority --cuda-completion "$1" || return 1
  "$bin/gpu_bench" --only-shared "completions by $1" --rows "$scratch/completions.$1" \
    --ms "$(either 5 300)" --limit 10 ||
    { why=$(tail -n 1 "$logs/bench.log"); rm -f "$scratch/completions.$1"; return 1; }
  cat "$scratch/completions.$1" >>"$rows"
}
p50_of() { awk -F'\t' '$2 ~ /round trip, p50/ { print $3 }' "$1"; }

part_model() {
  local text hidden rate train_batch serve_batch service_ms requests
  text=$(find_text) || exit 1
  hidden=$(either 32 16384) train_batch=$(either 16 1024) serve_batch=$(either 4 256)
  rate=$(calculate "0.5 * 256 / $(either 256 "$hidden")")
  make_model _native "$(either 4 30)" || fail "train_native made no model"
  row "train_native agrees with plain C++" "$(grep -c '"results_checked": true' "$scratch/model.json")" - rule "== 1"
  service_ms=$(service_time)
  [[ -n $service_ms ]] || fail "serve_native failed"
  # A request takes about 3 ms, whatever this GPU is.
  serve_batch=$(awk -v batch="$serve_batch" -v wanted="$(either 0.5 3)" -v is="$service_ms" -v step="$(either 4 32)" \
    'BEGIN { b = int(batch * wanted / is / step) * step; print (b < step ? step : (b > 16384 ? 16384 : b)) }')
  service_ms=$(service_time)
  [[ -n $service_ms ]] || fail "serve_native failed"
  row "hidden layer" "$hidden" floats fact - "train: $train_batch contexts per step, serve: $serve_batch per request"
  row "serve: time of a request, native" "$service_ms" ms fact -
  # At a load of 0.45, which is what serve does by itself.
  requests=$(either 12 "$(calculate "int(5 / ($service_ms / 0.45 / 1000))")")
  save_sizes
}

service_time() {  # of a request of $serve_batch, in ms
  "$bin/serve_native" --model "$scratch/model" --batch "$serve_batch" --requests 1 --json "$scratch/service.json" >&2 &&
    field "$scratch/service.json" service_ms
}

part_solo() {
  load_sizes
  requests=$(either 12 "$(calculate "int($requests / 2)")")
  start_server priority
  at_end=solo_rows
  local round side
  for round in $(seq "$(either 1 3)"); do
    for side in _native ""; do
      run_train "$side" "$scratch/solo.train$side.$round" --seconds "$(either 0.3 2.5)" || fail "train$side failed"
      serve_seed=$round run_serve "$side" "$scratch/solo.serve$side.$round" || fail "serve$side failed"
    done
  done
}
# Of the rounds that were made, however the part ended.
solo_rows() {
  solo_ratio "train alone: steps/s" train steps_per_s ">= 0.99"
  solo_ratio "serve alone: p50" serve p50_ms "<= 1.01"
  solo_ratio "serve alone: p99" serve p99_ms -
}
# The median over the rounds of shared / native; both sides of a round ran one after the other.
solo_ratio() {  # what sample function must
  local round ratios="" native shared
  for round in $(seq "$(either 1 3)"); do
    [[ -s $scratch/solo.$2_native.$round && -s $scratch/solo.$2.$round ]] || break
    native=$("$3" "$scratch/solo.$2_native.$round") shared=$("$3" "$scratch/solo.$2.$round")
    ratios+="$(calculate "$shared / $native") "
  done
  row "$1, shared / native" "$(tr ' ' '\n' <<<"$ratios" | grep . | median)" - figure "$4" \
    "ratios $ratios; last round native ${native:-}, shared ${shared:-}"
}
steps_per_s() { calculate "$(field "$1" steps) / $(field "$1" seconds)"; }
p50_ms() { field "$1" p50_ms; }
p99_ms() { field "$1" p99_ms; }

# Both samples at once, or one of them; all begin at the same moment, or do it all again. `lead` is
# what they get to be ready, in s.
phase() {  # name suffix who...
  run_phase "$@"
  local status=$? late
  late=$(latest "$@")
  if [[ $status -eq 0 && $short -eq 0 ]] && calculate_true "$late > 0.05"; then
    lead=$(calculate "$lead + $late + 1")
    run_phase "$@"
    status=$? late=$(latest "$@")
  fi
  row "$1: both ran and agree with plain C++" $((! status)) - rule "== 1"
  [[ $status -eq 0 ]] || return 1
  row "$1: began late by" "$late" s figure "<= 0.05" "$lead s to be ready"
  [[ -z $2 ]] || native_row "$@"
}
run_phase() {  # name suffix who...
  local name=$1 suffix=$2 who pids=() start status=0
  for who in "${@:3}"; do rm -f "$scratch/$part.$who.$name"; done
  start=$(date +%s.%N | awk -v lead="$lead" '{ printf "%.3f", $1 + lead }')
  for who in "${@:3}"; do
    if [[ $who == serve ]]; then
      run_serve "$suffix" "$scratch/$part.serve.$name" --start-at "$start" &
    else
      run_train "$suffix" "$scratch/$part.train.$name" --seconds "$train_s" --start-at "$start" &
    fi
    pids+=($!)
  done
  if [[ -z $suffix && $# -eq 4 ]]; then
    # While they are there: what the server has counted of them.
    sleep "$(calculate "$lead + $train_s / 2")"
    "$bin/gpusharedctl" --json ps >"$scratch/$part.ps.$name"
  fi
  for who in "${pids[@]}"; do wait "$who" || status=1; done
  return "$status"
}
latest() {  # name suffix who...
  local who
  for who in "${@:3}"; do field "$scratch/$part.$who.$1" late_s; done | sort -g | tail -n 1
}
calculate_true() { awk "BEGIN { exit !($1) }"; }
# Whose clients native samples were. Without a daemon of ours, somebody else's may have taken them.
native_row() {  # name suffix who...
  local who under=0 wanted=0
  for who in "${@:3}"; do grep -q '"device": "[^"]*under MPS"' "$scratch/$part.$who.$1" && under=$((under + 1)); done
  [[ ${#client_environment[@]} -gt 0 ]] && wanted=$(($# - 2))
  row "$1: programs under MPS" "$under" - rule "== $wanted"
  [[ $under -eq $wanted ]]
}
pair_rows() {  # name title name_of_serve_alone
  local p99 alone steps steps_alone used file
  for file in "serve.$1" "train.$1" "serve.$3" train.train_alone; do [[ -s $scratch/pair.$file ]] || return 0; done
  p99=$(field "$scratch/pair.serve.$1" p99_ms) alone=$(field "$scratch/pair.serve.$3" p99_ms)
  steps=$(steps_per_s "$scratch/pair.train.$1") steps_alone=$(steps_per_s "$scratch/pair.train.train_alone")
  row "$2: p99 of serve" "$p99" ms fact - "p50 $(field "$scratch/pair.serve.$1" p50_ms) ms, alone p99 $alone ms"
  row "$2: p99 / alone" "$(calculate "$p99 / $alone")" - fact -
  used=$(used_of_left "$1" "$3") && used="used $used of what serve left"
  row "$2: train, of alone" "$(calculate "$steps / $steps_alone")" - fact - "$steps steps/s, $used"
}
# What train did with the time that serve left, or why nobody can say. On a machine that is too slow for the requests
# one is in work from the first to the last.
used_of_left() {  # name name_of_serve_alone
  local busy
  busy=$(field "$scratch/pair.serve.$2" busy)
  calculate_true "${busy:-1} < 0.95" || { echo "alone, serve was busy for ${busy:-?} of its time, which leaves too little"; return 1; }
  calculate "$(steps_per_s "$scratch/pair.train.$1") / $(steps_per_s "$scratch/pair.train.train_alone") / (1 - $busy)"
}
# What requests took more than the same ones alone, which came at the same moments: of p99 alone. And what train did
# with the time that serve left.
more_rows() {  # name title name_of_serve_alone
  local more used why=""
  more=$(more_p99 "$scratch/pair.serve.$1" "$scratch/pair.serve.$3") || return 0
  row "$2: p99 of what requests take more than alone, 1 + that / p99 alone" \
    "$(calculate "1 + $more / $(field "$scratch/pair.serve.$3" p99_ms)")" - figure "<= 1.10" "$more ms more"
  used=$(used_of_left "$1" "$3") || why=$used used=none
  row "$2: train, of the time that serve left" "$used" - figure ">= 0.85" "$why"
}
latencies() { sed -n 's/.*"latencies_ms": \[\([^]]*\)\].*/\1/p' "$1" | tr -d ' ' | tr ',' '\n'; }
more_p99() {  # shared alone
  local both
  both=$(paste <(latencies "$1") <(latencies "$2")) || return 1
  awk 'NF != 2 { bad = 1 } { print $1 - $2 } END { exit bad || NR == 0 }' <<<"$both" >"$scratch/more" || return 1
  sort -g "$scratch/more" | awk '{ v[NR] = $1 } END { print v[int((NR - 1) * 0.99) + 1] }'
}
# Two seeds of arrivals, under a policy: the samples alone are of another phase.
judged_phases() {  # policy
  local seed
  for seed in 1 2; do
    serve_seed=$seed
    pair_phase "$1$seed" "" "both, policy $1, seed $seed" "serve_alone$seed" &&
      more_rows "$1$seed" "both, policy $1, seed $seed" "serve_alone$seed"
  done
  serve_seed=1
}
# A line of the table per phase, as soon as it is over.
pair_phase() {  # name suffix title name_of_serve_alone
  phase "$1" "$2" serve train && pair_rows "$1" "$3" "$4"
}

part_pair() {
  load_sizes
  local lead train_s
  lead=$(either 2 3) train_s=$(either 0.3 3)
  start_server priority
  claims_row "policy priority"
  local seed
  for seed in 1 2; do
    serve_seed=$seed
    phase "serve_alone$seed" "" serve
  done
  phase train_alone "" train
  train_s=$(either 0.5 5)
  judged_phases priority
  row "both, policy priority: stops of train's kernels, half way through" "$(stops_of train "$scratch/pair.ps.priority1")" - fact -
  stop_server
  start_server deadline
  judged_phases deadline
  stop_server
  phase native_alone _native serve
  pair_phase time_slicing _native "both, native time slicing" native_alone
  beside_machine_code "native time slicing"
  [[ -s $scratch/pair.serve.priority1 && -s $scratch/pair.serve.time_slicing ]] &&
    row "p99 of serve: policy priority / native time slicing" "$(calculate \
      "$(field "$scratch/pair.serve.priority1" p99_ms) / $(field "$scratch/pair.serve.time_slicing" p99_ms)")" - figure "<= 1"
  start_server fifo
  pair_phase fifo "" "both, policy fifo" serve_alone1
  stop_server
  mps_phases
}
# What nobody can cut, in another process, does to a kernel.
beside_machine_code() {  # label
  env "${client_environment[@]}" "$bin/gpu_bench" --only-native "$1" --rows "$rows" --ms "$(either 5 80)" --limit "$(either 60 20)" ||
    row "$1: a kernel beside another process's" failed - rule "== 1" "$(tail -n 1 "$logs/pair.log")"
}
stops_of() {  # client file
  awk -F'"' -v client="$1" '$2 == "name" { name = $4 } $2 == "stops" && name == client { gsub(/[^0-9]/, "", $3); print $3; exit }' "$2"
}
mps_phases() {
  start_mps || { row "MPS" skipped - fact - "$why"; return 0; }
  client_environment=("${mps_environment[@]}")
  # A client that does not find its daemon runs without one and does not say so. This one also has
  # the daemon start its server.
  local first
  first=$(env "${client_environment[@]}" timeout --foreground 20 "$bin/gpu_ops_native" <<<device)
  row "MPS: a first program is under it" "$([[ $first == *"under MPS"* ]] && echo 1 || echo 0)" - rule "== 1" "$first"
  if [[ $first == *"under MPS"* ]]; then
    pair_phase mps _native "both, MPS" native_alone
    # Below normal, as MPS calls it.
    train_environment=(CUDA_MPS_CLIENT_PRIORITY=1)
    pair_phase mps_priority _native "both, MPS, train below normal" native_alone
    train_environment=()
    beside_machine_code "MPS"
  fi
  client_environment=()
  stop_mps
}

part_churn() {
  local alone beside
  load_sizes
  start_server priority
  run_serve "" "$scratch/churn.alone" || fail "serve failed"
  alone=$(field "$scratch/churn.alone" p99_ms)
  row "serve alone: p99" "$alone" ms fact -
  "$bin/gpu_churn" "$(either 2 8)" "$(either 2 512)" >"$scratch/churn.rounds" &
  local churn=$!
  run_serve "" "$scratch/churn.beside" || fail "serve failed beside churn"
  wait "$churn" || fail "gpu_churn failed"
  beside=$(field "$scratch/churn.beside" p99_ms)
  row "rounds of connect, load, map, leave" "$(sed 's/ .*//' "$scratch/churn.rounds")" - rule ">= 1" "$(cat "$scratch/churn.rounds")"
  row "p99 of serve beside it / alone" "$(calculate "$beside / $alone")" - figure "<= 1.2" "$beside ms, alone $alone ms"
}

part_facts() {
  # As a worker sets it before it loads the driver (PrepareEnvironment).
  export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-LAZY} CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}
  local ms
  ms=$(either 10 300)
  [[ $smoke -eq 1 ]] && ms=$(either 10 60)
  "$bin/gpu_facts" --rows "$rows" --ms "$ms" --limit "$(either 40 10)" || fail "gpu_facts failed"
}

part_limits() {
  local limit grant
  limit=$(either 100% 50%)
  if ! try_server priority --sm-limit "low=$limit"; then
    grep -q 'option sm-limit refused' "$logs/limits.gpushared.log" || fail "$why"
    row "--sm-limit" refused - fact - "$(grep -o 'option sm-limit refused.*' "$logs/limits.gpushared.log" | head -n 1)"
    return 0
  fi
  grant=$("$bin/gpusharedctl" devices | sed -n 's/^.*: class low has //p')
  row "multiprocessors of class low under --sm-limit low=$limit" "${grant%% *}" - fact - "$grant"
  "$bin/gpu_churn" "$(either 0.2 2)" 2 >"$scratch/limits.rounds"
  row "a low client computes within it" $((! $?)) - rule "== 1" "$(cat "$scratch/limits.rounds")"
  "$bin/vector_add_cpp"
  row "a normal client computes beside the limit" $((! $?)) - rule "== 1"
}

part_sanitizer() {
  local sanitizer
  sanitizer=$(find_tool compute-sanitizer) || {
    row "compute-sanitizer" skipped - fact - "it is not installed"
    return 0
  }
  local text
  text=$(find_text) || exit 1
  sanitize train_native "$bin/train_native" --text "$text" --hidden 64 --batch 16 --steps 4 || return 0
  local rule="a rule about claimed and fenced kernels"
  sanitize "$rule" "$(conformance_test)" --gtest_color=no --gtest_filter='*SubmissionOrder*/cuda_fenced_claimed' || return 0
  # A filter that finds nothing is clean, too.
  row "compute-sanitizer over $rule: it ran" "$(grep -c '^\[       OK \]' "$logs/sanitizer.cuda_conformance_test.txt")" - \
    rule ">= 1"
  return 0
}
sanitize() {  # what program arguments...
  local log=$logs/sanitizer.${2##*/}.txt status
  # What a call returns is looked at by who makes it, and some are made to see whether they work.
  "$sanitizer" --report-api-errors no --error-exitcode 99 "${@:2}" >"$log" 2>&1
  status=$?
  if grep -q 'Device not supported' "$log"; then
    row "compute-sanitizer" skipped - fact - "it says that this device is not supported, as under gVisor"
    return 1
  fi
  # The first thing that it found, and its summary.
  row "compute-sanitizer over $1: exit status" "$status" - rule "== 0" \
    "$(grep -E '^=========+ (Invalid|Program|Error|.*Race|.*hazard)' "$log" | head -n 1) $(tail -n 1 "$log")"
}

if [[ -n ${GPUSHARED_GPU_PART:-} ]]; then
  part=$GPUSHARED_GPU_PART
  at_end=:  # What is said of the part however it ends.
  trap '"$at_end"; stop_mps; stop_server' EXIT
  # Once: timeout signals us and then our group, and what is left to say would be cut off. Not
  # caught from then on but ignored, and so by the programs that say it, too.
  trap 'trap "" TERM INT; exit 124' TERM INT
  choose_device
  "part_$part"
  # What a part found stands in its rows; it failed only when it could not find out.
  exit $?
fi
main "$@"
