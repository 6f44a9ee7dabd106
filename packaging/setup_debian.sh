#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what a Debian 12 machine needs to build and test gpushared. Usage: packaging/setup_debian.sh [part ...]
#
# Parts (default: tests):
#   product  compiler, build tools and libraries of the server and the samples
#   tests    product, gtest, and nvcc: from PyPI unless a sufficiently new CUDA toolkit is installed
#   fuzz     tests, and clang with libFuzzer
#   lint     tests, and clang with its checks of code and format
#   containers  tests, and podman for unprivileged users
#   web      tests, and a browser with its driver
#   slurm    tests, Slurm's daemons with their database, and headers for its plugins; none of these is started
#   kubernetes  tests, gRPC and libcurl for device plugin and DRA driver, and the tools to build and run Kubernetes itself
#   package  tests, and the tools to build Debian packages and to test them in a separate Debian
#
# Requires root or sudo and the network only if something is missing.
# Sourced by tests/run.sh and samples/demo.sh; the part `tests` sets CUDA_HOME.
set -euo pipefail

gpushared_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

gpushared_packages=(g++ cmake ninja-build python3 libboost-dev libspdlog-dev libfmt-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libzstd-dev liblz4-dev libncurses-dev)
# Includes YAML for gpusharedctl mig, which the demo does not build.
gpushared_test_packages=(libgtest-dev libgmock-dev pkg-config tmux libyaml-cpp-dev)
# The compiler for the fuzz targets, which need libFuzzer.
gpushared_fuzz_packages=(clang libclang-rt-14-dev)
# .clang-format is for release 14. clang-tidy is of release 19: before 15, clang has no _Float16 on x86.
gpushared_lint_packages=(clang clang-format clang-tidy-19)
gpushared_container_packages=(podman crun uidmap)
# The fonts are for screenshots, and for names in other scripts.
gpushared_web_packages=(chromium chromium-driver fonts-noto-core)
gpushared_slurm_packages=(slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin
  mariadb-server munge libslurm-dev iproute2)
# gRPC for both programs for Kubernetes, libcurl for the DRA driver.
gpushared_cluster_packages=(libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libcurl4-openssl-dev)
gpushared_kubernetes_packages=("${gpushared_cluster_packages[@]}" dpkg-dev iproute2 openssl python3-venv)
# scdoc for the manual pages, gRPC and Slurm's headers for the plugins. The last three boot a Debian for the tests.
gpushared_package_packages=("${gpushared_cluster_packages[@]}" libslurm-dev dpkg-dev file scdoc lintian debootstrap
  debian-archive-keyring systemd-container)

# One release of the toolkit's compiler, so that every machine builds the same kernels.
# cuda_fp16.h includes a header of CCCL; the profiler's header declares functions of the driver.
gpushared_nvcc_wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cuda-profiler-api==13.0.85)

# Oldest nvcc that supports the features used by the kernels.
gpushared_nvcc_least=13.0

# Prevents Debian from starting daemons on installation, by a temporary policy file.
gpushared_without_services() {  # command ...
  local policy=/usr/sbin/policy-rc.d status=0
  [[ -e $policy ]] && { "$@"; return; }
  local as_root=()
  [[ $(id -u) -eq 0 ]] || as_root=(sudo)
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" install -m 755 /dev/stdin "$policy"
  "$@" || status=$?
  "${as_root[@]}" rm -f "$policy"
  return "$status"
}

gpushared_install() {
  local missing=() package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == *"ok installed" ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  command -v apt-get >/dev/null || { echo "setup: this machine has no apt-get; install: ${missing[*]}" >&2; return 1; }
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || { echo "setup: neither root nor sudo; ask for these packages: ${missing[*]}" >&2; return 1; }
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}" >&2
  "${as_root[@]}" apt-get update -qq
  ${without_services:+gpushared_without_services} "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Checks that this nvcc runs and is new enough; otherwise prints why.
gpushared_nvcc_serves() {
  local release
  release=$("$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
  [[ -n $release && $(printf '%s\n' "$release" "$gpushared_nvcc_least" | sort -V | head -n 1) == "$gpushared_nvcc_least" ]] &&
    return 0
  echo "setup: $1 is of release ${release:-(it did not say)}, needed is $gpushared_nvcc_least or newer; looking further" >&2
  return 1
}

gpushared_find_nvcc() {
  local home
  # Downloaded again if the list of packages has changed.
  [[ $(cat "$gpushared_root/.cache/cuda/packages" 2>/dev/null) == "${gpushared_nvcc_wheels[*]}" ]] ||
    rm -rf "$gpushared_root/.cache/cuda"
  for home in "${CUDA_HOME:-}" /usr/local/cuda "$gpushared_root/.cache/cuda/nvidia/cu13"; do
    if [[ -n $home && -x $home/bin/nvcc ]] && gpushared_nvcc_serves "$home/bin/nvcc"; then
      export CUDA_HOME=$home
      return 0
    fi
  done
  if command -v nvcc >/dev/null && gpushared_nvcc_serves "$(command -v nvcc)"; then
    CUDA_HOME=$(cd "$(dirname "$(readlink -f "$(command -v nvcc)")")/.." && pwd)
    export CUDA_HOME
    return 0
  fi
  return 1
}

gpushared_setup_nvcc() {
  gpushared_find_nvcc && return 0
  gpushared_install python3-venv
  local cache=$gpushared_root/.cache
  echo "setup: fetching nvcc from PyPI into .cache/cuda (about 100 MB)" >&2
  mkdir -p "$cache"
  rm -rf "$cache/cuda.part"
  python3 -m venv "$cache/venv"
  if ! "$cache/venv/bin/pip" -q install --no-deps --target "$cache/cuda.part" "${gpushared_nvcc_wheels[@]}"; then
    rm -rf "$cache/cuda.part"
    echo "setup: no nvcc of release $gpushared_nvcc_least or newer on this machine, and PyPI could not be reached; install the CUDA toolkit and set CUDA_HOME" >&2
    return 1
  fi
  echo "${gpushared_nvcc_wheels[*]}" >"$cache/cuda.part/packages"
  # Renamed last, because an interrupted download must not look complete.
  mv "$cache/cuda.part" "$cache/cuda"
  gpushared_find_nvcc
}

gpushared_setup() {  # part ...
  local part packages=("${gpushared_packages[@]}") nvcc="" without_services=""
  for part in "$@"; do
    case $part in
      product) ;;
      tests) packages+=("${gpushared_test_packages[@]}") nvcc=yes ;;
      fuzz) packages+=("${gpushared_test_packages[@]}" "${gpushared_fuzz_packages[@]}") nvcc=yes ;;
      lint) packages+=("${gpushared_test_packages[@]}" "${gpushared_lint_packages[@]}" "${gpushared_cluster_packages[@]}") nvcc=yes ;;
      containers) packages+=("${gpushared_test_packages[@]}" "${gpushared_container_packages[@]}") nvcc=yes ;;
      web) packages+=("${gpushared_test_packages[@]}" "${gpushared_web_packages[@]}") nvcc=yes ;;
      slurm) packages+=("${gpushared_test_packages[@]}" "${gpushared_slurm_packages[@]}") nvcc=yes without_services=yes ;;
      kubernetes) packages+=("${gpushared_test_packages[@]}" "${gpushared_kubernetes_packages[@]}") nvcc=yes ;;
      package) packages+=("${gpushared_test_packages[@]}" "${gpushared_package_packages[@]}") nvcc=yes ;;
      *) echo "setup: unknown part '$part': product, tests, fuzz, lint, containers, web, slurm, kubernetes, package" >&2; return 2 ;;
    esac
  done
  gpushared_install "${packages[@]}"
  [[ -n $nvcc ]] || return 0
  gpushared_setup_nvcc
  export PATH="$CUDA_HOME/bin:$PATH"
}

gpushared_setup "${@:-tests}"
