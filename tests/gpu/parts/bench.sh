# SPDX-License-Identifier: Apache-2.0
# What does each operation cost through the client library compared with the driver's own calls?
part_bench() {
  if completions writes; then
    row "completions by writes: measured" 1 - rule "== 1"
  else
    row "completions by writes: measured" 0 - rule "== 1" "$why"
  fi
  stop_server
  completions events || fail "$why"
  [[ -s $scratch/completions.writes ]] && row "completions by writes / by events, round trip p50" \
    "$(calculate "$(p50_of "$scratch/completions.writes") / $(p50_of "$scratch/completions.events")")" - fact -
  local worker
  worker=$(worker_pid)
  [[ ${worker:-0} -gt 0 ]] || fail "the server has no worker"
  # Pageable copies of 1 GiB would take longer than all other operations together.
  "$bin/gpu_bench" --rows "$rows" --json "$scratch/bench.json" --worker "$worker" \
    --ms "$(either 5 60)" --limit "$(either 60 20)" --bytes-max "$(either 1048576 268435456)" ||
    fail "$(tail -n 1 "$logs/$part.log")"
  stop_server
  start_server priority --memory contain
  "$bin/gpu_bench" --only-low "a contained low client beside an idle high session" --rows "$rows" \
    --ms "$(either 5 60)" --limit "$(either 60 20)" || fail "$(tail -n 1 "$logs/$part.log")"
}
# Null launches through a server that detects the end of work by one of the two mechanisms.
completions() {  # writes or events
  try_server priority --cuda-completion "$1" || return 1
  "$bin/gpu_bench" --only-shared "completions by $1" --rows "$scratch/completions.$1" \
    --ms "$(either 5 200)" --limit 10 ||
    { why=$(tail -n 1 "$logs/$part.log"); rm -f "$scratch/completions.$1"; return 1; }
  cat "$scratch/completions.$1" >>"$rows"
}
p50_of() { awk -F'\t' '$2 ~ /round trip, p50/ { print $3 }' "$1"; }
