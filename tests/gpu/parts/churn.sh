# SPDX-License-Identifier: Apache-2.0
# How does a low client that repeatedly connects, loads new kernels, maps memory and leaves affect
# `serve`?
part_churn() {
  local alone beside
  load_sizes
  start_server priority
  run_serve "" "$scratch/churn.alone" || fail "serve failed"
  alone=$(field "$scratch/churn.alone" p99_ms)
  row "serve alone: p99" "$alone" ms fact -
  "$bin/gpu_churn" "$(either 2 6)" "$(either 2 512)" >"$scratch/churn.rounds" &
  local churn=$!
  run_serve "" "$scratch/churn.beside" || fail "serve failed beside churn"
  wait "$churn" || fail "gpu_churn failed"
  beside=$(field "$scratch/churn.beside" p99_ms)
  row "rounds of connect, load, map, leave" "$(sed 's/ .*//' "$scratch/churn.rounds")" - rule ">= 1" "$(cat "$scratch/churn.rounds")"
  row "p99 of serve beside it / alone" "$(calculate "$beside / $alone")" - figure "<= 1.2" "$beside ms, alone $alone ms"
}
