# SPDX-License-Identifier: Apache-2.0
"""A library exports what its table lists, and nothing else.

Usage: exports_test.py LIBRARY TABLE
"""
import re
import subprocess
import sys

library, table = sys.argv[1:]
listed = set(re.findall(r"^GPUSHARED_(?:FUNCTION\(\w+, \d+, |EXPORT\()(\w+),", open(table, encoding="utf-8").read(), re.M))
shown = subprocess.run(["nm", "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True).stdout
exported = {line.split()[-1].split("@")[0] for line in shown.splitlines() if line.split()[-2] != "A"}
wrong = [f"{name} is listed, not exported" for name in sorted(listed - exported)]
wrong += [f"{name} is exported, not listed" for name in sorted(exported - listed)]
needed = subprocess.run(["readelf", "--dynamic", library], check=True, capture_output=True, text=True).stdout
wrong += [f"needs {name}" for name in re.findall(r"\(NEEDED\).*\[(.*)\]", needed)
          if name not in {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}]
print("\n".join(wrong) or f"{len(exported)} symbols, all as listed")
sys.exit(1 if wrong or not exported else 0)
