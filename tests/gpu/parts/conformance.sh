# SPDX-License-Identifier: Apache-2.0
# Does every rule of tests/conformance hold on the real driver, with completion detected by events
# and by written words, and with preemptible, fenced and contained forms of kernels?
part_conformance() {
  without_costs
  run_conformance "$(either '*SubmissionOrder*:*Copy*:*Variables*_events' '*')"
}
run_conformance() {  # filter
  at_end=conformance_rows
  : >"$logs/$part.gtest.log"
  run_rules "$1"
}
# A rule that hangs or crashes does not affect other rules. A rule that leaves the context dead ends
# the process with status 3. Later rules then run in another process.
run_rules() {  # filter
  local log=$logs/$part.gtest.log lost=() dead=0 begun test status
  test=$(conformance_test)
  for ((;;)); do
    begun=$(begun_rules "$log" | paste -sd:)
    "$test" --gtest_color=no --gtest_filter="$1${begun:+-$begun}" >>"$log" 2>&1 &
    await_rules $!
    status=$?
    if [[ $status -eq 3 ]]; then
      [[ $((++dead)) -lt 8 ]] || break
    elif [[ $status -gt 1 && $(begun_rules "$log" | wc -l) -gt $(ended_rules "$log") ]]; then
      lost+=("$(begun_rules "$log" | tail -n 1)")
      [[ ${#lost[@]} -lt 3 ]] || break
    else
      break
    fi
  done
  row "rules that hung or crashed" "${#lost[@]}" - rule "== 0" "${lost[*]}"
  row "rules that left a dead context" "$dead" - rule "== 0"
  row "exit status" "$status" - rule "== 0"
}
begun_rules() { sed -n 's/^\[ RUN      \] //p' "$1"; }
ended_rules() { grep -c -E '^\[ (      OK| SKIPPED| FAILED ) \].* \([0-9]* ms\)$' "$1"; }
# Ends a process that prints nothing for longer than any rule takes.
await_rules() {  # pid
  local size=-1 now since=$SECONDS
  while kill -0 "$1" 2>/dev/null; do
    now=$(stat -c %s "$logs/$part.gtest.log")
    [[ $now -ne $size ]] && size=$now since=$SECONDS
    [[ $((SECONDS - since)) -le $(either 15 10) ]] || kill -KILL "$1"
    sleep 0.1
  done
  wait "$1"
}
conformance_test() {
  local file
  for file in "$bin/cuda_conformance_test" "$bin/../tests/cuda_conformance_test"; do
    [[ -x $file ]] && { echo "$file"; return; }
  done
  echo "cuda_conformance_test does not exist" >&2
  echo false
}
# Reads the log, so that a run that was cut short counts as well.
conformance_rows() {
  local log=$logs/$part.gtest.log all passed failed skipped
  count() { grep -c "$1" "$log"; }
  all=$(sed -n 's/^\[==========\] Running \([0-9]*\) test.*/\1/p' "$log" | head -n 1)
  passed=$(count '^\[       OK \]') failed=$(count '^\[  FAILED  \].* ([0-9]* ms)$') skipped=$(count '^\[  SKIPPED \].* ([0-9]* ms)$')
  row "rules passed" "$passed" - rule ">= 1"
  row "rules failed" "$failed" - rule "== 0" "$(first_failure "$log")"
  row "rules beyond the device, skipped" "$skipped" - fact - "$(grep -c '^skipped: ' "$log") of them for want of a driver"
  row "rules without an answer" "$((${all:-1} - passed - failed - skipped))" - rule "== 0" \
    "of ${all:-0}; begun last: $(sed -n 's/^\[ RUN      \] //p' "$log" | tail -n 1)"
}
# Prints the earliest failure with its message, because later ones may be consequences.
first_failure() {  # log
  awk '/^\[ RUN      \] / { name = $4; text = ""; next }
    /^\[  FAILED  \] .* \([0-9]* ms\)$/ { print "first: " name ": " substr(text, 1, 400); exit }
    name != "" { text = text $0 " " }' "$1"
}
