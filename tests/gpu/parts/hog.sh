# SPDX-License-Identifier: Apache-2.0
# How does a low program that fills the GPU affect a null launch, a kernel of 1 ms and `serve`, with
# the same kernels under every contender? Only preemption shortens the wait for a kernel that fills
# the GPU.
readonly hogs=(1:1000 50:20 2500:20 250:200)  # Waves of blocks, and the time of a block in us
hog_name() { echo "${1%:*} x ${1#*:} us"; }

part_hog() {
  local contender
  load_sizes
  "$bin/gpu_hog_native" --load calibrate --json "$scratch/hog.calibration" || fail "gpu_hog_native --load calibrate failed"
  # Calibrated once for all contenders, because one that has only a part of the GPU would measure
  # smaller waves.
  shape=(--wave-blocks "$(field "$scratch/hog.calibration" wave_blocks)"
    --iterations-per-us "$(field "$scratch/hog.calibration" iterations_per_us)")
  row "blocks of a wave" "${shape[1]}" - fact - "of kernel hog, the same for all contenders"
  with_contender "time slicing" measure_alone
  for contender in "${contenders[@]}"; do
    [[ $contender == deadline ]] || with_contender "$contender" contend
  done
}
measure_alone() {  # contender suffix
  # shellcheck disable=SC2046
  "$bin/gpu_hog_native" $(probe_chain alone "$(in_seconds 2)" 0) && probe_rows "alone, native: " alone 0
  requests=$(either 6 "$(calculate "int(2 / ($service_ms / 0.45 / 1000))")")
  run_serve _native "$scratch/hog.serve.alone" && row "alone, native: serve, p99 ms" "$(p99_ms "$scratch/hog.serve.alone")" ms fact -
}
contend() {  # contender suffix
  local start i status=0
  rm -f "$scratch"/hog.low.* "$scratch"/hog.null.* "$scratch"/hog.kernel_1ms.* "$scratch/hog.serve"
  start=$(in_seconds 1.8)
  run_both "$2" "$(hog_chain "$start" 1.1)" "$(probe_chain beside "$start" "${!hogs[@]}")" || status=1
  probe_rows "$1 | " beside "${!hogs[@]}"
  for i in "${!hogs[@]}"; do
    row "$1 | hog $(hog_name "${hogs[i]}"), launches/s" \
      "$([[ -s $scratch/hog.low.$i ]] && field "$scratch/hog.low.$i" launches_per_s)" - fact -
  done
  row "$1: hogs and round trips computed right" $((! status)) - rule "== 1" "kernel hog"
  start=$(in_seconds 2.2) status=0
  requests=$(either 6 "$(calculate "int(4 / ($service_ms / 0.45 / 1000))")")
  serve_beside "$2" "$start" || status=1
  for i in "${!hogs[@]}"; do
    row "$1 | serve beside $(hog_name "${hogs[i]}"), p99 ms" "$(serve_p99 "$scratch/hog.serve" "$i")" ms fact -
  done
  row "$1: hogs and serve computed right" $((! status)) - rule "== 1" "kernel hog, kernels of language_model"
  mps_row "$1" "$scratch/hog.low.0" "$scratch/hog.null.beside.0"
}
# Paths contain no spaces, because they are below $scratch.
hog_chain() {  # start seconds_each
  local i chain="" hog
  for i in "${!hogs[@]}"; do
    hog=${hogs[i]}
    [[ $short -eq 0 ]] || hog=2:100
    chain+="${chain:+ + }--load hog --waves ${hog%:*} --block-us ${hog#*:} --seconds $(calculate "$(either 0.2 "$2") - 0.1")"
    chain+=" --start-at $(calculate_time "$1 + $i * $(either 0.4 "$2")") ${shape[*]} --json $scratch/hog.low.$i"
  done
  echo "$chain"
}
# Prints options for each hog: null launches for a third of the hog's time, then kernels of 1 ms.
probe_chain() {  # name start hog...
  local i chain="" at each
  each=$(either 0.4 1.1)
  for i in "${@:3}"; do
    at="$2 + $i * $each"
    chain+="${chain:+ + }--load null --seconds $(either 0.05 0.35) --start-at $(calculate_time "$at + 0.1") ${shape[*]} --json $scratch/hog.null.$1.$i"
    chain+=" + --load kernel_1ms --seconds $(either 0.05 0.5) --start-at $(calculate_time "$at + $(either 0.2 0.5)") ${shape[*]} --json $scratch/hog.kernel_1ms.$1.$i"
  done
  echo "$chain"
}
calculate_time() { awk "BEGIN { printf \"%.3f\", $1 }"; }
run_both() {  # suffix low_chain high_chain
  local low high status=0
  if [[ $1 == _both ]]; then
    # shellcheck disable=SC2086
    "${sample_limit[@]}" "$bin/both_native" gpu_hog $2 -- gpu_hog $3
    return
  fi
  # shellcheck disable=SC2086
  env "${client_environment[@]}" "${low_environment[@]}" "${sample_limit[@]}" "$bin/gpu_hog${1:-_shared}" $2 &
  low=$!
  # shellcheck disable=SC2086
  env "${client_environment[@]}" "${high_environment[@]}" "${sample_limit[@]}" "$bin/gpu_hog${1:-_shared}" $3 &
  high=$!
  wait "$low" || status=1
  wait "$high" || status=1
  return "$status"
}
serve_beside() {  # suffix start
  local low status=0
  set_arguments
  if [[ $1 == _both ]]; then
    # shellcheck disable=SC2046
    "${sample_limit[@]}" "$bin/both_native" gpu_hog $(hog_chain "$2" 1) -- \
      serve "${serve_arguments[@]}" --start-at "$2" --json "$scratch/hog.serve"
    return
  fi
  # shellcheck disable=SC2046
  env "${client_environment[@]}" "${low_environment[@]}" "${sample_limit[@]}" "$bin/gpu_hog${1:-_shared}" $(hog_chain "$2" 1) &
  low=$!
  run_serve "$1" "$scratch/hog.serve" --start-at "$2" || status=1
  wait "$low" || status=1
  return "$status"
}
probe_rows() {  # whose name hog...
  local probe i file beside=""
  for probe in null kernel_1ms; do
    for i in "${@:3}"; do
      file=$scratch/hog.$probe.$2.$i
      [[ $2 == alone ]] || beside=" beside $(hog_name "${hogs[i]}")"
      row "$1$probe$beside, p99 us" "$([[ -s $file ]] && field "$file" p99_us)" us fact - \
        "$([[ -s $file ]] && echo "p50 $(field "$file" p50_us), max $(field "$file" max_us), $(field "$file" count) round trips")"
    done
  done
}
# Prints the p99 of requests that arrived while a hog ran.
serve_p99() {  # json hog
  [[ -s $1 ]] || return 0
  paste <(list_of "$1" arrivals_ms) <(list_of "$1" latencies_ms) |
    awk -v from="$2" -v each="$(either 400 1000)" '$1 >= from * each && $1 < (from + 1) * each - 100 { print $2 }' | sort -g |
    awk '{ v[NR] = $1 } END { if (NR) print v[int((NR - 1) * 0.99) + 1] }'
}
