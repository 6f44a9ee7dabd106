#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes or checks functions.inc: every function that a CUDA driver exports.

Usage: make_functions.py [--check | --signatures] --include DIR

DIR contains the toolkit's cuda.h and cudaTypedefs.h. Without an option, updates the rows of
functions.inc; each row keeps its handler and its decision for gate mode. A new row has neither, and
does not compile until it has a decision. With --check, writes nothing: the exit code reports whether
functions.inc agrees with a toolkit, which may be older. --signatures prints one line for each handler
and each gate hook, with the type of its function in this toolkit.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("functions.inc")
TYPEDEF_HEADERS = ("cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h",
                   "cudaProfilerTypedefs.h")
# Drivers export this form, but the typedefs have no version for it.
WITHOUT_TYPEDEF = {("cuGetProcAddress", 12000, "cuGetProcAddress_v2_ptsz", "kPerThread"): 12050}
MISSING = "kMissing"  # Handler of functions that are exported but not implemented.
FORWARDED, UNDECIDED = "kForwarded", "kUndecided"  # In gate mode.
HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Every function that a CUDA driver exports. Made by make_functions.py, which keeps the last two columns.
// GPUSHARED_FUNCTION(name for cuGetProcAddress, first CUDA version, symbol, default stream, handler, gate hook)
// clang-format off
"""

Row = collections.namedtuple("Row", "name version symbol stream")
Decisions = collections.namedtuple("Decisions", "handler gate", defaults=(MISSING, UNDECIDED))


def cuda_version(include):
    return int(re.search(r"#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text()).group(1))


def symbol_of(name, place, per_thread):
    """Returns the symbol of the n-th version of a function; driver_abi_test.cpp compares the signatures."""
    suffix = "" if place == 0 else f"_v{place + 1}"
    return name + suffix + per_thread


def declared_symbols(include):
    """Returns the names that cuda.h declares, in all versions and for both default streams."""
    names = set()
    for define in ("__CUDA_API_VERSION_INTERNAL", "CUDA_API_PER_THREAD_DEFAULT_STREAM"):
        text = subprocess.run(["g++", "-x", "c++", "-E", "-P", f"-D{define}", "-I", include, "-"],
                              input="#include <cuda.h>\n#include <cudaProfiler.h>\n",
                              capture_output=True, text=True, check=True).stdout
        names |= set(re.findall(r"\b(cu[A-Z]\w*)\s*\((?!\w*\))", text))
    return names


def rows_of(include):
    text = "".join((include / header).read_text() for header in TYPEDEF_HEADERS)
    versions = collections.defaultdict(set)
    for name, version, per_thread in re.findall(r"\*\s*PFN_(cu\w+?)_v(\d+)(_pt[sd][zs])?\)", text):
        versions[name, per_thread].add(int(version))
    declared = declared_symbols(include)
    rows = set(Row(*row) for row, since in WITHOUT_TYPEDEF.items() if since <= cuda_version(include))
    for (name, per_thread), known in versions.items():
        # Forms for the per-thread default stream begin with the version that was current in 7.0.
        places = range(len(known))
        if per_thread:
            plain = sorted(versions[name, ""])
            first = max((i for i, version in enumerate(plain) if version <= min(known)), default=0)
            places = range(first, first + len(known))
        for place, version in zip(places, sorted(known)):
            rows.add(Row(name, version, symbol_of(name, place, per_thread),
                         "kPerThread" if per_thread else "kLegacy"))
    return rows, declared


def read_table():
    pattern = re.compile(r"^GPUSHARED_FUNCTION\((\w+), (\d+), (\w+), (\w+), (\w+), (\w+)\)$", re.M)
    if not TABLE.exists():
        return {}
    return {Row(name, int(version), symbol, stream): Decisions(handler, gate)
            for name, version, symbol, stream, handler, gate in pattern.findall(TABLE.read_text())}


def complaints(include):
    table, version = read_table(), cuda_version(include)
    rows, declared = rows_of(include)
    symbols = {row.symbol for row in table}
    if len(symbols) != len(table):
        yield "functions.inc has a symbol twice"
    for row in sorted(rows - table.keys()):
        yield f"functions.inc lacks {row}"
    for row in sorted(row for row in table.keys() - rows if row.version <= version):
        yield f"the toolkit of version {version} has no {row}"
    for symbol in sorted(declared - symbols):
        yield f"functions.inc lacks {symbol}, which cuda.h declares"
    for row in sorted(row for row, decisions in table.items() if decisions.gate == UNDECIDED):
        yield f"{row.symbol} has no decision for gate mode: {FORWARDED}, or a hook of gate/hooks.h"
    by_name = collections.defaultdict(set)
    for row, decisions in table.items():
        by_name[row.name, row.symbol.removesuffix("_ptsz").removesuffix("_ptds")].add(decisions)
    for (name, symbol), decisions in sorted(by_name.items()):
        if len(decisions) > 1:
            yield f"{symbol}: one handler and hook serve both default streams, the table names {sorted(decisions)}"


def signatures(include):
    known = rows_of(include)[0] - WITHOUT_TYPEDEF.keys()
    for row, (handler, gate) in sorted(read_table().items()):
        if row not in known:
            continue
        suffix = re.search(r"(_pt[sd][zs])?$", row.symbol).group()
        function_type = f"PFN_{row.name}_v{row.version}{suffix}"
        if handler != MISSING:
            yield f"GPUSHARED_SIGNATURE({function_type}, {handler})"
        if gate not in (FORWARDED, UNDECIDED):
            yield f"GPUSHARED_HOOK_SIGNATURE({function_type}, {gate})"


def write_table(include):
    table = read_table()
    rows = sorted(table.keys() | rows_of(include)[0])
    lines = (f"GPUSHARED_FUNCTION({row.name}, {row.version}, {row.symbol}, {row.stream}, "
             f"{', '.join(table.get(row, Decisions()))})\n" for row in rows)
    TABLE.write_text(HEAD + "".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--signatures", action="store_true")
    arguments = parser.parse_args()
    if arguments.signatures:
        print("\n".join(signatures(arguments.include)))
        return 0
    if not arguments.check:
        write_table(arguments.include)
    found = list(complaints(arguments.include))
    print("\n".join(found) or f"functions.inc agrees with CUDA {cuda_version(arguments.include)}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
