# SPDX-License-Identifier: Apache-2.0
"""Fails if a README's first C++ example is not the one that is compiled and run.

Usage: readme_example_test.py EXAMPLE README...
"""
import pathlib
import re
import sys

_, example = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").split("\n", 1)  # Without its licence line.
differ = []
for readme in sys.argv[2:]:
    blocks = re.findall(r"^```cpp\n(.*?)^```$", pathlib.Path(readme).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if blocks[:1] != [example]:
        differ.append(f"the first C++ example of {readme} differs from {sys.argv[1]}")
print("\n".join(differ) or f"{len(sys.argv) - 2} examples are as compiled")
sys.exit(bool(differ))
