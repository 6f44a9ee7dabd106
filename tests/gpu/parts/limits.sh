# SPDX-License-Identifier: Apache-2.0
# Does --sm-limit confine a class to a green context while its kernels and memory belong to the
# whole GPU's context?
part_limits() {
  local share grant
  share=$(either 100% 50%)
  if ! try_server priority --sm-limit "low=$share"; then
    grep -q 'option sm-limit rejected' "$logs/$part.gpushared.log" || fail "$why"
    row "--sm-limit" rejected - fact - "$(grep -o 'option sm-limit rejected.*' "$logs/$part.gpushared.log" | head -n 1)"
    return 0
  fi
  grant=$("$bin/gpusharedctl" devices | sed -n 's/^.*: class low has //p')
  row "multiprocessors of class low under --sm-limit low=$share" "${grant%% *}" - fact - "$grant"
  "$bin/gpu_churn" "$(either 0.2 2)" 2 >"$scratch/limits.rounds"
  row "a low client computes within it" $((! $?)) - rule "== 1" "$(cat "$scratch/limits.rounds")"
  "$bin/vector_add_cpp"
  row "a normal client computes beside the limit" $((! $?)) - rule "== 1"
}
