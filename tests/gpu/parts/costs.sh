# SPDX-License-Identifier: Apache-2.0
# What do the preemptible, fenced and contained forms of kernels cost, and do the corpus' programs
# compute the same results in them?
part_costs() {
  "$bin/gpu_claims" --part costs --rows "$rows" --ms "$(either 10 400)" --programs "$(either 6 1000)" \
    --blocks "$(either 8192 1048576)" --seconds "$((limit > 16 ? limit - 8 : 8))" || fail "$(tail -n 1 "$logs/$part.log")"
}
