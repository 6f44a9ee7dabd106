# SPDX-License-Identifier: Apache-2.0
"""The programs of gpushared that a wheel may contain. Each function but find replaces this process with a program."""

import os
import pathlib
import shutil
import sys
from typing import NoReturn

# Directory with the bin and lib of a server's installation. Missing if pip has built the package from source.
_TREE = pathlib.Path(__file__).parent / "_tree"


def find(program: str) -> str:
    """Returns the path of a program of this package, or else of the PATH. Raises FileNotFoundError."""
    path = _TREE / "bin" / program
    if path.exists():
        return str(path)
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"there is no program '{program}': this package was built without the server, and the "
                                "PATH has none")
    return found


def _become(program: str) -> NoReturn:
    path = _TREE / "bin" / program
    os.execv(path, [str(path), *sys.argv[1:]])


def server() -> NoReturn:
    _become("gpushared")


def ctl() -> NoReturn:
    _become("gpusharedctl")


def web() -> NoReturn:
    _become("gpushared-web")


def simulator() -> NoReturn:
    _become("gpushared-sim")


def mps_control() -> NoReturn:
    _become("gpushared-mps-control")
