#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A nightly batch job under a daytime service. Clients of the endpoint `batch` are of class low, so
# that they only use what the service leaves. What has not finished in the morning keeps running, but
# with 10 % of the device's time at most, even while the service is idle. In practice cron or a timer
# of systemd calls set_limit.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

start_server <<END
policy = "priority"

[[endpoint]]
name = "batch"
class = "low"
END

set_limit() {  # share: of each client of the endpoint
  local client
  for client in $("$bin/gpusharedctl" ps --json |
    python3 -c 'import json, sys; [print(each["client"]) for each in json.load(sys.stdin)["clients"] if each["endpoint"] == "batch"]'); do
    "$bin/gpusharedctl" client set "$client" --max-share "$1"
  done
}

start_job batch "$work/batch/gpushared.sock"
await_job batch
expect "batch at night" "$(share_of batch)" 60 101
set_limit 10%
expect "batch by day" "$(share_of batch)" 7 13
set_limit 100%
expect "batch in the next night" "$(share_of batch)" 60 101
