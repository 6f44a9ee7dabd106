#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Identifiers, options and keys use the field's words, so that a reader meets one word for each thing.

Usage: words_test.py ROOT
Looks at names in sources, scripts and configuration, not at prose. CONTRIBUTING.md has the words that are this
project's own.
"""
import functools
import pathlib
import re
import subprocess
import sys

# A name that has these words one after the other, and the word to use.
RETIRED = {
    "admin desk": "request handler", "trace desk": "request handler",
    "arena": "staging buffer", "arenas": "staging buffers",
    "away steps": "non-resident pages", "step store": "swap store", "step use": "page use",
    "barred": "throttled",
    "entrance": "endpoint", "entrances": "endpoints",
    "folder": "directory", "folders": "directories",
    "full fence": "full memory barrier",
    "gives way": "is preemptible by",
    "given up": "abandoned",
    "host delay": "host steal",
    "keeper": "manager",
    "latency promise": "latency target", "promises": "latency targets", "requests promised": "requests with target",
    "ledger": "log",
    "moved in": "swapped in", "moved out": "swapped out",
    "newcomer": "new client", "newcomers": "new clients",
    "outlet": "output",
    "quiet moment": "idle window", "quiet moments": "idle windows",
    "refusal": "rejection", "refuse": "reject", "refused": "rejected", "refuses": "rejects",
    "roster": "registry",
    "shut out": "starved",
    "turnaround": "launch bubble",
    "uncut": "nonpreemptible",
}
SUFFIXES = {".c", ".cmake", ".cpp", ".cu", ".h", ".inc", ".js", ".json", ".proto", ".py", ".scd", ".sh", ".toml", ".txt", ".yaml", ".yml"}
# PTX that compilers generated, stored measurements, and this file, which contains the retired words.
SKIPPED = ("tests/corpus/ptx/", "tests/fuzz/corpus/", "tests/gpu/results/", "tests/tidy/words_test.py")
PHRASES = sorted(((tuple(old.split()), new) for old, new in RETIRED.items()), key=lambda each: -len(each[0]))


def words(name):
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


@functools.cache  # Most names occur many times.
def instead(name):
    """What this name should say; None where it is fine."""
    parts = words(name)
    for old, new in PHRASES:
        for begin in range(len(parts) - len(old) + 1):
            if tuple(parts[begin:begin + len(old)]) == old:
                return " ".join(old), new
    return None


def without_prose(suffix, line):
    """The line without comments, and without strings that are sentences."""
    if suffix in (".c", ".cpp", ".cu", ".h", ".inc", ".js", ".proto"):
        line = re.sub(r"//.*|/\*.*|^\s*\*.*", "", line)
    elif suffix == ".scd":
        return " ".join(re.findall(r"--[a-z-]+|\*[a-z_]+\*", line))
    elif suffix != ".json":
        line = re.sub(r"(^|\s)#.*", "", line)
    return re.sub(r'"(?:[^"\\]|\\.)* (?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)* (?:[^\'\\]|\\.)*\'', '""', line)


def main(root):
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False)
    files = [pathlib.Path(name) for name in listed.stdout.splitlines()] or [
        path.relative_to(root) for path in pathlib.Path(root).rglob("*") if path.is_file() and ".git" not in path.parts]
    found = 0
    for file in files:
        path = pathlib.Path(root) / file
        if file.suffix not in SUFFIXES or str(file).startswith(SKIPPED) or not path.is_file():
            continue
        text, is_doc = path.read_text(encoding="utf-8", errors="replace"), False
        for number, line in enumerate(text.splitlines(), 1):
            # Skips docstrings of Python.
            quotes = line.count('"""') if file.suffix == ".py" else 0
            was_doc, is_doc = is_doc, is_doc != (quotes == 1)
            if was_doc or quotes:
                continue
            for name in re.findall(r"[A-Za-z_][A-Za-z0-9_-]*", without_prose(file.suffix, line)):
                if problem := instead(name):
                    print(f"{file}:{number}: '{name}': '{problem[0]}' is called '{problem[1]}' here")
                    found += 1
    for name in sorted({str(file) for file in files}):
        if not name.startswith(SKIPPED) and (problem := instead(pathlib.Path(name).stem)):
            print(f"{name}: '{problem[0]}' is called '{problem[1]}' here")
            found += 1
    print(f"words: {found} names use words that were given up" if found else "words: all names use the field's words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
