# SPDX-License-Identifier: Apache-2.0
# Judges the rows of run.sh and writes them as a table (stdout) and as JSON (the file `json`).
# Variables: json, short (1: figures are not judged), modelled (1: and are marked so), seconds, bench (a JSON file, or
# empty).
# The exit status is 0 when every row that is judged holds.
BEGIN { FS = "\t" }

# Character by character: awks disagree about backslashes in what gsub puts in.
function escaped(text,   i, character, result) {
  for (i = 1; i <= length(text); ++i) {
    character = substr(text, i, 1)
    if (character == "\\" || character == "\"") character = "\\" character
    result = result (character ~ /[[:cntrl:]]/ ? " " : character)
  }
  return "\"" result "\""
}
function is_number(text) { return text ~ /^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?$/ }
function judge(value, kind, must,   parts) {
  if (value == "") return "FAILED"
  if (must == "-") return "-"
  if (kind == "figure" && short) return "-"
  if (split(must, parts, " ") != 2 || !is_number(value)) return "FAILED"
  if (parts[1] == ">=") return value + 0 >= parts[2] + 0 ? "ok" : "FAILED"
  if (parts[1] == "<=") return value + 0 <= parts[2] + 0 ? "ok" : "FAILED"
  if (parts[1] == "==") return value + 0 == parts[2] + 0 ? "ok" : "FAILED"
  return "FAILED"
}
modelled && $5 != "rule" { $2 = "modelled: " $2 }
{
  verdict = judge($3, $5, $6)
  if (verdict == "FAILED") ++failed
  if (verdict == "ok") ++held
  if ($1 != part) { part = $1; printf "\n%s\n", part }
  value = is_number($3) ? sprintf("%.5g", $3) : $3
  printf "  %-7s%-66s %12s %-14s %-8s %s\n", verdict, $2, value, $4, $6, $7
  rows = rows (NR > 1 ? ",\n" : "") "    {\"part\": " escaped($1) ", \"what\": " escaped($2) \
    ", \"value\": " (is_number($3) ? $3 : escaped($3)) ", \"unit\": " escaped($4) ", \"kind\": " escaped($5) \
    ", \"must\": " escaped($6) ", \"verdict\": " escaped(verdict) ", \"note\": " escaped($7) "}"
}
END {
  ok = NR > 0 && failed == 0 && held > 0
  printf "\n%d held, %d failed; %d s\n%s\n", held, failed, seconds, ok ? "GPU OK" : "GPU FAILED"
  printf "{\"ok\": %s, \"short\": %s, \"seconds\": %d, \"held\": %d, \"failed\": %d,\n  \"rows\": [\n%s\n  ]", \
    ok ? "true" : "false", short ? "true" : "false", seconds, held, failed, rows > json
  if (bench != "") {
    printf ",\n  \"gpu_bench\": " > json
    while ((getline line < bench) > 0) print line > json
  }
  print "}" > json
  exit !ok
}
