# SPDX-License-Identifier: Apache-2.0
"""The results that programs of this directory report to gate_facts.py, as lines on stdout.

Each program computes on the first GPU, from its own numbers, so that two runs have the same results.
"""
import hashlib
import importlib
import sys


def need(*names):
    """Returns the modules of these names. If one is missing, ends the program without results."""
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(name))
        except ImportError as error:
            print(f"missing {name}: {error}")
            sys.exit(0)
    return modules


def bits(name, array):
    """Reports a result that two runs must agree on bit by bit. `array` is on the host."""
    print(f"bits {name} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}", flush=True)


def near(name, number):
    """Reports a result whose last digits may differ between runs, because the order of additions may differ."""
    print(f"near {name} {float(number)!r}", flush=True)
