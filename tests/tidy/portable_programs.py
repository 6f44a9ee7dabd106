# SPDX-License-Identifier: Apache-2.0
"""Fails if a program or a library of the portable preset needs more than other Linux systems provide.

Usage: portable_programs.py DIRECTORY...

Allowed are the C library and its loader, in versions up to GLIBC_MAX: that of Ubuntu 22.04,
the oldest system that the CUDA 13 driver supports.
"""
import pathlib
import re
import subprocess
import sys

LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
GLIBC_MAX = (2, 35)


def complaints(program):
    read = subprocess.run(["readelf", "--wide", "--dynamic", "--dyn-syms", program], check=True, capture_output=True, text=True)
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", read.stdout):
        if library not in LIBRARIES:
            yield f"needs {library}"
    for symbol, version in re.findall(r"UND (\w+)@GLIBC_([0-9.]+)", read.stdout):
        if tuple(map(int, version.split("."))) > GLIBC_MAX:
            yield f"needs {symbol} of glibc {version}, allowed {'.'.join(map(str, GLIBC_MAX))}"


def main():
    programs = [path for directory in sys.argv[1:] for path in sorted(pathlib.Path(directory).iterdir())
                if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    wrong = [f"{program.name} {what}" for program in programs for what in complaints(program)]
    print("\n".join(wrong) or f"{len(programs)} files need the C library only")
    return 1 if wrong or not programs else 0


sys.exit(main())
