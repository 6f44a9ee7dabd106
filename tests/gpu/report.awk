# SPDX-License-Identifier: Apache-2.0
# Judges the rows of run.sh and writes them as a table (stdout), as JSON (the file `json`) and as what matters most
# (the file `summary`): the failed rows, then the headline tables. A row whose name has the form "contender | column"
# is a cell of its part's headline table.
# Variables: json, summary, short (1: figures are not judged), modelled (1: and are marked so), seconds, bench (a JSON
# file, or empty).
# The exit status is 0 when every row that is judged meets its bound.
BEGIN {
  FS = "\t"
  failures_max = 24    # So that the summary stays below 11,000 characters, of which these are at most 4,000
  width_max = 160
  summary_max = 10900
}

# Character by character, because awks disagree about backslashes in what gsub puts in.
function escaped(text,   i, character, result) {
  for (i = 1; i <= length(text); ++i) {
    character = substr(text, i, 1)
    if (character == "\\" || character == "\"") character = "\\" character
    result = result (character ~ /[[:cntrl:]]/ ? " " : character)
  }
  return "\"" result "\""
}
function is_number(text) { return text ~ /^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?$/ }
function shown(value) { return is_number(value) ? sprintf("%.5g", value) : value }
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
function add_cell(part, what, text,   at, contender, column) {
  at = index(what, " | ")
  contender = substr(what, 1, at - 1)
  column = substr(what, at + 3)
  if (!((part) in columns)) headline_parts[++headline_count] = part
  if (!((part, column) in column_known)) {
    column_known[part, column] = 1
    column_name[part, ++columns[part]] = column
  }
  if (!((part, contender) in contender_known)) {
    contender_known[part, contender] = 1
    contender_name[part, ++contenders[part]] = contender
  }
  cell[part, contender, column] = text
}
# Columns get numbers, which a legend explains, because their names would not fit on a line.
function headline(part,   text, line, i, j) {
  text = "\n" part ":"
  for (i = 1; i <= columns[part]; ++i) text = text " (" i ") " column_name[part, i]
  text = text "\n"
  line = sprintf("  %-36s", "")
  for (i = 1; i <= columns[part]; ++i) line = line sprintf(" %9s", "(" i ")")
  text = text line "\n"
  for (j = 1; j <= contenders[part]; ++j) {
    line = sprintf("  %-36s", contender_name[part, j])
    for (i = 1; i <= columns[part]; ++i) line = line sprintf(" %9s", cell[part, contender_name[part, j], column_name[part, i]])
    text = text line "\n"
  }
  return text
}
modelled && $5 != "rule" { $2 = "modelled: " $2 }
NF >= 6 {
  verdict = judge($3, $5, $6)
  if (verdict == "FAILED" && ++failed <= failures_max)
    failures = failures substr(sprintf("FAILED %s: %s: %s %s, must be %s  %s", $1, $2, shown($3), $4, $6, $7), 1, width_max) "\n"
  if (verdict == "ok") ++held
  if ($1 != part) { part = $1; printf "\n%s\n", part }
  printf "  %-7s%-66s %12s %-14s %-8s %s\n", verdict, $2, shown($3), $4, $6, $7
  if (index($2, " | ")) add_cell(part, $2, shown($3) (verdict == "FAILED" ? "!" : ""))
  rows = rows (count++ ? ",\n" : "") "    {\"part\": " escaped($1) ", \"what\": " escaped($2) \
    ", \"value\": " (is_number($3) ? $3 : escaped($3)) ", \"unit\": " escaped($4) ", \"kind\": " escaped($5) \
    ", \"must\": " escaped($6) ", \"verdict\": " escaped(verdict) ", \"note\": " escaped($7) "}"
}
END {
  ok = count > 0 && failed == 0 && held > 0
  if (failed > failures_max) failures = failures "and " failed - failures_max " more\n"
  end = sprintf("\n%d held, %d failed; %d s\n%s\n", held, failed, seconds, ok ? "GPU OK" : "GPU FAILED")
  printf "%s", end
  text = failures
  for (i = 1; i <= headline_count; ++i) text = text headline(headline_parts[i])
  if (length(text) + length(end) > summary_max) text = substr(text, 1, summary_max - length(end) - 40) "\n[cut: the rest is in table.txt]\n"
  printf "%s%s", text, end > summary
  printf "{\"ok\": %s, \"short\": %s, \"seconds\": %d, \"held\": %d, \"failed\": %d,\n  \"rows\": [\n%s\n  ]", \
    ok ? "true" : "false", short ? "true" : "false", seconds, held, failed, rows > json
  if (bench != "") {
    printf ",\n  \"gpu_bench\": " > json
    while ((getline line < bench) > 0) print line > json
  }
  print "}" > json
  exit !ok
}
