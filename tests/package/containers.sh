#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program in a podman container of an unprivileged user runs its kernel through an endpoint.
# Usage: tests/package/containers.sh BIN
#
# BIN contains gpushared, gpusharedctl, vector_add_cpp and drop_in_vector_add, and the drop-in is in
# ../lib/drop_in. Root creates the user, who exists only inside the namespaces; without root the
# test is skipped. Everything is in namespaces that end with this script.
set -euo pipefail
bin=$(realpath "$1")
if [[ ${2:-} != --in-namespaces ]]; then
  if [[ $(id -u) -ne 0 ]]; then
    echo "containers: SKIPPED: needs root, for a user of its own"
    exit 0
  fi
  exec unshare --mount --pid --fork --kill-child --mount-proc "${BASH_SOURCE[0]}" "$bin" --in-namespaces
fi

work=/run/gpushared_containers_test
mkdir -p "$work"
mount -t tmpfs -o mode=0755,size=512M containers_test "$work"
trap 'umount -l "$work"; rmdir "$work"' EXIT
mount --make-rshared "$work"
# crun rejects a machine that has both versions of control groups.
umount /sys/fs/cgroup/unified 2>/dev/null || true

# The user and the containers' devices exist only in here.
uid=64123
mkdir -p "$work"/{etc,overlay}
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$work/etc,workdir=$work/overlay" /etc
echo "container_user:x:$uid:$uid::$work/home:/bin/sh" >>/etc/passwd
echo "container_user:x:$uid:" >>/etc/group
echo "container_user:200000:65536" | tee -a /etc/subuid >>/etc/subgid
mkdir -p /etc/cdi "$work"/{home,runtime,run,image/run/gpushared,image/tmp}
chown "$uid:$uid" "$work"/{home,runtime}
chmod 0700 "$work/runtime"

# An image of a client and of an unmodified program, with the launcher of the latter, and the
# libraries that they need.
drop_in=$(realpath "$bin/../lib/drop_in")
mkdir -p "$work/image/lib/drop_in"
cp -r "$drop_in/." "$work/image/lib/drop_in"
for program in vector_add_cpp gpusharedctl drop_in_vector_add; do
  install -D -t "$work/image/bin" "$bin/$program"
  ldd "$bin/$program" | grep -oE '/[^ ]+' | grep -v "^$drop_in" | while read -r library; do
    install -D "$(realpath "$library")" "$work/image$library"
  done
done
tar -C "$work/image" -cf "$work/image.tar" .

printf '[[endpoint]]\nname = "batch"\nclass = "low"\n[[endpoint]]\nname = "team"\nclass = "high"\n' >"$work/gpushared.toml"
"$bin/gpushared" --config "$work/gpushared.toml" --socket "$work/run/gpushared.sock" --device cpu:0 --memory 256MiB \
  >"$work/log" 2>&1 &
ctl=("$bin/gpusharedctl" --socket "$work/run/gpushared.sock")
for ((i = 0; i < 100; i++)); do
  "${ctl[@]}" status >/dev/null 2>&1 && break
  sleep 0.1
done
"${ctl[@]}" cdi --output /etc/cdi/gpushared.json

as_user() { setpriv --reuid=$uid --regid=$uid --clear-groups env -C "$work" HOME="$work/home" XDG_RUNTIME_DIR="$work/runtime" "$@"; }
podman=(podman --cgroup-manager=cgroupfs --storage-driver=vfs --runtime=crun)
as_user "${podman[@]}" import -q "$work/image.tar" vector-add >/dev/null
contained=("${podman[@]}" run --rm --network none --read-only --cap-drop all --security-opt no-new-privileges
  --cgroups=disabled)

failed=0
expect() {  # what, code, text, command ...
  local what=$1 code=$2 text=$3 told got=0
  shift 3
  told=$(as_user "$@" 2>&1) || got=$?
  if [[ $got -eq $code && $told == *"$text"* ]]; then
    echo "  ok: $what"
  else
    echo "  NOT: $what: code $got in place of $code: $told"
    failed=1
  fi
}
expect "a kernel runs, by the endpoint's name" 0 "sums are right" \
  "${contained[@]}" --device gpushared.io/endpoint=batch vector-add /bin/vector_add_cpp
expect "a kernel runs, by the endpoint's directory" 0 "sums are right" \
  "${contained[@]}" --volume "$work/run/batch:/run/gpushared:ro" vector-add /bin/vector_add_cpp
expect "an unmodified program runs" 0 "added 100000 numbers" \
  "${contained[@]}" --device gpushared.io/endpoint=batch vector-add /bin/gpusharedctl run -- /bin/drop_in_vector_add
expect "the endpoint's class is the highest" 1 "class rejected: asked for high, the access rule for endpoint 'batch' allows at most low" \
  "${contained[@]}" --env GPUSHARED_CLASS=high --device gpushared.io/endpoint=batch vector-add /bin/vector_add_cpp
expect "an unknown endpoint is rejected" 126 "unresolvable CDI devices gpushared.io/endpoint=turbo" \
  "${contained[@]}" --device gpushared.io/endpoint=turbo vector-add /bin/vector_add_cpp
expect "without an endpoint there is no server" 1 "" "${contained[@]}" vector-add /bin/vector_add_cpp
admitted=$("${ctl[@]}" endpoints --columns endpoint,admitted | awk '{printf "%s=%s ", $1, $2}')
if [[ $admitted == *"main=0 batch=4 team=0"* ]]; then
  echo "  ok: nobody came by another way"
else
  echo "  NOT: nobody came by another way: $admitted"
  failed=1
fi
[[ $failed -eq 0 ]] && echo "containers: all passed" || { echo "containers: FAILED"; tail -n 20 "$work/log"; }
exit "$failed"
