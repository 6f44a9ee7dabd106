#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up this machine, builds and tests. Usage: tests/run.sh [stage ...]
#
# Without a stage it runs `dev`. Stages:
#   dev     g++ build with warnings as errors; every test once, except those labelled `long`
#   long    benchmarks and tools too; the tests labelled `long`, 1,000 kills of clients, 100 of the broker, 10,000 MIG plans,
#           1,000 steps of the DRA driver with kills
#   asan    all tests again under address and undefined-behaviour sanitizers
#   tsan    the tests with threads again under the thread sanitizer
#   fuzz    every fuzz target for GPUSHARED_FUZZ_SECONDS (60), from its seeds
#   demo    the programs of samples/demo.sh as it builds them: files in groups, for this machine only
#   lint:all  clang's checks of format, locking and code (.clang-tidy), on all files
#   all     the seven above, in this order
#   quick DIRECTORY[,DIRECTORY...] [CASE]  builds and runs the tests of these directories, or their cases that match CASE
#   asan:DIRECTORY[,DIRECTORY...] and tsan:DIRECTORY[,...]  only this stage's tests of these directories
#   lint and lint:REF       the checks of lint:all on files that differ from main, or from REF; the format on all
#   dropin  real programs from PyPI and Debian, unmodified, with the drop-in libcuda: alone, two next to a high-class
#           client, and one that is killed 20 times next to others; their packages are kept in .cache
#   python  the Python package, and its sample server next to a Numba job; their packages are kept in .cache
#   wheel   the wheel that contains the server: made, installed, used, within its size and time
#   storms  effect of storms of hostile clients on an honest one, as a table; needs 15 minutes, and root
#           to run them as separate users
#   metrics  a loaded server's metrics, the dashboard and the alerts in a real Prometheus, which is kept in .cache
#   web     the page of gpushared-web in a headless Chromium, with a running pair and a hostile server; screenshots
#           go to build/web
#   service  the server under a real systemd in a container: reload, kills, watchdog, upgrade, socket activation;
#           needs root and namespaces, otherwise it is skipped with the reason
#   package  the Debian packages; installs, upgrades and removes them in a separate Debian, which needs root
#   containers  a program in a podman container of an unprivileged user, through an endpoint; needs root
#   slurm   Slurm's daemons as three nodes in namespaces, a server on each: jobs, kills, accounting, a long queue; needs
#           root, otherwise it is skipped with the reason
#   kubernetes  Kubernetes' kubelet, scheduler and API server, built from Debian's source package into .cache, as two nodes in
#           namespaces, with the manifests of packaging/kubernetes: pods of two classes, restarts, a server that stops;
#           then with the chart, by the commands of its README; needs root, and the first time 10 minutes more and 3 GB.
#           Before that: the DRA driver, imitated kubelet
#   gpu     the measurements for a real GPU (tests/gpu/run.sh), complete, on the fake driver with the costs of a real
#           one, and the cost of sharing in that model
#   portable  the tree that can be copied to another Linux, and a check that it needs nothing else there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=$(nproc)
# Number of kills of a real client; 1,000 in the stage `long`.
kills=${GPUSHARED_CRASH_KILLS:-200}

configure() {  # preset [further cmake arguments]
  local launcher=()
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # ccache requires this to cache files with precompiled headers.
  mkdir -p build
  cmake --preset "$1" -DGPUSHARED_NVCC="$CUDA_HOME/bin/nvcc" "${launcher[@]}" "${@:2}" >"build/$1.configure.log" 2>&1 ||
    { cat "build/$1.configure.log"; return 1; }
}

run_ctest() {  # name, directory of the build, ctest arguments
  # Failures are shown and retried once, because many tests start processes that share the machine's
  # few cores with other tests. A test that fails twice is red; one that needed its second try is
  # named at the end.
  local log="build/$1.ctest.log" status=0 again counts left_out
  # The unit is half a core, and most tests declare two. The limit is one core more than the machine
  # has, because all tests wait at times.
  ctest --test-dir "$2" --output-on-failure -j "$((2 * jobs + 2))" --repeat until-pass:2 "${@:3}" | tee "$log" || status=$?
  again=$(grep -E '\*\*\*(Failed|Timeout|Exception)' "$log" | grep -oE 'Test +#[0-9]+: [^ ]+' | sort -u || true)
  [[ -z $again ]] || printf '%s: not passed at the first try: %s\n' "$1" "${again//$'\n'/, }"
  # Read before any other call of ctest, which would overwrite LastTest.log.
  counts=$(python3 tests/count_cases.py "$2/Testing/Temporary/LastTest.log")
  if [[ ${*:3} == "-LE long" ]]; then
    left_out=$(ctest --test-dir "$2" -N -L long | sed -nE 's/^ *Test +#[0-9]+: //p' | tr '\n' ' ')
    [[ -z $left_out ]] || printf '%s: only in the stage long: %s\n' "$1" "$left_out"
  fi
  printf '%s: %s\n' "$1" "$counts"
  return "$status"
}

# The directories with tests of the stage `dev`; `bench` and `gpu` contain programs that are started
# by hand.
test_directories() {
  local file directory
  for file in tests/*/CMakeLists.txt; do
    directory=$(basename "$(dirname "$file")")
    [[ $directory == bench || $directory == gpu ]] || echo "$directory"
  done
}

build() {  # preset target ...
  cmake --build --preset "$1" -j "$jobs" --target "${@:2}"
}

run_dev() {
  local targets=(server/all client_lib/all samples/all) directory
  for directory in $(test_directories); do targets+=("tests/$directory/all"); done
  configure dev
  build dev "${targets[@]}"
  GPUSHARED_CRASH_KILLS=$kills run_ctest dev build/dev -LE long
}

run_long() {
  # Unlike `dev`, builds the simulator, and the executor's operations for any x86-64.
  configure dev -DGPUSHARED_EXECUTOR_FLAVOURS=all -DGPUSHARED_BUILD_ADVICE=ON
  build dev all tests_long
  run_ctest long build/dev -L long
  GPUSHARED_CRASH_KILLS=1000 run_ctest crash build/dev/tests/crash
  GPUSHARED_MIG_PLANS=10000 run_ctest mig build/dev/tests/mig
  GPUSHARED_BROKER_KILLS=100 run_ctest takeover build/dev/tests/system -R Takeover
  GPUSHARED_DRA_ROUNDS=1000 run_dra Restarts.test_random_kills_leave_nothing
}

check_directories() {  # directory ...
  local directory
  for directory in "$@"; do
    [[ -f tests/$directory/CMakeLists.txt ]] ||
      { echo "tests/run.sh: tests/$directory has no tests; directories with tests: $(test_directories | tr '\n' ' ')" >&2; return 2; }
  done
}

run_directories() {  # preset directory,directory
  local directory directories targets=()
  IFS=, read -ra directories <<<"$2"
  check_directories "${directories[@]}"
  for directory in "${directories[@]}"; do targets+=("tests/$directory/all"); done
  configure "$1"
  build "$1" "${targets[@]}"
  for directory in "${directories[@]}"; do
    run_ctest "$1-$directory" "build/$1/tests/$directory" -LE long
  done
}

run_storms() {
  configure dev
  build dev storms
  build/dev/bin/storms --json build/storms.json
}

run_service() {
  gpushared_install systemd-container
  configure dev
  build dev gpushared gpusharedctl train serve compile_test
  local status=0
  tests/service/run_service.sh build/dev/bin build/service || status=$?
  [[ $status -eq 0 || $status -eq 77 ]]
}

run_dropin() {
  gpushared_install python3-venv
  configure dev
  build dev gpushared gpusharedctl gpushared_drop_in train serve
  python3 tests/drop_in/programs/run_programs.py build/dev/bin .cache/dropin
  python3 tests/drop_in/programs/priority.py build/dev/bin .cache/dropin
  python3 tests/drop_in/programs/kills.py build/dev/bin .cache/dropin 20
}

run_python() {
  gpushared_install python3-venv python3-dev
  configure dev
  build dev gpushared gpusharedctl gpushared_drop_in
  python3 tests/python/run_python.py build/dev/bin .cache/python
}

run_wheel() {
  gpushared_install python3-venv python3-dev
  configure portable
  build portable gpushared gpusharedctl gpushared-web gpushared-mps-control gpushared-sim client_lib/all
  python3 tests/python/run_wheel.py build/portable .cache/python
}

run_package() {
  gpushared_setup package
  configure package
  build package all
  rm -rf build/package/packages
  (cd build/package && cpack >../package.cpack.log 2>&1) || { cat build/package.cpack.log; return 1; }
  tests/package/run.sh build/package .cache/package
}

run_metrics() {
  gpushared_install python3-venv
  local cache=$PWD/.cache/metrics
  if [[ ! -e $cache/.complete ]]; then
    rm -rf "$cache"
    mkdir -p "$cache"
    # Only unpacked, because installing it would make it a service of this machine.
    (cd "$cache" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb .)
    python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" -q install --target "$cache/python" prometheus_client==0.26.0
    touch "$cache/.complete"
  fi
  configure dev
  build dev web_programs
  PATH="$cache/usr/bin:$PATH" PYTHONPATH="$cache/python" \
    run_ctest metrics build/dev/tests/web -R '^web_(scrape|rules|expressions|churn)$'
}

run_web() {
  gpushared_setup web
  configure dev
  build dev gpushared gpusharedctl gpushared-web train serve
  python3 -B tests/web/browser/run_browser.py build/dev/bin build/web
}

run_containers() {
  gpushared_setup containers
  configure dev
  build dev gpushared gpusharedctl vector_add_cpp drop_in_vector_add
  tests/package/containers.sh build/dev/bin
}

run_slurm() {
  [[ $EUID -eq 0 ]] || { echo "slurm: skipped: needs root"; return; }
  gpushared_setup slurm
  configure dev
  build dev gpushared gpusharedctl serve train vector_add_cpp drop_in_vector_add gpushared-mps-control gpushared_spank
  local status=0
  tests/slurm/run_slurm.sh build/dev/bin build/dev/lib/gpushared_spank.so build/slurm || status=$?
  [[ $status -eq 0 || $status -eq 77 ]]
}

run_dra() {  # test ...
  local status=0
  tests/kubernetes/run_dra.sh .cache/kubernetes build/dev/bin "$@" || status=$?
  [[ $status -eq 0 || $status -eq 77 ]]
}

run_kubernetes() {
  gpushared_setup kubernetes
  configure dev
  build dev gpushared gpusharedctl gpushared-kubernetes gpushared-dra gpushared-web gpushared_drop_in serve train vector_add_cpp \
    drop_in_vector_add tests/kubernetes/all
  run_ctest kubernetes build/dev/tests/kubernetes
  tests/kubernetes/validate.sh .cache/kubernetes build/dev/bin
  run_dra
  [[ $EUID -eq 0 ]] || { echo "kubernetes: skipped: needs root"; return; }
  tests/kubernetes/build_kubernetes.sh .cache/kubernetes
  local status=0
  tests/kubernetes/run_kubernetes.sh build/dev/bin .cache/kubernetes build/kubernetes || status=$?
  [[ $status -eq 0 || $status -eq 77 ]]
}

run_gpu() {
  configure dev
  build dev server/all samples/all tests/gpu/all cuda_conformance_test gpushared_fake_cuda gpushared_fake_nvml \
    gpushared_plain_ptxas
  run_ctest gpu build/dev/tests/gpu -R '^gpu_modelled$|costed_fake$'
}

run_portable() {
  configure portable
  build portable server/all client_lib/all samples/all gpu_tests
  run_ctest portable build/portable -L tidy
}

run_quick() {  # directory,directory [case]
  local directory directories targets=() program ran="" status=0
  IFS=, read -ra directories <<<"$1"
  check_directories "${directories[@]}"
  for directory in "${directories[@]}"; do targets+=("tests/$directory/all"); done
  [[ -f build/dev/build.ninja ]] || configure dev
  build dev "${targets[@]}"
  if [[ -z ${2:-} ]]; then
    for directory in "${directories[@]}"; do
      GPUSHARED_CRASH_KILLS=$kills run_ctest "quick-$directory" "build/dev/tests/$directory" -LE long || status=$?
    done
    return "$status"
  fi
  while read -r program; do
    [[ -n $program ]] || continue  # A directory without such programs.
    "$program" --gtest_list_tests --gtest_filter="*$2*" | grep -c '^  ' >/dev/null || continue
    ran=yes
    "$program" --gtest_brief=1 --gtest_filter="*$2*" || status=$?
  done < <(for directory in "${directories[@]}"; do ctest --test-dir "build/dev/tests/$directory" --show-only=json-v1 | python3 -c '
import json, sys
programs = {test["command"][0] for test in json.load(sys.stdin)["tests"] if "command" in test}
print(*sorted(program for program in programs if program.endswith("_test")), sep="\n")'; done)
  [[ -n $ran ]] || { echo "tests/run.sh: tests/$1 has no case whose name contains '$2'" >&2; return 2; }
  return "$status"
}

run_fuzz() {
  gpushared_setup fuzz
  cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGPUSHARED_FUZZ=ON \
    -DGPUSHARED_JOIN_SOURCES=ON -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DGPUSHARED_NVCC="$CUDA_HOME/bin/nvcc" \
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

# Prints the product's sources that differ from the merge base with `base` or are untracked; for a
# header, a source that includes it.
changed_sources() {  # base
  local from file name source
  from=$(git merge-base "$1" HEAD 2>/dev/null) || { echo "tests/run.sh: lint: invalid value '$1' for REF: expected a commit" >&2; return 2; }
  { git diff --name-only --diff-filter=d "$from" -- "${lint_directories[@]}" "$not_here"
    git ls-files --others --exclude-standard -- "${lint_directories[@]}" "$not_here"; } | while read -r file; do
    case $file in
      *.cpp) echo "$file" ;;
      *.h)
        name=${file#*/include/}
        source=$(git grep -lF "#include \"$name\"" -- "${lint_directories[@]/%//*.cpp}" | head -n 1) || true
        if [[ -n $source ]]; then echo "$source"; else echo "lint: not checked: $file, because no source includes it directly; lint:all checks it" >&2; fi ;;
    esac
  done | sort -u
}

run_lint() {  # base, or all; how to call these files
  # The Python package is not part of this build, because clang has no nanobind here.
  local sources status=0 lint_directories=(common server scheduler ipc client_lib samples) not_here=':!client_lib/python'
  gpushared_setup lint
  python3 tests/tidy/format_test.py . || status=1
  configure dev -B build/lint -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang \
    -DGPUSHARED_JOIN_SOURCES=OFF -DGPUSHARED_PRECOMPILE=OFF
  if [[ $1 == all ]]; then
    sources=$(git ls-files -- "${lint_directories[@]/%//*.cpp}" "$not_here")
  else
    sources=$(changed_sources "$1")
  fi
  rm -rf build/lint/found
  mkdir -p build/lint/found
  # Two at a time, because each takes up to 1 GB.
  xargs -r -P 2 -I{} bash -c 'clang-tidy-19 -p build/lint --quiet "$1" >"build/lint/found/${1//\//.}" 2>&1' _ {} \
    <<<"$sources" || status=1
  # A finding in a header is in the output of every source that includes it.
  find build/lint/found -type f -exec sed -nE "s,^$PWD/(.*: (error|warning): ),\1,p" {} + | sort -u | tee build/lint/findings
  echo "lint: clang-tidy checked $(grep -c . <<<"$sources") sources ($2), $(wc -l <build/lint/findings) findings; its output is in build/lint/found"
  return "$status"
}

stages=("$@")
[[ ${#stages[@]} -eq 0 ]] && stages=(dev)
[[ ${stages[*]} == all ]] && stages=(dev long asan tsan fuzz demo lint:all)

source packaging/setup_debian.sh tests
mkdir -p build
if [[ ${stages[0]} == quick ]]; then
  [[ $# -ge 2 ]] || { echo "tests/run.sh quick DIRECTORY[,DIRECTORY...] [CASE]: missing DIRECTORY: expected any of $(test_directories | tr '\n' ' ')" >&2; exit 2; }
  run_quick "${@:2}"
  exit
fi
for stage in "${stages[@]}"; do
  echo "== $stage"
  SECONDS=0
  case $stage in
    dev) run_dev ;;
    long) run_long ;;
    asan) configure asan; build asan all tests_long; run_ctest asan build/asan ;;
    asan:* | tsan:*) run_directories "${stage%%:*}" "${stage#*:}" ;;
    tsan) configure tsan; build tsan tests_concurrency; run_ctest tsan build/tsan -L concurrency ;;
    fuzz) run_fuzz ;;
    lint) run_lint main "those that differ from main" ;;
    lint:all) run_lint all "all" ;;
    lint:*) run_lint "${stage#*:}" "those that differ from ${stage#*:}" ;;
    demo) cmake --preset demo >build/demo.configure.log; cmake --build --preset demo -j "$jobs" ;;
    dropin) run_dropin ;;
    python) run_python ;;
    wheel) run_wheel ;;
    storms) run_storms ;;
    service) run_service ;;
    metrics) run_metrics ;;
    web) run_web ;;
    package) run_package ;;
    containers) run_containers ;;
    slurm) run_slurm ;;
    kubernetes) run_kubernetes ;;
    gpu) run_gpu ;;
    portable) run_portable ;;
    *) echo "tests/run.sh: unknown stage '$stage': dev, long, asan, asan:DIRECTORY, tsan, tsan:DIRECTORY, fuzz, demo, lint, lint:REF, lint:all, all, quick, dropin, python, wheel, storms, metrics, web, service, package, containers, slurm, kubernetes, gpu, portable" >&2; exit 2 ;;
  esac
  echo "== $stage took $SECONDS s"
done
echo "tests/run.sh: all stages passed: ${stages[*]}"
