# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that selects Dr.Jit's tests of CUDA types, and tests that have no type."""
import re


def pytest_collection_modifyitems(config, items):
    def is_wanted(item):
        types = re.findall(r"drjit\.(?:auto|scalar|llvm|cuda|metal)", item.nodeid.partition("[")[2])
        return all(each == "drjit.cuda" for each in types)

    others = [item for item in items if not is_wanted(item)]
    if others:
        items[:] = [item for item in items if is_wanted(item)]
        config.hook.pytest_deselected(items=others)
