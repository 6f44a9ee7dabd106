# SPDX-License-Identifier: Apache-2.0
# Do unmodified programs compute correct results through the drop-in libcuda, and how does `serve`
# perform next to one of them? Are programs with NVIDIA's runtime rejected with a message?
part_drop_in() {
  [[ -n $python ]] || { row "unmodified programs" skipped - fact - "there is no Python"; return 0; }
  load_sizes
  # Fewer requests than in other parts, because the program next to them runs for seconds.
  requests=$(either 6 "$(calculate "int(2.5 / ($service_ms / 0.45 / 1000))")")
  start_server priority
  "$python" "$here/dropin_facts.py" --gpusharedctl "$bin/gpusharedctl" --rows "$rows" --part "$part" \
    --limit-each "$(either 60 12)" --limit "$((limit > 40 ? limit - 20 : limit / 2))" --heat-seconds "$(either 0.5 1.5)" ||
    fail "dropin_facts.py could not do its work"
  "$python" -c 'import numba.cuda' 2>/dev/null || { row "serve beside numba_heat" skipped - fact - "Numba is not installed"; return 0; }
  local heat=("$python" "$root/tests/drop_in/programs/numba_heat.py" "$(either 2 6)")
  serve_beside "policy priority, low" "" "$bin/gpusharedctl" run --mode submit --class low -- "${heat[@]}"
  serve_beside "policy priority, low with --ptx" "" "$bin/gpusharedctl" run --mode submit --class low --ptx -- "${heat[@]}"
  stop_server
  serve_beside "time slicing" _native "${heat[@]}"
}
serve_beside() {  # title suffix command...
  local other file=$scratch/drop_in.serve status
  rm -f "$file"
  "${@:3}" >"$scratch/drop_in.heat" 2>&1 &
  other=$!
  sleep "$(either 0.3 2.5)"  # Until Numba has compiled its kernel.
  run_serve "$2" "$file"
  status=$?
  kill "$other" 2>/dev/null
  wait "$other"
  row "$1: serve beside numba_heat | p50, ms" "$([[ $status -eq 0 ]] && p50_ms "$file")" ms fact - "$(tail -n 1 "$scratch/drop_in.heat")"
  row "$1: serve beside numba_heat | p99, ms" "$([[ $status -eq 0 ]] && p99_ms "$file")" ms fact -
}
