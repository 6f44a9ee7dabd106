#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the Python package into a separate virtual environment, and runs its tests, mypy and the notebooks' recipe.

Usage: run_python.py BIN_DIR CACHE_DIR [pytest's arguments]

The environment is kept under CACHE_DIR. If its packages are not available, the tests are skipped with the reason. The
job next to the sample server uses the environment of the stage dropin, in the directory next to CACHE_DIR.
"""
import os
import pathlib
import shutil
import subprocess
import sys

DIRECTORY = pathlib.Path(__file__).parent
ROOT = DIRECTORY.parents[1]
sys.path.insert(0, str(DIRECTORY.parent / "drop_in/programs"))
from run_programs import NUMBA, NUMPY, environment_of  # noqa: E402

PACKAGES = ("scikit-build-core==1.1.2", "nanobind==3.1.0", "nanobind-backend==1.0.0", "ninja==1.13.2", "numpy==2.4.6", "pytest==9.2.0",
            "mypy==2.4.1", "aiohttp==3.14.5")
JUPYTER = ("ipykernel==7.4.0", "jupyter_client==8.10.0")


def environment(cache):
    """Returns the Python of the environment, or why there is none."""
    directory = cache / "venv"
    python, done = directory / "bin/python", directory / "packages"
    if done.exists() and done.read_text() == "\n".join(PACKAGES):
        return python, None
    shutil.rmtree(directory, ignore_errors=True)
    for command in ([sys.executable, "-m", "venv", directory], [python, "-m", "pip", "-q", "install", *PACKAGES]):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            said = (made.stderr or made.stdout).strip().splitlines()
            return None, said[-1] if said else "pip failed"
    done.write_text("\n".join(PACKAGES))
    return python, None


def main(bin_dir, cache, *arguments):
    bin_dir, cache = pathlib.Path(bin_dir).resolve(), pathlib.Path(cache).resolve()
    python, reason = environment(cache)
    if reason is not None:
        print(f"skipped: {reason}\npython: 0 passed, 0 failed, 1 skipped")
        return 0
    numba, reason = environment_of("numba_add", (*NUMBA, NUMPY), cache.parent / "dropin", bin_dir.parent / "lib/drop_in")
    print("python: no Numba: " + reason if reason else f"python: Numba is in {numba}", flush=True)
    jupyter, no_jupyter = environment_of("notebooks", (*NUMBA, NUMPY, *JUPYTER), cache.parent / "dropin", bin_dir.parent / "lib/drop_in")
    if no_jupyter is not None:
        print("python: no Jupyter: " + no_jupyter, flush=True)
    launcher = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA", "GPUSHARED"))}
    surroundings = {**kept, **launcher, "GPUSHARED_BIN": str(bin_dir), "NUMBA_PYTHON": "" if reason else str(numba),
                    "PATH": f"{python.parent}:{os.environ['PATH']}"}
    # Without isolation the build finds its packages where they were, and recompiles only what has changed.
    steps = ([python, "-m", "pip", "-q", "install", "--no-build-isolation", "--no-deps", "--force-reinstall",
              ROOT / "client_lib/python"],
             [python, "-m", "mypy", "--strict", "-p", "gpushared"],
             [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", DIRECTORY, *arguments])
    if no_jupyter is None:
        surroundings["PYTHON"] = str(jupyter)
        steps += ([ROOT / "docs/recipes/notebooks.sh"],)
    for step in steps:
        ran = subprocess.run(step, env=surroundings, cwd=cache, check=False)
        if ran.returncode != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
