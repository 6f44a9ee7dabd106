# SPDX-License-Identifier: Apache-2.0
"""Replaces the placeholders @NAME@ of a manual page by texts about options that gpushared generates.

Usage: fill.py PAGE.scd GPUSHARED
"""
import pathlib
import re
import subprocess
import sys


def filled(page, program):
    def told(match):
        command = [program, "--manual", match.group(1)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.rstrip("\n")
    return re.sub("@([a-z]+)@", told, pathlib.Path(page).read_text(encoding="utf-8"))


if __name__ == "__main__":
    print(filled(sys.argv[1], sys.argv[2]), end="")
