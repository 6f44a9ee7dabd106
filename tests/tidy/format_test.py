# SPDX-License-Identifier: Apache-2.0
"""Checks that every source and header that git tracks or would add is formatted by clang-format 14.

Usage: format_test.py SOURCE_DIR. Exit code 77 (skipped): clang-format 14 is missing, or SOURCE_DIR is no git checkout.
"""
import pathlib
import re
import subprocess
import sys

RELEASE = "14"  # Other releases format some lines differently.


def output_of(*command):
    """Returns the program's output; empty if the program does not exist or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""


def main(root: pathlib.Path) -> int:
    found = [program for program in (f"clang-format-{RELEASE}", "clang-format") if f"version {RELEASE}." in output_of(program, "--version")]
    if not found:
        print(f"skipped: there is no clang-format {RELEASE}; `packaging/setup_debian.sh lint` installs it on Debian 12")
        return 77
    names = output_of("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.cpp", "*.h").split("\0")
    files = [root / name for name in names if name and (root / name).is_file()]
    if not files:
        print(f"skipped: {root} is no checkout of git, so nobody knows which files are ours")
        return 77
    check = subprocess.run([found[0], "--dry-run", "-Werror", *files], check=False, stderr=subprocess.PIPE, text=True)
    if check.returncode == 0:
        print(f"format: {len(files)} files, all in order")
        return 0
    print(check.stderr)
    others = dict.fromkeys(re.findall(r"^(.+?):\d+:\d+: error: ", check.stderr, re.MULTILINE))
    print(f"format: {len(others)} of {len(files)} files are not in order; run: {found[0]} -i {' '.join(others)}")
    return check.returncode


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
