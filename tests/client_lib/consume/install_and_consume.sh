#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the client library into a separate directory and builds an external project against
# it: by CMake (shared and static), and by pkg-config in C and C++. Then moves the installed
# tree, because it must not contain its own path.
#
# usage: install_and_consume.sh BUILD_DIR SOURCE_DIR WORK_DIR CC CXX LINK_FLAGS
set -eu
build=$1 source=$2 work=$3 cc=$4 cxx=$5 flags=$6

rm -rf "$work"
mkdir -p "$work"
for component in client dev; do  # To run programs, and to build them.
  cmake --install "$build" --component $component --prefix "$work/installed" >> "$work/install.log"
done
mv "$work/installed" "$work/moved"
prefix=$work/moved
pc=$(find "$prefix" -name gpushared.pc)
libdir=$(dirname "$(dirname "$pc")")

echo "== what is exported"
# Everything but the C interface and the classes of the public headers is hidden.
nm -DC --defined-only "$libdir/libgpushared.so" > "$work/symbols"
if grep -E ' [TVWBDR] ' "$work/symbols" | grep -vE ' [TVW] (gpushared_|gpushared::)' ||
   grep -E ' [TVWBDR] (gpushared::(client|ipc)::|boost::)' "$work/symbols"; then
  echo "libgpushared.so exports what is not part of its interface" >&2
  exit 1
fi
# Every function of the C header is exported.
for name in $(grep -oE '\bgpushared_[a-z_0-9]+\(' "$prefix/include/gpushared/gpushared.h" |
  tr -d '('); do
  grep -q " T $name@" "$work/symbols" || { echo "$name is not exported" >&2; exit 1; }
done

echo "== find_package"
cmake -S "$source" -B "$work/by_cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_EXE_LINKER_FLAGS="$flags" > "$work/configure.log"
cmake --build "$work/by_cmake" > "$work/build.log"
for program in consumer_cpp consumer_static consumer_c; do
  "$work/by_cmake/$program"
done

echo "== pkg-config"
export PKG_CONFIG_PATH="$(dirname "$pc")"
# Unquoted: these are lists of flags.
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$source/consumer.c" -o "$work/pc_c" \
  $(pkg-config --cflags --libs gpushared) $flags
"$cxx" -std=c++20 -Wall -Wextra -Wpedantic -Werror "$source/consumer.cpp" "$source/add.cpp" -o "$work/pc_cpp" \
  $(pkg-config --cflags --libs gpushared) $flags
[ "$(pkg-config --modversion gpushared)" = "$("$work/by_cmake/consumer_cpp" | sed -n 's/version //p')" ]
LD_LIBRARY_PATH=$libdir "$work/pc_c"
LD_LIBRARY_PATH=$libdir "$work/pc_cpp"
