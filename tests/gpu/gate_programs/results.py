# SPDX-License-Identifier: Apache-2.0
"""What the programs of this directory tell gate_facts.py, by lines on stdout.

Each computes on the first GPU, from numbers of its own, so that two runs have the same results.
"""
import hashlib
import importlib
import sys


def need(*names):
    """The modules of these names. Without one of them the program has nothing to tell."""
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(name))
        except ImportError as error:
            print(f"missing {name}: {error}")
            sys.exit(0)
    return modules


def bits(name, array):
    """A result that two runs agree on bit by bit. `array` is on the host."""
    print(f"bits {name} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}", flush=True)


def near(name, number):
    """A result that may differ in its last digits, since the order of its sums may."""
    print(f"near {name} {float(number)!r}", flush=True)
