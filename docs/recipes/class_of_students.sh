#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A class of students on one device: everyone has the same share, however many programs they start,
# and at most a quarter of the memory; the teacher's programs go first. Needs root, because it acts
# as three users.
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "class_of_students.sh: skipped: needs root to act as three users" >&2; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

start_server <<END
policy = "priority"
share_by = "uid"

[[access]]
uid = 60001  # The teacher; a group in practice: group = "staff"
highest_class = "high"

[[access]]
everyone = true
highest_class = "low"
memory = "25%"
client_memory = "5%"
clients_max = 4
END

as() { echo setpriv --reuid "$1" --regid "$1" --clear-groups; }

start_job anna-1 "$GPUSHARED_SOCKET" $(as 60002)
for i in 1 2 3; do start_job "ben-$i" "$GPUSHARED_SOCKET" $(as 60003); done
for job in anna-1 ben-1 ben-2 ben-3; do await_job "$job"; done
"$bin/gpusharedctl" ps
expect "anna, with one program" "$(share_of anna-)" 40 56
expect "ben, with three" "$(share_of ben-)" 40 56
CLASS=high start_job teacher "$GPUSHARED_SOCKET" $(as 60001)
await_job teacher
expect "the teacher, beside four programs of students" "$(share_of teacher)" 60 101
