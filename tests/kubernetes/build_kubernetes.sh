#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Kubernetes' own programs into a cache. Usage: build_kubernetes.sh CACHE
#
# Debian has a binary package of kubectl only. The source package `kubernetes` contains the other
# programs with all dependencies, so Debian's Go compiles them without further downloads. Go,
# containerd, runc, etcd and CNI's plugins are unpacked into the cache, too. They are not installed,
# because some would then run as services of this machine. CACHE/bin contains the built programs.
# The first build takes 6 to 9 minutes on two cores, and 3 GB of disk space.
set -euo pipefail
mkdir -p "$1"
cache=$(realpath "$1")
root=$cache/root
unpacked=(kubernetes-client containerd runc etcd-server containernetworking-plugins golang-1.19-go golang-1.19-src)
programs=(kubelet kube-apiserver kube-scheduler kube-controller-manager)

# Debian's lists with sources, separate from those of the machine.
apt=(-o "Dir::Etc::SourceList=$cache/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$cache/lists"
  -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o APT::Sandbox::User=root)

fetch() {
  local name suite
  for name in bookworm bookworm-security; do
    suite=http://deb.debian.org/debian
    [[ $name == bookworm ]] || suite+=-security
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $suite $name main"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $suite $name main"
  done >"$cache/sources.list"
  mkdir -p "$cache/lists/partial" "$cache/archives" "$root"
  cd "$cache/archives"
  apt-get "${apt[@]}" -qq update
  apt-get "${apt[@]}" -qq download "${unpacked[@]}"
  apt-get "${apt[@]}" -qq source --download-only kubernetes
  local deb
  for deb in *.deb; do dpkg -x "$deb" "$root"; done
  rm -rf "$cache/source"
  dpkg-source --no-check -x kubernetes_*.dsc "$cache/source" >/dev/null
  rm -rf "$cache/archives" "$cache/lists"
}

# Generates descriptions of the interface, as the release's own makefiles do before they compile.
generate_openapi() {
  local k8s=k8s.io/kubernetes vendor directories
  go build -o "$cache/bin/openapi-gen" $k8s/vendor/k8s.io/kube-openapi/cmd/openapi-gen
  vendor=$k8s/vendor
  directories=$({
    (cd staging/src && grep -rl --include='*.go' '^// +k8s:openapi-gen=' k8s.io) | xargs -n1 dirname |
      grep -vE 'sample|/test' | sed "s,^,$vendor/,"
    grep -rl --include='*.go' '^// +k8s:openapi-gen=' pkg cmd | xargs -r -n1 dirname | sed "s,^,$k8s/,"
  } | sort -u | paste -sd,)
  "$cache/bin/openapi-gen" -i "$directories" -p $k8s/pkg/generated/openapi -O zz_generated.openapi \
    -h hack/boilerplate/boilerplate.generatego.txt -r "$cache/openapi.violations"
}

if [[ ! -e $cache/.fetched ]]; then
  echo "kubernetes: fetching Debian's source package, Go and what nodes need" >&2
  fetch
  touch "$cache/.fetched"
fi
mkdir -p "$cache/bin" "$cache/go/src/k8s.io"
ln -sfn "$cache/source" "$cache/go/src/k8s.io/kubernetes"
export GOROOT=$root/usr/lib/go-1.19 GOPATH=$cache/go GOCACHE=$cache/go/cache HOME=$cache
export PATH=$GOROOT/bin:$PATH GO111MODULE=off CGO_ENABLED=0 GOFLAGS=-p=${GPUSHARED_GO_JOBS:-$(nproc)}
cd "$cache/go/src/k8s.io/kubernetes"
# Sets the version information that a build from git would have. The API server reports that of client-go, and helm
# installs a chart only if it is one that the chart accepts.
stamp=""
for package in component-base/version client-go/pkg/version; do
  version=k8s.io/kubernetes/vendor/k8s.io/$package
  stamp+=" -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20"
done
for program in "${programs[@]}"; do
  [[ -x $cache/bin/$program ]] && continue
  [[ $program == kubelet || -e $cache/.openapi ]] || { generate_openapi; touch "$cache/.openapi"; }
  SECONDS=0
  go build -ldflags "-s -w $stamp" -o "$cache/bin/$program.part" "k8s.io/kubernetes/cmd/$program"
  mv "$cache/bin/$program.part" "$cache/bin/$program"
  echo "kubernetes: built $program in $SECONDS s" >&2
done
