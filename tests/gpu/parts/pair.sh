# SPDX-License-Identifier: Apache-2.0
# How does sharing affect an inference server and a training job at once: `serve` and `train`, with
# the same kernels under every contender and two seeds of arrivals? What does a context switch cost?
readonly seeds=(1 2)

part_pair() {
  load_sizes
  local lead=2 train_s seed contender
  train_s=$(either 0.3 3)
  alone "" priority
  alone _native
  train_s=$(either 0.5 4)
  for contender in "${contenders[@]}"; do with_contender "$contender" contend; done
  ratio_row "p99 of serve: policy priority / time slicing" "<= 1" "priority 1" "time slicing 1"
}
# Runs both samples separately, with the client library or natively.
alone() {  # suffix [policy]
  local serve_seed
  [[ -z ${2:-} ]] || { start_server "$2"; preemption_row "policy $2"; }
  for serve_seed in "${seeds[@]}"; do phase "alone$1 $serve_seed" "$1" serve; done
  phase "alone$1" "$1" train
  stop_server
}
contend() {  # contender suffix
  local serve_seed of=$2
  [[ $of == _both ]] && of=_native
  for serve_seed in "${seeds[@]}"; do
    phase "$1 $serve_seed" "$2" serve train && pair_cells "$1" "alone$of $serve_seed" "alone$of"
    # Measured once per contender, to explain how long another process's kernel delayed the requests
    # of the first phase.
    [[ $serve_seed -eq 1 && ($1 == "time slicing" || $1 == "MPS, client priority") ]] && beside_another_process "$1"
  done
  return 0
}

json() { echo "$scratch/$part.$1.${2// /_}"; }  # train|serve phase

# Runs programs that begin at the same moment, `lead` seconds from now. If one of them is late,
# repeats the phase with a longer lead.
phase() {  # name suffix who...
  run_phase "$@"
  local status=$? late file files=()
  late=$(latest "$@")
  if [[ $status -eq 0 && $short -eq 0 ]] && is_true "${late:-0} > 0.05"; then
    lead=$(calculate "$lead + $late + 0.5")
    run_phase "$@"
    status=$? late=$(latest "$@")
  fi
  row "$1: all ran and agree with plain C++" $((! status)) - rule "== 1" "${*:3}"
  [[ $status -eq 0 ]] || return 1
  row "$1: began late by" "$late" s figure "<= 0.05" "$lead s to be ready"
  [[ -n $2 ]] || return 0
  for file in "${@:3}"; do files+=("$(json "$file" "$1")"); done
  mps_row "$1" "${files[@]}"
}
run_phase() {  # name suffix who...
  local name=$1 suffix=$2 who pids=() start status=0
  for who in "${@:3}"; do rm -f "$(json "$who" "$name")"; done
  start=$(in_seconds "$lead")
  if [[ $suffix == _both ]]; then
    set_arguments
    "${sample_limit[@]}" "$bin/both_native" \
      train "${train_arguments[@]}" --seconds "$train_s" --start-at "$start" --json "$(json train "$name")" -- \
      serve "${serve_arguments[@]}" --start-at "$start" --json "$(json serve "$name")"
    return
  fi
  for who in "${@:3}"; do
    if [[ $who == serve ]]; then
      run_serve "$suffix" "$(json serve "$name")" --start-at "$start" &
    else
      run_train "$suffix" "$(json train "$name")" --seconds "$train_s" --start-at "$start" &
    fi
    pids+=($!)
  done
  if [[ -z $suffix && $# -eq 4 ]]; then
    # Adds a row, while both are connected, on how often the server has preempted train so far.
    sleep "$(calculate "$lead + $train_s / 2")"
    "$bin/gpusharedctl" --json ps >"$(json ps "$name")"
    row "$name: preemptions of train's kernels, half way through" "$(stops_of train "$(json ps "$name")")" - fact -
  fi
  for who in "${pids[@]}"; do wait "$who" || status=1; done
  return "$status"
}
stops_of() {  # client file
  awk -F'"' -v client="$1" '$2 == "name" { name = $4 } $2 == "stops" && name == client { gsub(/[^0-9]/, "", $3); print $3; exit }' "$2"
}
latest() {  # name suffix who...
  local who
  for who in "${@:3}"; do field "$(json "$who" "$1")" late_s; done | sort -g | tail -n 1
}

# A row of the headline table. Only our own policies have bounds.
pair_cells() {  # contender serve_alone train_alone
  local name="$1, seed $serve_seed" phase="$1 $serve_seed" p99 alone more used why="" p99_must=- used_must=-
  local kernels="kernels of language_model, hidden layer $hidden, $serve_batch contexts per request"
  [[ $1 == priority || $1 == deadline ]] && p99_must="<= 1.10" used_must=">= 0.85"
  p99=$(p99_ms "$(json serve "$phase")") alone=$(p99_ms "$(json serve "$2")")
  row "$name | p99 of serve, ms" "$p99" ms fact - "p50 $(p50_ms "$(json serve "$phase")") ms; $kernels"
  row "$name | p99 / alone" "$(calculate "$p99 / $alone")" - fact - "alone p99 $alone ms"
  row "$name | p99 / alone, one request at a time" \
    "$(calculate "$(time_p99 "$(json serve "$phase")") / $(time_p99 "$(json serve "$2")")")" - fact - "timed from the start of each request"
  more=$(more_p99 "$(json serve "$phase")" "$(json serve "$2")")
  row "$name | 1 + p99 of what requests take more than alone / p99 alone" "$(calculate "1 + $more / $alone")" - figure \
    "$p99_must" "$more ms more than the same request alone"
  row "$name | train / alone" "$(calculate "$(steps_per_s "$(json train "$phase")") / $(steps_per_s "$(json train "$3")")")" - \
    fact - "$(steps_per_s "$(json train "$phase")") steps/s"
  used=$(used_of_left "$phase" "$2" "$3") || why=$used used=none
  # If serve left no time, there is nothing to judge.
  [[ $used == none ]] && used_must=-
  row "$name | train / the time that serve left" "$used" - figure "$used_must" "$why"
}
# Prints the share of the time left by serve that train used. Fails with a message if serve alone
# leaves almost no time, as on a machine on which a request is always in progress.
used_of_left() {  # phase serve_alone train_alone
  local busy
  busy=$(field "$(json serve "$2")" busy)
  is_true "${busy:-1} < 0.95" || { echo "alone, serve was busy for ${busy:-?} of its time, which leaves too little"; return 1; }
  calculate "$(steps_per_s "$(json train "$1")") / $(steps_per_s "$(json train "$3")") / (1 - $busy)"
}
time_p99() { list_of "$1" times_ms | sort -g | awk '{ v[NR] = $1 } END { print v[int(NR * 0.99) + 1] }'; }
more_p99() {  # shared alone
  local both
  both=$(paste <(list_of "$1" latencies_ms) <(list_of "$2" latencies_ms)) || return 1
  awk 'NF != 2 { bad = 1 } { print $1 - $2 } END { exit bad || NR == 0 }' <<<"$both" >"$scratch/more" || return 1
  sort -g "$scratch/more" | awk '{ v[NR] = $1 } END { print v[int((NR - 1) * 0.99) + 1] }'
}
ratio_row() {  # what must phase of_phase
  local one other
  one=$(json serve "$3") other=$(json serve "$4")
  [[ -s $one && -s $other ]] || return 0
  row "$1" "$(calculate "$(p99_ms "$one") / $(p99_ms "$other")")" - figure "$2"
}
# Measures for how long another process's kernel delays a kernel when nothing is preempted.
beside_another_process() {  # label
  env "${client_environment[@]}" "$bin/gpu_bench" --only-native "$1" --rows "$rows" --ms "$(either 5 60)" --limit "$(either 60 20)" ||
    row "$1: a kernel beside another process's" failed - rule "== 1" "$(tail -n 1 "$logs/$part.log")"
}
