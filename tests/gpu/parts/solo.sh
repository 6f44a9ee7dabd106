# SPDX-License-Identifier: Apache-2.0
# How much do `train` and `serve` lose to the server when each is alone: shared compared with
# native, alternating?
part_solo() {
  load_sizes
  requests=$(either 12 "$(calculate "int($requests / 2)")")
  start_server priority
  at_end=solo_rows
  local round side
  for round in $(seq "$(either 1 3)"); do
    for side in _native ""; do
      run_train "$side" "$scratch/solo.train$side.$round" --seconds "$(either 0.3 2)" || fail "train$side failed"
      serve_seed=$round run_serve "$side" "$scratch/solo.serve$side.$round" || fail "serve$side failed"
    done
  done
}
# Rows for the rounds that were completed, however the part ended.
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
