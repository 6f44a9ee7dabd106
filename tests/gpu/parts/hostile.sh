# SPDX-License-Identifier: Apache-2.0
# Under --memory contain, does each malicious kernel end as it should, with a message that names it,
# the neighbour's memory unchanged and unread, and the worker alive?
part_hostile() {
  without_costs
  start_server priority --memory contain --kernel-limit low=200ms
  run_hostile
}
run_hostile() {  # options
  local before
  before=$(worker_pid)
  "$bin/gpu_hostile" --part "$part" --rows "$rows" "$@" || fail "$(tail -n 1 "$logs/$part.log")"
  row "the worker went on" "$([[ $before -gt 0 && $(worker_pid) == "$before" ]] && echo 1 || echo 0)" - rule "== 1"
}
