# SPDX-License-Identifier: Apache-2.0
# How soon does a launch stop on request, and does every stop end it, even in the middle of a group
# of its blocks?
part_stops() {
  without_costs  # With costs the fake driver runs a group of blocks at once, so no stop finds one half done.
  "$bin/gpu_claims" --part stops --rows "$rows" --ms "$(either 10 400)" --blocks "$(either 8192 1048576)" \
    --seconds "$limit" || fail "$(tail -n 1 "$logs/$part.log")"
}
