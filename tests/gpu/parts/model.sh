# SPDX-License-Identifier: Apache-2.0
# Determines sizes for the samples, which later parts use: a hidden layer of 16,384, and requests of
# about 3 ms on this GPU.
part_model() {
  local text hidden rate train_batch serve_batch service_ms requests
  text=$(find_text) || exit 1
  hidden=$(either 32 16384) train_batch=$(either 16 1024) serve_batch=$(either 4 256)
  rate=$(calculate "0.5 * 256 / $(either 256 "$hidden")")
  make_model _native "$(either 4 30)" || fail "train_native made no model"
  row "train_native agrees with plain C++" "$(grep -c '"results_checked": true' "$scratch/model.json")" - rule "== 1"
  service_ms=$(service_time)
  [[ -n $service_ms ]] || fail "serve_native failed"
  serve_batch=$(awk -v batch="$serve_batch" -v wanted="$(either 0.5 3)" -v is="$service_ms" -v step="$(either 4 32)" \
    'BEGIN { b = int(batch * wanted / is / step) * step; print (b < step ? step : (b > 16384 ? 16384 : b)) }')
  service_ms=$(service_time)
  [[ -n $service_ms ]] || fail "serve_native failed"
  row "hidden layer" "$hidden" floats fact - "train: $train_batch contexts per step, serve: $serve_batch per request"
  row "serve: time of a request, native" "$service_ms" ms fact -
  # Arrivals for 4 s at a load of 0.45, which is serve's default.
  requests=$(either 12 "$(calculate "int(4 / ($service_ms / 0.45 / 1000))")")
  save_sizes
}
service_time() {  # of a request of $serve_batch, in ms
  "$bin/serve_native" --model "$scratch/model" --batch "$serve_batch" --requests 1 --json "$scratch/service.json" >&2 &&
    field "$scratch/service.json" service_ms
}
