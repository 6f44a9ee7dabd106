#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how many test cases the programs of the last ctest ran. Usage: count_cases.py LastTest.log

An entry of ctest is a program of many cases. If an entry was tried twice, its last try counts. An entry that is not a
gtest program counts as one case.
"""
import re
import sys

SUMMARY = re.compile(r"^\[  (PASSED|SKIPPED)  ?\] (\d+) tests?[.,]", re.MULTILINE)
FAILED = re.compile(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", re.MULTILINE)


def cases_of(text):
    counts = {kind: int(number) for kind, number in SUMMARY.findall(text)}
    counts["FAILED"] = len(set(FAILED.findall(text)))
    if any(counts.values()) and not ("Test Failed." in text and counts["FAILED"] == 0):
        return counts
    # A program that crashed has no summary, so its entry counts as one failure.
    kind = "FAILED" if "Test Failed." in text else "SKIPPED" if "Test Pass Reason:\nSkip" in text else "PASSED"
    return {**counts, kind: counts.get(kind, 0) + 1}


def main():
    entries = {}
    for part in re.split(r"^(?=\d+/\d+ Testing: )", open(sys.argv[1], errors="replace").read(), flags=re.MULTILINE)[1:]:
        entries[part.splitlines()[0].split("Testing: ", 1)[1]] = cases_of(part)
    total = {kind: sum(counts.get(kind, 0) for counts in entries.values()) for kind in ("PASSED", "SKIPPED", "FAILED")}
    print("cases: {PASSED} passed, {SKIPPED} skipped, {FAILED} failed".format(**total))


main()
