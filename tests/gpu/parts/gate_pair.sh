# SPDX-License-Identifier: Apache-2.0
# How does gate mode share a GPU between PyTorch's inference and training, with and without MPS, and
# what does a launch of a connected client cost? This part runs only if --only names it, because a
# whole run has no time left for it.
part_gate_pair() {
  local drop_in mps=() each
  drop_in=$(drop_in_directory)
  [[ -n $python ]] || { row "PyTorch" "not installed" - fact - "there is no Python"; return 0; }
  # The server also runs while ungated programs are measured, but has no clients at that time.
  start_server priority
  [[ ! -e $scratch/no_gpu ]] || fail "no GPU is served: $(<"$scratch/no_gpu")"
  # Only programs with the variables of this MPS daemon are its clients.
  if start_mps; then
    for each in "${mps_environment[@]}"; do mps+=(--mps "$each"); done
  else
    row "MPS" skipped - fact - "$why"
  fi
  "$python" "$here/gate_pair.py" --rows "$rows" --part "$part" --bin "$bin" --drop-in "$drop_in" --socket "$GPUSHARED_SOCKET" \
    --limit "$((limit - SECONDS > 15 ? limit - SECONDS - 8 : 7))" --seconds "$(either 0.5 3.5)" --kills "$(either 2 10)" \
    --probe-ms "$(either 20 200)" "${mps[@]}" || fail "gate_pair.py could not do its work"
}
