#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up this machine and runs the tests. Usage: tests/run.sh [stage ...]
#
# Stages, in this order when none is named, cheap ones first:
#   dev    g++ build with warnings as errors, all tests
#   asan   all tests again under address and undefined-behaviour sanitizers
#   tsan   the tests with threads again under the thread sanitizer
#   fuzz   every fuzz target for GPUSHARED_FUZZ_SECONDS (60), from its seeds
# And, when named:
#   asan:LABEL  of asan only the tests with this label, such as process
#   portable  the tree that can be copied to another Linux, and that it needs nothing else there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source packaging/setup_debian.sh

jobs=$(nproc)
stages=("$@")
[[ ${#stages[@]} -eq 0 ]] && stages=(dev asan tsan fuzz)

configure() {  # preset [further cmake arguments]
  local launcher=()
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake --preset "$1" -DGPUSHARED_NVCC="$CUDA_HOME/bin/nvcc" "${launcher[@]}" "${@:2}" >"build/$1.configure.log" 2>&1 ||
    { cat "build/$1.configure.log"; return 1; }
}

run_preset() {  # preset target [ctest arguments]
  configure "$1"
  cmake --build --preset "$1" -j "$jobs" --target "$2"
  # A case that fails is shown, and tried once more: many start processes that share the
  # machine's few cores with the others. One that fails twice is red; one that needed its
  # second try is named at the end.
  local log="build/$1.ctest.log" status=0 again
  ctest --preset "$1" -j "$jobs" --repeat until-pass:2 "${@:3}" | tee "$log" || status=$?
  again=$(grep -E '\*\*\*(Failed|Timeout|Exception)' "$log" | grep -oE 'Test +#[0-9]+: [^ ]+' | sort -u || true)
  [[ -z $again ]] || printf '%s: not passed at the first try: %s\n' "$1" "${again//$'\n'/, }"
  return "$status"
}

run_fuzz() {
  gpushared_install "${gpushared_fuzz_packages[@]}"
  cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGPUSHARED_FUZZ=ON \
    -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DGPUSHARED_NVCC="$CUDA_HOME/bin/nvcc" \
    >build/fuzz.configure.log 2>&1 || { cat build/fuzz.configure.log; return 1; }
  cmake --build build/fuzz -j "$jobs" --target fuzzers
  local target name seconds=${GPUSHARED_FUZZ_SECONDS:-60} passed=0 failed=0 running=()
  for target in build/fuzz/fuzz/*_fuzz; do
    name=$(basename "$target")
    mkdir -p "build/fuzz/corpus/$name" "build/fuzz/findings"
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/findings/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/${name%_fuzz}" \
      >"build/fuzz/$name.log" 2>&1 &
    running+=("$!:$name")
  done
  for target in "${running[@]}"; do
    name=${target#*:}
    if wait "${target%%:*}"; then
      passed=$((passed + 1))
      echo "fuzz: $name: $(grep -E 'number_of_executed_units' "build/fuzz/$name.log" | awk '{print $2}') inputs in $seconds s, nothing found"
    else
      failed=$((failed + 1))
      tail -n 40 "build/fuzz/$name.log"
      echo "fuzz: $name FAILED, see build/fuzz/findings"
    fi
  done
  echo "fuzz: $passed passed, $failed failed"
  [[ $failed -eq 0 && $passed -gt 0 ]]
}

mkdir -p build
for stage in "${stages[@]}"; do
  echo "== $stage"
  SECONDS=0
  case $stage in
    dev) run_preset dev all ;;
    asan) run_preset asan all ;;
    asan:*) run_preset asan "tests_${stage#*:}" -L "${stage#*:}" ;;
    tsan) run_preset tsan tests_concurrency -L concurrency ;;
    fuzz) run_fuzz ;;
    portable) run_preset portable all -L tidy ;;
    *) echo "tests/run.sh: unknown stage '$stage': dev, asan, asan:LABEL, tsan, fuzz, portable" >&2; exit 2 ;;
  esac
  echo "== $stage took $SECONDS s"
done
echo "tests/run.sh: all stages passed: ${stages[*]}"
