#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An operator's actions on the service, which jobs must not notice. Runs as a unit of the
# container's systemd.
exec >/results/log 2>&1
set -u
failures=0 reached_end=""
started=$SECONDS

ok() { echo "ok: $1 ($((SECONDS - started)) s)"; }
bad() { echo "FAILED: $1"; failures=$((failures + 1)); }
must() { local what=$1; shift; if "$@" >/tmp/said 2>&1; then ok "$what"; else bad "$what: $(tail -n 3 /tmp/said | tr '\n' ' ')"; fi; }
must_not() { local what=$1; shift; if "$@" >/tmp/said 2>&1; then bad "$what"; else ok "$what"; fi; }
property() { systemctl show -P "$1" gpushared.service; }
eventually() { local i; for i in $(seq 200); do "$@" >/dev/null 2>&1 && return 0; sleep .1; done; return 1; }
serves() { [[ $(property ActiveState) == active ]] && gpusharedctl status; }
jobs_now() { gpusharedctl ps --json | grep -E '"(client|pid|worker_pid|generation|endpoint|class|weight|quota_bytes)":'; }
same_jobs() { [[ "$(jobs_now)" == "$before" ]]; }

finish() {
  journalctl --no-pager -o short-monotonic -u gpushared.service >/results/journal 2>&1
  [[ $failures -eq 0 && -n $reached_end ]] && echo "SERVICE OK" || echo "SERVICE FAILED: $failures"
  systemctl poweroff --force
  exit
}
trap finish EXIT

id gpushared >/dev/null 2>&1 || useradd --system --no-create-home gpushared
cat >>/etc/gpushared/gpushared.toml <<'TOML'

[[access]]
user = "root"
highest_class = "high"

[[endpoint]]
name = "batch"
class = "low"
TOML
cp /service/gpushared.service /etc/systemd/system/
# The unit is as packaged, except for a device that every machine has, and a short watchdog time.
mkdir -p /etc/systemd/system/gpushared.service.d
cat >/etc/systemd/system/gpushared.service.d/test.conf <<'UNIT'
[Service]
ExecStart=
ExecStart=/usr/bin/gpushared --config /etc/gpushared/gpushared.toml --device cpu:0 --memory 1GiB --staging-memory 256MiB
WatchdogSec=8
UNIT
systemctl daemon-reload
printf '%s\n' '#!/bin/sh' 'echo "$(id -u) $*" >/run/modprobe' >/usr/bin/nvidia-modprobe
chmod 755 /usr/bin/nvidia-modprobe

must "systemctl start returns when clients can connect" systemctl start gpushared.service
must "and they can" gpusharedctl status
# Later starts imitate machines without a GPU, which lack the program.
[[ $(cat /run/modprobe) == "0 -u -c=0" ]] && ok "device files are made as root" || bad "nvidia-modprobe: $(cat /run/modprobe)"
rm -f /usr/bin/nvidia-modprobe
[[ $(property StatusText) == serving ]] && ok "systemctl status says what it does" || bad "status: $(property StatusText)"

# The tests of the compiler's sandbox, in a unit with all restrictions of the service's unit.
exposure=$(systemd-analyze security gpushared.service --no-pager | tail -n 1)
score=$(grep -oE '[0-9]+\.[0-9]' <<<"$exposure")
[[ $(sort -V <<<"$score"$'\n'3.0 | head -n 1) == "$score" && -n $score ]] && ok "systemd-analyze security: $score" || bad "$exposure"
grep -vE '^(Type|NotifyAccess|WatchdogSec|Exec.*|Restart.*|Runtime.*|Cache.*|ProtectHome)=' /service/gpushared.service \
  >/etc/systemd/system/sandbox.service
mkdir -p /etc/systemd/system/sandbox.service.d
# compile_test contains a fixed path of the hostile compiler.
cat >/etc/systemd/system/sandbox.service.d/test.conf <<UNIT
[Service]
Type=oneshot
ProtectHome=tmpfs
BindReadOnlyPaths=/service/gpushared_hostile_compiler:$HOSTILE_COMPILER
ExecStart=/service/compile_test --gtest_filter=Sandbox.*
UNIT
systemctl daemon-reload
must "the compiler's sandbox works in there" systemctl start sandbox.service
journalctl -u sandbox.service -o cat >/results/sandbox
must "at least ten of its tests ran" grep -E '^\[=+\] 1[0-9] tests .* ran' /results/sandbox
must_not "with nothing left out" grep -q SKIPPED /results/sandbox

# serve and train run for longer than everything that follows, and check their results at the end.
seconds=$((60 + 3 * GPUSHARED_BROKER_KILLS))
must "a model is made" train --text /service/README.md --steps 20 --model /tmp/model
serve --model /tmp/model --requests 0 --seconds "$seconds" --name main >/results/serve 2>&1 &
main=$!
GPUSHARED_SOCKET=/run/gpushared/batch/gpushared.sock \
  train --text /service/README.md --seconds "$seconds" --steps 0 --name batch >/results/train 2>&1 &
batch=$!
two() { [[ $(gpusharedctl ps --json | grep -c '"client":') -eq 2 ]]; }
must "two jobs run" eventually two
before=$(jobs_now)

must "reload" systemctl reload gpushared.service
echo 'policy = "chaos"' >/tmp/wrong
cp /etc/gpushared/gpushared.toml /tmp/right
cat /tmp/wrong /tmp/right >/etc/gpushared/gpushared.toml
must_not "a wrong file is rejected" systemctl reload gpushared.service
must_not "an upgrade that could not read it, too" gpusharedctl upgrade
cp /tmp/right /etc/gpushared/gpushared.toml
must "and all is as before" same_jobs

killed=0
for i in $(seq "$GPUSHARED_BROKER_KILLS"); do
  sleep ".$((RANDOM % 9))"
  kill -9 "$(property MainPID)" && killed=$((killed + 1))
  eventually serves || { bad "no server after kill $i"; break; }
  same_jobs || { bad "after kill $i: $(jobs_now | tr -d '\n')"; break; }
done
ok "$killed kills of the broker; NRestarts=$(property NRestarts)"

restarts=$(property NRestarts)
kill -STOP "$(property MainPID)"
another() { [[ $(property NRestarts) -gt $restarts ]] && serves; }
must "the watchdog replaces a broker that stands still" eventually another
must "and all is as before" same_jobs

pid=$(property MainPID) restarts=$(property NRestarts)
cp /usr/bin/gpushared /usr/bin/gpushared.new && mv /usr/bin/gpushared.new /usr/bin/gpushared
must "upgrade" gpusharedctl upgrade
[[ $(property MainPID) == "$pid" && $(property NRestarts) == "$restarts" ]] && ok "in the same process" || bad "other process"
must "and all is as before" same_jobs
sleep 10  # Longer than the watchdog waits.
[[ $(property NRestarts) == "$restarts" ]] && ok "the new program feeds the watchdog" || bad "watchdog after upgrade"

warning=$(journalctl -u gpushared.service -o json --output-fields=PRIORITY,MESSAGE | grep 'the broker has exited' | head -n 1)
[[ $warning == *'"PRIORITY":"4"'* ]] && ok "lines have the journal's priorities" || bad "priority: $warning"

kill -0 "$main" && kill -0 "$batch" && ok "both jobs still run" || bad "a job has ended: $(tail -n 1 /results/serve /results/train)"
must "serve ends, and its answers are right" wait "$main"
must "train ends, and its results are right" wait "$batch"
none() { [[ $(gpusharedctl ps --json | grep -c '"client":') -eq 0 ]]; }
must "they leave" eventually none
must "systemctl stop" systemctl stop gpushared.service
[[ $(pgrep -c -u gpushared) -eq 0 ]] && ok "nothing is left" || bad "left: $(pgrep -a -u gpushared)"

cp /service/gpushared.socket /etc/systemd/system/
systemctl daemon-reload
must "the socket's unit starts" systemctl start gpushared.socket
must "the first who asks starts the server" gpusharedctl status
[[ $(property ActiveState) == active ]] && ok "by socket activation" || bad "not active"
kill -9 "$(property MainPID)"
must "nobody who asks meanwhile is rejected" gpusharedctl status
must "it stops" systemctl stop gpushared.socket gpushared.service
reached_end=yes
