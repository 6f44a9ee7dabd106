#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Demo: an inference server (serve, high class) and a training job (train, low class) share one
# device. First train runs alone; then serve alone, both without priorities (fifo), and both with
# priorities (priority) alternate.
#
# Usage: samples/demo.sh [--seconds N] [--json FILE] [--picture FILE] [--trace FILE] [--device LIST] [--web]
#   --seconds N     length of each phase, over all rounds (default: enough for 600 to 1,000 requests)
#   --json FILE     write the table as JSON too
#   --picture FILE  write the picture to this file (build/demo.svg)
#   --trace FILE    arrivals of serve from this CSV instead of a Poisson process
#   --device LIST   as for gpushared (auto)
#   --web           show the server with priorities on a page while the demo runs, and leave a trace of its last round,
#                   demo.trace.json, next to the picture
set -euo pipefail

seconds="" json="" trace="" device=auto web="" picture=$(realpath -m "$(dirname "${BASH_SOURCE[0]}")/../build/demo.svg")
while [[ $# -gt 0 ]]; do
  case $1 in
    --seconds)
      seconds=${2:?--seconds needs a number}
      [[ $seconds =~ ^[0-9]+(\.[0-9]+)?$ && $seconds =~ [1-9] ]] || { echo "demo: --seconds rejected: '$seconds' is not a number above 0" >&2; exit 2; }
      shift 2 ;;
    --json) json=$(realpath -m "${2:?--json needs a file}"); shift 2 ;;
    --picture) picture=$(realpath -m "${2:?--picture needs a file}"); shift 2 ;;
    --trace) trace=$(realpath -e "${2:?--trace needs a file}"); shift 2 ;;
    --device) device=${2:?--device needs a list}; shift 2 ;;
    --web) web=yes; shift ;;
    *) sed -n '3,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
[[ -z $web ]] || web=$(dirname "$picture")/demo.trace.json
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -z $web ]] || mkdir -p "$(dirname "$web")"

readonly rounds=10 load=0.3 latency_target_ms=25 model_steps=60
# Bounds on all phases of all rounds together; a round with fewer requests than the minimum takes
# longer.
readonly arrivals_s=50 requests_of_round_least=60 requests_of_round_most=100
# Small enough that 1,000 requests per phase fit into that time on two cores.
readonly serve_batch=16 train_batch=64
# Lead time from starting a phase's programs to its beginning, so that they begin together. train
# first computes two steps on its own.
readonly lead_alone_us=200000 lead_both_us=500000
readonly moment_after_s=0.9 moment_s=1  # Trace of each phase with both, in round 1.
readonly preset=${GPUSHARED_DEMO_PRESET:-demo}
bin=${GPUSHARED_DEMO_BIN:-$PWD/build/$preset/bin}

if [[ -z ${GPUSHARED_DEMO_SKIP_BUILD:-} ]]; then
  source packaging/setup_debian.sh product
  mkdir -p build
  echo "building the $preset preset ..." >&2
  { cmake --preset "$preset" &&
    cmake --build --preset "$preset" -j "$(nproc)" && { [[ -z $web ]] ||
      cmake --build --preset "$preset" -j "$(nproc)" --target gpushared-web; }; } >"build/$preset.log" 2>&1 ||
    { tail -n 40 "build/$preset.log" >&2; echo "demo: the build failed, see build/$preset.log" >&2; exit 1; }
fi

readonly set_up_s=$SECONDS  # Of setting up and building.

work=$(mktemp -d)
declare -A server=()
stop() {
  local policy
  for policy in "${!server[@]}"; do kill "${server[$policy]}" 2>/dev/null || true; done
  for policy in "${!server[@]}"; do wait "${server[$policy]}" 2>/dev/null || true; done
  rm -rf "$work"
}
trap stop EXIT

fail() {
  echo "demo: $1" >&2
  for policy in fifo priority; do
    [[ -s $work/$policy.log ]] && { echo "last lines of the $policy server:" >&2; tail -n 5 "$work/$policy.log" >&2; }
  done
  exit 1
}

# The page closes when the demo ends.
show_page() {
  local page
  : >"$work/web.log"  # Must exist, because it may be read before the program writes to it.
  "$bin/gpushared-web" --socket "$work/priority.sock" --listen 127.0.0.1:0 2>"$work/web.log" &
  server[web]=$!
  for _ in $(seq 100); do
    page=$(sed -n 's,.*serves \(http://.*\),\1,p' "$work/web.log")
    [[ -z $page ]] || { echo "web page: $page" >&2; return 0; }
    kill -0 "${server[web]}" 2>/dev/null || fail "the page cannot be shown: $(cat "$work/web.log")"
    sleep 0.1
  done
  fail "the page did not start within 10 s"
}

# One server per policy. The idle server's threads sleep; on a GPU it keeps a context.
for policy in fifo priority; do
  "$bin/gpushared" --policy "$policy" --device "$device" --socket "$work/$policy.sock" 2>"$work/$policy.log" &
  server[$policy]=$!
done
for policy in fifo priority; do
  for _ in $(seq 100); do
    "$bin/gpusharedctl" --socket "$work/$policy.sock" status >/dev/null 2>&1 && break
    kill -0 "${server[$policy]}" 2>/dev/null || fail "the $policy server did not start"
    sleep 0.1
  done
done

[[ -z $web ]] || show_page

# Copies the descriptors, because bash unsets `watch` and `watch_PID` when the watcher exits.
coproc watch { exec python3 -B samples/demo_watch.py "$bin/gpusharedctl"; }
server[watch]=$watch_PID
exec {watcher_says}<&"${watch[0]}" {watcher_hears}>&"${watch[1]}"

run() { GPUSHARED_SOCKET=$work/$1.sock "${@:2}"; }

echo "training a model on LICENSE ..." >&2
run priority "$bin/train" --text LICENSE --model "$work/model" --batch "$train_batch" --steps "$model_steps" --json "$work/model.json" >&2 ||
  fail "training the model failed"
# The first round uses this value; each later round uses the value measured in the previous round.
service_ms=$(run priority "$bin/serve" --model "$work/model" --batch "$serve_batch" --requests 1 | sed -n 's/.*service \([0-9.]*\) ms.*/\1/p')
[[ -n $service_ms ]] || fail "serve could not measure its service time"

# Parameters of a round's phases, equal for all of them: the number of requests, and the time over
# which they arrive.
plan() {  # service_ms
  service=$1
  read -r requests phase_s < <(LC_ALL=C awk -v service_ms="$1" -v busy="$load" -v rounds="$rounds" -v seconds="$seconds" \
    -v arrivals_s="$arrivals_s" -v least="$requests_of_round_least" -v most="$requests_of_round_most" 'BEGIN {
      gap_s = service_ms / busy / 1000
      requests = int((seconds != "" ? seconds : arrivals_s / 3) / rounds / gap_s)
      if (seconds != "") { least = 1; most = requests }
      if (requests > most) requests = most
      if (requests < least) requests = least
      printf "%d %.3f\n", requests, requests * gap_s }')
}

# A shared machine may become slower or faster by half, so the next round's load is based on this
# round's measurement of serve alone.
service_found() {  # round
  sed -n 's/.*"busy": \([0-9.e-]*\),.*/\1/p' "$work/serve.alone.$1.json" |
    LC_ALL=C awk -v service_ms="$service" -v wanted="$load" '{ printf "%.3f\n", service_ms * $1 / wanted }'
}

# One watcher for all phases, ready before the first, because one that starts with a phase may miss
# its beginning.
tell_watcher() {  # word ...
  local IFS=$'\t'
  kill -0 "${server[watch]}" 2>/dev/null || fail "the device cannot be watched"
  echo "$*" >&"$watcher_hears"
}

hear_watcher() {  # line
  local said=""
  read -r -u "$watcher_says" said 2>/dev/null || true
  [[ $said == "$1" ]] || fail "the device cannot be watched"
}

# One phase, whose programs begin together. If both run, their use of the device is watched.
phase() {  # round name policy who...
  local round=$1 name=$2 policy=$3 pids=() pid watched="" tracer="" moment="" start lead_us=$lead_alone_us
  [[ $# -eq 4 ]] || watched=yes lead_us=$lead_both_us
  start=$((${EPOCHREALTIME/[^0-9]/} + lead_us))
  start=${start:0:-6}.${start: -6}
  [[ -z $watched ]] || tell_watcher "$start" "$work/$policy.sock" "$work/device.$name.$round.json"
  for who in "${@:4}"; do
    case $who in
      serve) run "$policy" "$bin/serve" --model "$work/model" --batch "$serve_batch" --requests "$requests" --service-ms "$service" \
        --load "$load" --variation 1 --latency-target-ms "$latency_target_ms" --trace "$trace" --seed "$round" --start-at "$start" \
        --json "$work/serve.$name.$round.json" >"$work/serve.log" 2>&1 & ;;
      train) run "$policy" "$bin/train" --text LICENSE --batch "$train_batch" --steps 0 --seconds "$phase_s" --start-at "$start" \
        --json "$work/train.$name.$round.json" >"$work/train.log" 2>&1 & ;;
    esac
    pids+=($!)
  done
  # Traces a moment for the picture, in one round only, because tracing takes time from the
  # programs.
  if [[ -n $watched && $round -eq 1 ]]; then
    { sleep "$moment_after_s"; exec "$bin/gpusharedctl" --socket "$work/$policy.sock" trace --seconds "$moment_s" \
      --out "$work/trace.$name.json"; } >"$work/moment.log" 2>&1 & moment=$!
  fi
  if [[ -n $web && $name == priority && $round -eq $rounds ]]; then
    "$bin/gpusharedctl" --socket "$work/$policy.sock" trace --seconds 3600 --out "$web" >"$work/trace.log" 2>&1 & tracer=$!
  fi
  for pid in "${pids[@]}"; do
    wait "$pid" || fail "phase $name: $(cat "$work"/{serve,train}.log)"
  done
  [[ -z $watched ]] || { tell_watcher; hear_watcher written; }
  [[ -z $moment ]] || wait "$moment" || fail "no moment was traced: $(cat "$work/moment.log")"
  # The tracer completes its file when it receives SIGTERM.
  [[ -z $tracer ]] || { kill "$tracer"; wait "$tracer" || fail "no trace was written: $(cat "$work/trace.log")"; cat "$work/trace.log" >&2; }
}

# Many short rounds, so that a slow period of the machine affects all phases alike and appears as a
# difference between rounds.
plan "$service_ms"
hear_watcher ready
echo "serve takes $service ms per request; $rounds rounds of $requests requests in $phase_s s per phase ..." >&2
for ((round = 1; round <= rounds; ++round)); do
  phase "$round" alone priority serve
  phase "$round" fifo fifo serve train
  phase "$round" priority priority serve train
  service_ms=$(service_found "$round")
  [[ -n $service_ms ]] || fail "serve did not report its load"
  plan "$service_ms"
done

echo "set up and built in $set_up_s s, ran for $((SECONDS - set_up_s)) s" >&2
mkdir -p "$(dirname "$picture")"
requests_least=$((rounds * requests_of_round_least))
[[ -z $seconds ]] || requests_least=1
python3 -B samples/demo_report.py "$work" --latency-target-ms "$latency_target_ms" --picture "$picture" \
  --requests-min "$requests_least" ${json:+--json "$json"}
