#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs inside a Debian in which the packages have just been installed. Usage: inside.sh booted|plain
set -u
cd /opt/test
failed=0

see() {  # what is so, command ...
  local what=$1 told
  shift
  if told=$("$@" 2>&1); then
    echo "  ok: $what"
  else
    echo "  NOT: $what: $* said: $told"
    failed=1
  fi
}
eventually() {  # command ...
  local try
  for ((try = 0; try < 200; try++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  "$@"
}
has() { grep -qF -- "$1" "$2"; }                          # text file
is() { [[ $1 == "$2" ]] || { echo "$1 is not $2"; false; }; }
as_nobody() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
is_there() { gpusharedctl ps | grep -qF "$1"; }
no_server() { ! gpusharedctl status; }
no_process() { ! grep -lsx gpushared /proc/[0-9]*/comm; }
train() { as_nobody ./train --text README.md --steps 0 --seconds "$1"; }

see "the user is there" id gpushared
see "the configuration is for the group" is "$(stat -c '%U:%G %a' /etc/gpushared/gpushared.toml)" "root:gpushared 640"
see "others cannot look into its directory" is "$(stat -c '%U:%G %a' /etc/gpushared)" "root:gpushared 750"
see "MPS's name is not on everybody's PATH" is "$(command -v nvidia-cuda-mps-control)" ""

see "the plugin for Slurm is there" test -e /usr/lib/gpushared/slurm/gpushared_spank.so
see "the one for Kubernetes starts" gpushared-kubernetes --version
see "the driver for Kubernetes starts" gpushared-dra --version
see "and its manifests are there" test -e /usr/share/gpushared/kubernetes/kustomization.yaml

if [[ $1 == plain ]]; then
  see "no server was started" no_server
  mkdir -p /run/gpushared /var/cache/gpushared
  chown gpushared: /run/gpushared /var/cache/gpushared
  setpriv --reuid=gpushared --regid=gpushared --clear-groups gpushared --config /etc/gpushared/gpushared.toml \
    --memory 256MiB --code-cache /var/cache/gpushared >/tmp/log 2>&1 &
fi

see "a server answers" eventually gpusharedctl status
see "another user's kernel runs" as_nobody ./vector_add_cpp
see "MPS's command finds the device's server" is "$(/usr/lib/gpushared/mps/nvidia-cuda-mps-control get_server_list)" \
  "$(gpusharedctl devices --json | sed -n 's/.*"worker_pid": \([0-9]*\).*/\1/p')"
see "the drop-in is found" has libcuda.so.1 <(gpusharedctl run --explain -- true 2>&1)

if [[ $1 == booted ]]; then
  see "it started with the machine" is "$(systemctl is-active gpushared) $(systemctl is-enabled gpushared)" "active enabled"
  see "its socket came first" is "$(systemctl is-active gpushared.socket) $(systemctl is-enabled gpushared.socket)" "active enabled"
  systemctl kill --signal=KILL gpushared
  see "nobody is rejected while it starts again" gpusharedctl status
  main=$(systemctl show -P MainPID gpushared)
  echo '# The operator was here.' >>/etc/gpushared/gpushared.toml
  chmod 0644 /etc/gpushared/gpushared.toml
  train 8 >/tmp/upgrade 2>&1 &
  trainer=$!
  see "train is there" eventually is_there train
  see "the later version installs" dpkg -i later/*.deb
  see "what the operator wrote stays" has "The operator was here." /etc/gpushared/gpushared.toml
  see "and so does its mode" is "$(stat -c %a /etc/gpushared/gpushared.toml)" 644
  see "the server goes on with the new program" has '"upgrades": 1' <(gpusharedctl status --json)
  see "as the same process" is "$(systemctl show -P MainPID gpushared)" "$main"
  wait "$trainer"
  see "train ended well over the upgrade" is "$?" 0
  see "new clients come after it" as_nobody ./vector_add_cpp
fi

train 600 >/tmp/removal 2>&1 &
trainer=$!
see "train is there" eventually is_there train
if [[ $1 == plain ]]; then
  # A server that was started by hand must also be ended by hand.
  gpushared-mps-control quit -t 0
fi
see "removing works" dpkg -r gpushared
wait "$trainer"
see "train was told why" has "the operator ended it" /tmp/removal
see "no process is left" eventually no_process
see "the configuration stays" test -e /etc/gpushared/gpushared.toml
see "purging works" dpkg -P gpushared
see "the configuration is gone" test ! -e /etc/gpushared
see "the compiled kernels are gone" test ! -e /var/cache/gpushared
see "the others can be removed" dpkg -P gpushared-slurm gpushared-kubernetes gpushared-tools libgpushared-dev libgpushared0.1
[[ $failed -eq 0 && -d /out ]] && touch /out/passed
exit "$failed"
