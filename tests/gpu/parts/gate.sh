# SPDX-License-Identifier: Apache-2.0
# Gate mode with our wrapper in front of the installed driver and no server: do PyTorch, CuPy, JAX,
# Triton and Numba compute the same results, through which entry points do they launch, and what
# does a forwarded call cost?
part_gate() {
  local drop_in
  drop_in=$(drop_in_directory)
  gate_bench --drop-in "$drop_in"
  gate_bench --pair --under "time slicing"
  if start_mps; then
    client_environment=("${mps_environment[@]}")
    gate_bench --pair --under MPS
    client_environment=()
    stop_mps
  fi
  [[ -n $python ]] || { row "programs with NVIDIA's runtime" skipped - fact - "there is no Python"; return 0; }
  "$python" "$here/gate_facts.py" --drop-in "$drop_in" --rows "$rows" --limit "$((limit - SECONDS > 12 ? limit - SECONDS - 5 : 7))" ||
    fail "gate_facts.py could not do its work"
}
gate_bench() {  # options
  env "${client_environment[@]}" "$bin/gate_bench" --rows "$rows" --ms "$(either 20 200)" --limit "$(either 60 10)" "$@" ||
    row "gate_bench $*" failed - rule "== 1" "$(tail -n 1 "$logs/$part.log")"
}
