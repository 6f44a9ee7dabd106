#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# CI runners that share a GPU: each job leases an endpoint with a quarter of the device's time and
# memory, and runs on the socket of that endpoint, also within a container that mounts its directory.
# The lease ends with the program that holds it, so a job that is aborted leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

start_server <<END
policy = "fair"
END

# What a runner does before a job. The name of the endpoint is that of the job.
lease() {  # name
  "$bin/gpusharedctl" endpoint lease --who "uid:$(id -u)" --name "$1" --max-share 25% --memory 25% >"$work/$1.lease" &
  started+=($!)
  for _ in $(seq 100); do
    [[ ! -s $work/$1.lease ]] || return 0
    sleep 0.1
  done
  fail "no lease for $1"
}

for job in job-1 job-2 job-3; do
  lease "$job"
  CLASS=normal start_job "$job" "$(<"$work/$job.lease")"
done
for job in job-1 job-2 job-3; do await_job "$job"; done
"$bin/gpusharedctl" ps
expect "job-1 beside two others" "$(share_of job-1)" 22 28
expect "all three together" "$(share_of job-)" 60 78

# The jobs are aborted.
for pid in "${started[@]:1}"; do kill -KILL "$pid"; done
for _ in $(seq 300); do
  "$bin/gpusharedctl" endpoints --json | grep -q '"job-' || { echo "no endpoint is left"; exit; }
  sleep 0.1
done
fail "an endpoint is left: $("$bin/gpusharedctl" endpoints)"
