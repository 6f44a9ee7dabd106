#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes or checks the *.inc files here: every function that nvJitLink and NVRTC export.

Usage: make_exports.py [--check] [LIBRARY ...]

LIBRARY is libnvJitLink.so.N or libnvrtc.so.N, preferably the newest of its major version N. Without
--check, updates its file; each row keeps its handler. With --check, writes nothing: the exit code
reports whether the files are valid and contain all exports of the libraries, which may be older.
"""
import argparse
import pathlib
import re
import subprocess
import sys

DIRECTORY = pathlib.Path(__file__).parent
FORWARD = "kForward"
HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Every function of {soname}. Made by make_exports.py, which keeps the last column.
// GPUSHARED_EXPORT(symbol, handler)
// clang-format off
"""
# The headers of 13.0 rename nvJitLinkCreate to __nvJitLinkCreate_13_0.
OF_A_RELEASE = re.compile(r"__(nvJitLink\w+?)_\d+_\d+")


def soname(library):
    shown = subprocess.run(["readelf", "--dynamic", library], check=True, capture_output=True, text=True).stdout
    return re.search(r"Library soname: \[(.*)\]", shown).group(1)


def exports(library):
    shown = subprocess.run(["nm", "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True)
    rows = (line.split()[-2:] for line in shown.stdout.splitlines())
    return {name.split("@")[0] for kind, name in rows if kind in "TW"}


def table_of(library):
    name, major = re.fullmatch(r"lib(\w+)\.so\.(\d+)", soname(library)).groups()
    return DIRECTORY / f"{name.lower()}_{major}.inc"


def read_table(table):
    text = table.read_text(encoding="utf-8") if table.exists() else ""
    return dict(re.findall(r"^GPUSHARED_EXPORT\((\w+), (\w+)\)$", text, re.M))


def write_table(library):
    table = table_of(library)
    handlers = read_table(table)
    names = sorted(handlers.keys() | exports(library))
    table.write_text(HEAD.format(soname=soname(library)) + "".join(
        f"GPUSHARED_EXPORT({name}, {handlers.get(name, FORWARD)})\n" for name in names), encoding="utf-8")


def lacking(library):
    table = table_of(library)
    for name in sorted(exports(library) - read_table(table).keys()):
        yield f"{table.name} lacks {name}"


def contradictions(table):
    handlers = read_table(table)
    if not handlers:
        yield f"{table.name} has no rows"
    for name, handler in sorted(handlers.items()):
        plain = OF_A_RELEASE.fullmatch(name)
        if plain and handler != handlers.get(plain.group(1)):
            yield f"{table.name}: {name} has handler {handler}, {plain.group(1)} has {handlers.get(plain.group(1))}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("libraries", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    if not arguments.check:
        for library in arguments.libraries:
            write_table(library)
    found = [wrong for library in arguments.libraries for wrong in lacking(library)]
    found += [wrong for table in sorted(DIRECTORY.glob("*.inc")) for wrong in contradictions(table)]
    print("\n".join(found) or f"the tables agree with {len(arguments.libraries)} libraries")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
