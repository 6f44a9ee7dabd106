# SPDX-License-Identifier: Apache-2.0
# Sourced by the recipes: a server of their own, which ends with them. On a host that runs gpushared
# as a service, the configuration belongs into /etc/gpushared/gpushared.toml instead.
#
# GPUSHARED_BIN  directory of the programs (default: build/demo/bin, as samples/demo.sh builds them)
# SECONDS_EACH   duration of each part, in seconds (default 10)
bin=$(realpath -e "${GPUSHARED_BIN:-$(dirname "${BASH_SOURCE[0]}")/../../build/demo/bin}")
text=$(realpath -e "$(dirname "${BASH_SOURCE[0]}")/../../LICENSE")
seconds=${SECONDS_EACH:-10}
work=$(mktemp -d)
chmod 755 "$work"
export GPUSHARED_SOCKET=$work/gpushared.sock
started=()

stop_all() {
  local i
  for ((i = ${#started[@]} - 1; i >= 0; --i)); do
    kill "${started[i]}" 2>/dev/null || true
    wait "${started[i]}" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap stop_all EXIT

fail() {
  echo "$(basename "$0"): $1" >&2
  exit 1
}

# Runs the server with the configuration on stdin.
start_server() {
  cat >"$work/gpushared.toml"
  "$bin/gpushared" --config "$work/gpushared.toml" --socket "$GPUSHARED_SOCKET" 2>"$work/server.log" &
  started+=($!)
  for _ in $(seq 100); do
    "$bin/gpusharedctl" status >/dev/null 2>&1 && return
    kill -0 "${started[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  fail "the server did not start: $(tail -n 3 "$work/server.log")"
}

# Trains in the background under this name, in place of a real job. Further arguments go before the
# program, such as setpriv with another user.
start_job() {  # name socket [command ...]
  "${@:3}" env GPUSHARED_SOCKET="$2" "$bin/train" --text "$text" --name "$1" --class "${CLASS:-low}" --steps 0 \
    --seconds 3600 --batch 64 >"$work/$1.log" 2>&1 &
  started+=($!)
}

device_times() {  # Prints name and device time in seconds of each client.
  "$bin/gpusharedctl" ps --json |
    python3 -c 'import json, sys; [print(each["name"], each["device_time_s"]) for each in json.load(sys.stdin)["clients"]]'
}

# Prints the share of device time that each job of this group had for some seconds: those whose names
# begin with `prefix`.
share_of() {  # prefix
  device_times >"$work/before"
  local begun=${EPOCHREALTIME/[^0-9]/}
  sleep "$seconds"
  device_times >"$work/after"
  LC_ALL=C awk -v prefix="$1" -v us=$((${EPOCHREALTIME/[^0-9]/} - begun)) '
    index($1, prefix) == 1 { sum += FILENAME ~ /after$/ ? $2 : -$2 }
    END { printf "%.1f\n", 100e6 * sum / us }' "$work/before" "$work/after"
}

await_job() {  # name
  for _ in $(seq 300); do
    device_times | grep -q "^$1 [0-9.]*[1-9]" && return
    sleep 0.1
  done
  fail "job $1 did not start: $(cat "$work/$1.log")"
}

# Fails unless the share is within the bounds, in percent.
expect() {  # what share least most
  echo "$1: $2 % of the device's time (expected: $3 to $4 %)"
  LC_ALL=C awk -v share="$2" -v least="$3" -v most="$4" 'BEGIN { exit !(share >= least && share <= most) }' || fail "$1 had $2 %"
}
