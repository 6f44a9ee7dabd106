# SPDX-License-Identifier: Apache-2.0
# Does every mechanism work at all? A few seconds each, so that even a run that is cut short early
# has an answer.
source "$here/parts/conformance.sh"
source "$here/parts/hostile.sh"
readonly smoke_rules=(EveryBlockRunsExactlyOnce CopyRoundTripKeepsEveryByteAtOddSizesAndOffsets FreshMemoryReadsAsZero
  NodesOfAGraphRunOneAfterTheOther VariablesStartInitialisedAndKeepTheirValue WorkOfAStreamRunsInSubmissionOrder
  StoppedLaunchHasRunExactlyAPrefixAndResumesToTheSameResult PrintedTextArrivesWithItsWork
  KernelsReachMappedChunksAndCopiesCrossTheirBorders FencedKernelReachesItsOwnMemoryInsteadOfForeignMemory)

part_smoke() {
  local rules
  start_server priority
  [[ -e $scratch/no_gpu ]] && fail "no GPU is served"
  row "a server is ready" 1 - rule "== 1" "${CUDA_VISIBLE_DEVICES:-}"
  timeout --foreground 10 "$bin/vector_add_cpp"
  row "vector add in C++" $((! $?)) - rule "== 1"
  smoke_numba
  stop_server
  without_costs
  (timeout --foreground 8 "$bin/gpu_claims" --part stops --rows /dev/stdout --ms 10 --blocks 8192 --seconds 6) |
    sed "s/^claims\t/smoke\t/" >>"$rows"
  start_server priority --memory contain --kernel-limit low=200ms
  run_hostile --without-endless
  stop_server
  rules=$(printf '*.%s/*:' "${smoke_rules[@]}")
  run_conformance "${rules%:}"
}
smoke_numba() {
  local program=$root/tests/drop_in/programs/numba_add.py
  [[ -n $python && -r $program && -x $bin/gpusharedctl ]] && "$python" -c 'import numba.cuda' 2>/dev/null ||
    { row "a Numba program" skipped - fact - "Numba is not installed for ${python:-any Python}"; return 0; }
  timeout --foreground 15 "$bin/gpusharedctl" run --mode submit -- "$python" "$program"
  row "a Numba program" $((! $?)) - rule "== 1"
}
