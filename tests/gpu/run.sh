#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures gpushared on one GPU of this machine in at most 560 s: correctness, the cost compared with the driver's
# own calls, and the value of priorities compared with the usual alternatives. Needs a driver, bash and the tools
# below. Changes no setting of the card.
#
# Usage: tests/gpu/run.sh [--out DIR] [--bin DIR] [--device NAME] [--python FILE] [--smoke] [--short] [--modelled]
#                         [--only PART]...
#   --out DIR      receives table.txt, rows.tsv, results.json and logs.tgz, and nothing else ($OUT, else gpu-results)
#   --bin DIR      the programs (bin next to tests, else the portable or release build)
#   --device NAME  a GPU or MIG instance as gpushared calls it (the first that it would use)
#   --python FILE  an interpreter with Numba, PyTorch, ... (/opt/torch/.venv/bin/python3, else python3)
#   --smoke        only the part smoke: every mechanism for a few seconds
#   --short        small sizes and times, figures are not judged: for machines with the fake GPU
#   --modelled     the GPU is the fake one with the costs of a real one; figures are marked as modelled
#   --only PART    only these parts, in the order below; gate_pair runs only if it is named
#
# Each part has a time limit and adds rows to rows.tsv, with tabs between
#   part, what, value, unit, kind (rule, figure, fact), must (">= 0.95", "-"), note.
# The other files are written again after each part and every few seconds, so that a killed run leaves results.
# Exit status 0: every rule and figure that has a bound meets it.
set -uo pipefail

readonly total_s=560
# The parts in the order of their value: correctness before speed, because a figure from wrong code
# is meaningless. Each has its usual duration and its limit, in s. No part gets time that later
# parts need.
readonly parts=(smoke:15:50 native:1:12 environment:3:11 facts:38:60 conformance:16:110 stops:3:20 hostile:3:30
  model:8:35 pair:160:180 hog:96:110 drop_in:50:75 gate:30:50 gate_pair:120:150 solo:44:60
  bench:34:70 costs:13:35 churn:14:30 limits:4:20)
# Parts for which a run of all others has no time left: only runs that name them have them.
readonly named_parts=(gate_pair)
# The largest file that comes back from a lent machine is 16 MiB.
readonly log_bytes_max=$((4 << 20))
readonly publish_every_s=10

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() { sed -n '3,21s/^# \{0,1\}//p' "$here/run.sh" >&2; exit 2; }
give_up() { echo "run.sh: $*" >&2; exit 2; }

main() {
  out=${OUT:-gpu-results} bin="" short=0 modelled=0 device=auto python=""
  local only=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --out) out=${2:?--out needs a directory}; shift 2 ;;
      --bin) bin=${2:?--bin needs a directory}; shift 2 ;;
      --device) device=${2:?--device needs a name}; shift 2 ;;
      --python) python=${2:?--python needs a file}; shift 2 ;;
      --smoke) only=(smoke); shift ;;
      --short) short=1; shift ;;
      --modelled) modelled=1; shift ;;
      --only) only+=("${2:?--only needs a part}"); shift 2 ;;
      *) usage ;;
    esac
  done
  local tool each
  for tool in awk cp cut date dirname env grep gzip head mktemp mv nproc paste readlink sed seq sleep sort stat tail tar tee timeout tr wc; do
    command -v "$tool" >/dev/null || give_up "this machine has no $tool, which the measurements need"
  done
  for each in "${only[@]}"; do
    [[ " ${parts[*]} " == *" $each:"* ]] || give_up "no part '$each', there are ${parts[*]%%:*}"
  done
  find_programs
  has_driver || { echo "run.sh: there is no GPU to measure: libcuda.so.1, NVIDIA's driver, is not on this machine" >&2; exit 1; }
  mkdir -p "$out" || exit 2
  out=$(cd "$out" && pwd)
  scratch=$(mktemp -d) || exit 2
  rows=$out/rows.tsv logs=$scratch/logs
  mkdir "$logs" "$scratch/jit" || exit 2
  : >"$rows"
  trap clean_up EXIT
  trap 'exit 143' TERM INT HUP
  publish
  mkfifo "$scratch/ended" && exec {ended}<>"$scratch/ended" || exit 2
  hold_gpus
  # Keeps the driver's compiled kernels out of the home directory, and shares them between programs.
  export CUDA_CACHE_PATH=$scratch/jit
  ptxas=$(find_ptxas)
  [[ -n $python ]] || python=$(find_python)
  export bin short modelled rows logs scratch device ptxas python root here
  run_parts "${only[@]}"
  [[ -e $scratch/no_gpu ]] && echo "run.sh: no GPU is served, the remaining parts are left out: $(<"$scratch/no_gpu")" >&2
  publish
  cat "$scratch/summary.txt"
  exit "$(<"$scratch/verdict")"
}

find_programs() {
  local directory says
  for directory in "$root/bin" "$root/build/portable/bin" "$root/build/release/bin"; do
    [[ -z $bin && -x $directory/gpushared ]] && bin=$directory
  done
  bin=${bin:-$root/bin}
  [[ -e $bin/gpushared ]] || give_up "no gpushared in '$bin'; name the directory with --bin"
  [[ -x $bin/gpushared ]] || give_up "$bin/gpushared may not be executed; was it copied without its permissions?"
  bin=$(cd "$bin" && pwd)
  says=$("$bin/gpushared" --version 2>&1) ||
    give_up "$bin/gpushared does not run on this machine: ${says:-it prints nothing}"
}

# Directories in which containers have the driver, and which the loader does not search.
readonly driver_directories=(/usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib)
has_driver() {
  local directory
  loader_has_driver && return
  for directory in "${driver_directories[@]}"; do
    [[ -e $directory/libcuda.so.1 ]] || continue
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$directory
    return
  done
  return 1
}
loader_has_driver() {
  local directory directories=() known
  IFS=: read -ra directories <<<"${LD_LIBRARY_PATH:-}"
  for directory in "${directories[@]}" /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib; do
    [[ -e $directory/libcuda.so.1 ]] && return
  done
  known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null)
  [[ $known == *libcuda.so.1* ]]
}

holders=()
# Without persistence mode the driver deinitialises a GPU that no process has open. Initialising the
# GPU again takes seconds.
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
  trap '' TERM INT HUP
  publish
  end_leftovers
  local holder
  for holder in "${holders[@]}"; do kill "$holder" 2>/dev/null; done
  stop_mps
  rm -rf "$scratch"
}

# The compiler of the toolkit, without which the server cannot make kernels that can be preempted. Machines without a
# toolkit may have it with PyTorch.
find_ptxas() {
  local packages
  [[ -x $bin/ptxas ]] && { echo "$bin/ptxas"; return; }  # A user may have added one to the programs.
  packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)
  find_tool ptxas "${packages:-/usr/lib/python3/dist-packages}" /usr/lib/python3/dist-packages \
    /opt/torch/.venv/lib/python3*/site-packages /usr/local/lib/python3*/dist-packages \
    /usr/local/lib/python3*/site-packages /opt/conda/lib/python3*/site-packages
}
find_python() {
  local file
  for file in /opt/torch/.venv/bin/python3 "$(command -v python3)"; do
    [[ -n $file && -x $file ]] && { echo "$file"; return; }
  done
}

# ---- parts

run_parts() {  # [part]...; none: all but named_parts
  local each name chosen=() after
  for each in "${parts[@]}"; do
    name=${each%%:*}
    [[ " $* " == *" $name "* || ($# -eq 0 && " ${named_parts[*]} " != *" $name "*) ]] && chosen+=("$each")
  done
  while [[ ${#chosen[@]} -gt 0 && ! -e $scratch/no_gpu ]]; do
    each=${chosen[0]}
    chosen=("${chosen[@]:1}")
    after=$(sum_least "${chosen[@]}")
    run_part "${each%%:*}" "$(part_limit "$each" "$((total_s - SECONDS))" "$after")"
  done
}
sum_least() {  # parts ...
  local each sum=0
  for each in "$@"; do
    each=${each#*:}
    sum=$((sum + ${each%:*}))
  done
  echo "$sum"
}
part_limit() {  # part seconds_left seconds_of_those_after_it
  local least limit=${1##*:} spare=$(($2 - $3))
  least=$(sum_least "$1")
  # Other programs may keep busy the CPU that executes the fake GPU's kernels.
  [[ $short -eq 1 ]] && limit=$((3 * limit))
  [[ $spare -lt $least ]] && spare=$least
  [[ $limit -gt $spare ]] && limit=$spare
  [[ $limit -gt $2 ]] && limit=$2
  echo "$limit"
}

run_part() {  # name seconds
  local limit=$2 begin=$SECONDS status
  part=$1
  if [[ $limit -lt 3 ]]; then
    row "the part ran to its end" 0 - rule "== 1" "no time was left"
    return
  fi
  echo "== $part (at most $limit s)" >&2
  gpu_row
  # The variable marks all processes of the part, so that those that remain can be found.
  { GPUSHARED_GPU_RUN=$scratch timeout --kill-after=5 "$limit" bash "$here/part.sh" "$part" "$limit" \
      >>"$logs/$part.log" 2>&1 {ended}>&-
    echo $? >&"$ended"; } </dev/null >/dev/null 2>&1 &
  until read -r -t "$publish_every_s" -u "$ended" status; do publish; done
  case $status in
    0) row "the part ran to its end" 1 - rule "== 1" "$((SECONDS - begin)) s" ;;
    124 | 137) row "the part ran to its end" 0 - rule "== 1" "still running after $limit s" ;;
    *) row "the part ran to its end" 0 - rule "== 1" "$(tail -n 1 "$logs/$part.log" | cut -c 1-400)" ;;
  esac
  [[ $status -eq 0 ]] || say_what_failed >&2
  end_leftovers
  stop_mps
  publish
}

# Written before each part, so that a reader can judge its rows: a hot or throttled GPU explains an
# outlier.
gpu_row() {
  local line="" why="there is no nvidia-smi" fields=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw
  local number=0
  [[ -s $scratch/device ]] && number=$(<"$scratch/device")
  if command -v nvidia-smi >/dev/null; then
    # Drivers before 535 call the reasons throttle reasons.
    line=$(timeout 10 nvidia-smi -i "$number" --query-gpu="$fields,clocks_event_reasons.active" --format=csv,noheader 2>&1) ||
      line=$(timeout 10 nvidia-smi -i "$number" --query-gpu="$fields,clocks_throttle_reasons.active" --format=csv,noheader 2>&1) ||
      { why=$(head -n 1 <<<"$line") line=""; }
  fi
  [[ -z $line ]] || why="name, driver, SM clock, memory clock, temperature, power, reasons for throttling"
  row "GPU before the part" "${line:-none}" - fact - "$why"
  echo "   GPU: ${line:-none, $why}" >&2
}

# Workers have process groups of their own, so they survive the limit that ends their part.
end_leftovers() {
  local pid left
  left=$(grep -lzsx "GPUSHARED_GPU_RUN=$scratch" /proc/[0-9]*/environ)
  for pid in ${left//[^0-9$'\n']/}; do kill -KILL "$pid" 2>/dev/null; done
}

say_what_failed() {
  echo "   $part failed, the last lines of its log:"
  tail -n 3 "$logs/$part.log" | cut -c 1-160 | sed 's/^/   /'
  [[ -s $logs/$part.gpushared.log ]] || return 0
  echo "   the server's last complaints:"
  grep -E ' (critical|error|warning) ' "$logs/$part.gpushared.log" | tail -n 3 | cut -c 1-160 | sed 's/^/   /'
}

# ---- results

# Renamed into place, so that a reader never finds half of a file.
publish() {
  local bench="" file
  [[ -s $scratch/bench.json ]] && bench=$scratch/bench.json
  awk -f "$here/report.awk" -v json="$scratch/results.json" -v summary="$scratch/summary.txt" -v short="$short" -v seconds="$SECONDS" -v bench="$bench" \
    -v modelled="$modelled" "$rows" >"$scratch/table.txt"
  echo $? >"$scratch/verdict"
  cut_logs
  tar -C "$scratch" -czf "$scratch/logs.tgz" logs 2>/dev/null
  for file in table.txt results.json logs.tgz; do
    cp "$scratch/$file" "$out/.$file" && mv "$out/.$file" "$out/$file"
  done
}
cut_logs() {
  local file
  for file in "$logs"/*; do
    [[ -f $file && $(stat -c %s "$file") -gt $((3 * log_bytes_max)) ]] || continue
    { head -c "$log_bytes_max" "$file"; printf '\n[...]\n'; tail -c "$log_bytes_max" "$file"; } >"$scratch/cut"
    cat "$scratch/cut" >"$file"
  done
}

source "$here/lib.sh"
main "$@"
