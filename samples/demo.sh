#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job on this machine: an inference server (serve, high class) and a training
# job (train, low class) share one device; each alone, then both without priorities
# (fifo), then both with them.
#
# Usage: samples/demo.sh [--seconds N] [--json FILE] [--trace FILE] [--device LIST]
#   --seconds N    length of each phase, over all rounds, with however few requests (enough for 1,020)
#   --json FILE    write the table as JSON too
#   --trace FILE   arrivals of serve from this CSV instead of a generated bursty process
#   --device LIST  as for gpushared (auto)
set -euo pipefail

seconds="" json="" trace="" device=auto
while [[ $# -gt 0 ]]; do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --json) json=$(realpath -m "${2:?--json needs a file}"); shift 2 ;;
    --trace) trace=$(realpath -e "${2:?--trace needs a file}"); shift 2 ;;
    --device) device=${2:?--device needs a list}; shift 2 ;;
    *) sed -n '3,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly rounds=3 load=0.45 promise_ms=25 model_steps=120
# On a virtual machine: a phase in which the host took more of the processors than this measured the host,
# and is repeated while there is time, of which there is more where it took much.
readonly taken_permille_max=10 run_s_max=118 taken_permille_much=50 run_s_max_then=238
readonly preset=${GPUSHARED_DEMO_PRESET:-release}
bin=$PWD/build/$preset/bin

if [[ -z ${GPUSHARED_DEMO_SKIP_BUILD:-} ]]; then
  source packaging/setup_debian.sh
  mkdir -p build
  echo "building the $preset preset ..." >&2
  { cmake --preset "$preset" -DGPUSHARED_NVCC="$CUDA_HOME/bin/nvcc" &&
    cmake --build --preset "$preset" -j "$(nproc)"; } >"build/$preset.log" 2>&1 ||
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

# One server per policy. The idle one's threads sleep; on a GPU it keeps a context.
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

run() { GPUSHARED_SOCKET=$work/$1.sock "${@:2}"; }

echo "training a model on LICENSE ..." >&2
run priority "$bin/train" --text LICENSE --model "$work/model" --steps "$model_steps" --json "$work/model.json" >&2 ||
  fail "training the model failed"
# Of three, since the host may disturb one for all of its second.
service_ms=$(for _ in 1 2 3; do run priority "$bin/serve" --model "$work/model" --requests 1; done |
  sed -n 's/.*service \([0-9.]*\) ms.*/\1/p' | sort -n | sed -n 2p)
[[ -n $service_ms ]] || fail "serve could not measure its service time"

# What a round's phases are given, all the same: requests, and how long they take to arrive.
service_in=() requests_in=() phase_s_in=()
plan() {  # round service_ms
  service_in[$1]=$2
  read -r "requests_in[$1]" "phase_s_in[$1]" < <(python3 - "$2" "$load" "$rounds" "$seconds" <<'PY'
import math, sys
service_ms, load, rounds, seconds = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
gap_s = service_ms / load / 1000
total = float(seconds) / gap_s if seconds else max(1020, 9 / gap_s)
requests = max(1, math.floor(total / rounds) if seconds else math.ceil(total / rounds))
print(requests, f"{requests * gap_s:.3f}")
PY
)
  echo "round $1: serve takes ${service_in[$1]} ms per request; ${requests_in[$1]} requests in ${phase_s_in[$1]} s per phase ..." >&2
}
# A machine that others share may get slower or faster by half: what the next round's load is made of.
service_found() {  # round
  python3 - "${service_in[$1]}" "$load" "$work"/serve.alone{,_again}."$1".json <<'PY'
import json, sys
busy = [json.load(open(name, encoding="utf-8"))["busy"] for name in sys.argv[3:]]
print(f"{float(sys.argv[1]) * sum(busy) / len(busy) / float(sys.argv[2]):.3f}")
PY
}

taken_ticks() { awk '$1 == "cpu" { print $9 }' /proc/stat; }  # Of all processors, by the host.

# One phase, its results in $work/try; `taken` is the part of the processors that the host took, in thousandths.
try_phase() {  # round name policy who...
  local round=$1 name=$2 policy=$3 pids=() pid start ticks begin_us
  rm -rf "$work/try" && mkdir "$work/try"
  start=$(python3 -c 'import time; print(f"{time.time() + 1:.3f}")')
  for who in "${@:4}"; do
    case $who in
      serve) run "$policy" "$bin/serve" --model "$work/model" --requests "${requests_in[round]}" --service-ms "${service_in[round]}" \
        --load "$load" --promise-ms "$promise_ms" --trace "$trace" --seed "$round" --start-at "$start" \
        --json "$work/try/serve.$name.$round.json" >"$work/try/serve.log" 2>&1 & ;;
      train) run "$policy" "$bin/train" --text LICENSE --steps 0 --seconds "${phase_s_in[round]}" --start-at "$start" \
        --json "$work/try/train.$name.$round.json" >"$work/try/train.log" 2>&1 & ;;
    esac
    pids+=($!)
  done
  sleep 1
  ticks=$(taken_ticks) begin_us=${EPOCHREALTIME/[.,]/}
  for pid in "${pids[@]}"; do
    wait "$pid" || fail "phase $name: $(cat "$work"/try/*.log)"
  done
  taken=$((($(taken_ticks) - ticks) * 1000000000 / $(getconf CLK_TCK) / $(nproc) / (${EPOCHREALTIME/[.,]/} - begin_us)))
}

declare -A taken_in=()
repeats=0
phase() {  # as try_phase. Of several tries, that counts which the host disturbed least.
  local taken
  try_phase "$@"
  if [[ -z ${taken_in[$*]:-} ]] || ((taken < taken_in[$*])); then
    taken_in[$*]=$taken
    mv "$work"/try/*.json "$work"
  fi
}

# Interleaved, so that a slow moment of the machine meets all phases alike.
plan 1 "$service_ms"
for ((round = 1; round <= rounds; ++round)); do
  phase "$round" alone priority serve
  phase "$round" alone priority train
  phase "$round" fifo fifo serve train
  phase "$round" priority priority serve train
  phase "$round" alone_again priority serve
  ((round == rounds)) || plan "$((round + 1))" "$(service_found "$round")"
done

# What the host disturbed most once more, while there is time.
most_disturbed() { for key in "${!taken_in[@]}"; do echo "${taken_in[$key]} $key"; done | sort -rn | head -n 1; }
while read -r taken disturbed < <(most_disturbed) && ((taken > taken_permille_max)) &&
  ((SECONDS - set_up_s + ${phase_s_in[${disturbed%% *}]%.*} + 3 <=
    (taken > taken_permille_much ? run_s_max_then : run_s_max))); do
  # shellcheck disable=SC2086
  phase $disturbed  # Its words are the arguments.
  repeats=$((repeats + 1))
done
printf '%s\n' "${taken_in[@]}" >"$work/taken_permille"

echo "set up and built in $set_up_s s, ran for $((SECONDS - set_up_s)) s; phases repeated: $repeats" >&2
python3 samples/demo_report.py "$work" --promise-ms "$promise_ms" ${seconds:+--requests-min 1} ${json:+--json "$json"}
