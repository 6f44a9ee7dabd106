# SPDX-License-Identifier: Apache-2.0
"""Checks that each library exports exactly the symbols that its table lists.

Usage: exports_test.py LIBRARY TABLE [LIBRARY TABLE...]
"""
import re
import subprocess
import sys


def wrong_with(library, table):
    listed = set(re.findall(r"^GPUSHARED_(?:FUNCTION\(\w+, \d+, |EXPORT\()(\w+),", open(table, encoding="utf-8").read(), re.M))
    shown = subprocess.run(["nm", "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in shown.splitlines() if line.split()[-2] != "A"}
    yield from (f"{name} is listed, not exported" for name in sorted(listed - exported))
    yield from (f"{name} is exported, not listed" for name in sorted(exported - listed))
    needed = subprocess.run(["readelf", "--dynamic", library], check=True, capture_output=True, text=True).stdout
    yield from (f"needs {name}" for name in re.findall(r"\(NEEDED\).*\[(.*)\]", needed)
                if name not in {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})
    print(f"{library}: {len(exported)} symbols")
    if not exported:
        yield "exports nothing"


pairs = list(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
wrong = [f"{library}: {what}" for library, table in pairs for what in wrong_with(library, table)]
print("\n".join(wrong))
sys.exit(1 if wrong or not pairs else 0)
