#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel that contains the Python package, the server and its tools.

Usage: make_wheel.py PORTABLE_BUILD OUT_DIR

PORTABLE_BUILD is a build directory of the preset `portable`, whose programs need nothing but libc. The interpreter that
runs this script needs the packages of requirements.txt. Prints the wheel's path.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

PYTHON_PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "client_lib/python"
COMPONENTS = ("server", "tools", "drop_in")
# The programs, and the functions of gpushared._programs that start them.
PROGRAMS = {"gpushared": "server", "gpusharedctl": "ctl", "gpushared-web": "web", "gpushared-mps-control": "mps_control",
            "gpushared-sim": "simulator"}


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr)


def only(directory, pattern):
    found = list(directory.glob(pattern))
    assert len(found) == 1, (directory, pattern, found)
    return found[0]


def main(build, out):
    build, out = pathlib.Path(build), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("gpushared-*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        run(sys.executable, "-m", "pip", "-q", "wheel", "--no-build-isolation", "--no-deps", "-w", scratch / "base",
            PYTHON_PACKAGE)
        run(sys.executable, "-m", "wheel", "unpack", "-d", scratch, only(scratch / "base", "*.whl"))
        package = only(scratch, "gpushared-*")
        tree = package / "gpushared/_tree"
        for component in COMPONENTS:
            run("cmake", "--install", build, "--component", component, "--prefix", tree, "--strip")
        missing = [program for program in PROGRAMS if not (tree / "bin" / program).exists()]
        assert not missing, missing
        # Wheels cannot contain links.
        for link in [path for path in tree.rglob("*") if path.is_symlink()]:
            target = link.resolve(strict=True)
            link.unlink()
            shutil.copy2(target, link)
        lines = [f"{program} = gpushared._programs:{function}\n" for program, function in PROGRAMS.items()]
        (only(package, "*.dist-info") / "entry_points.txt").write_text("[console_scripts]\n" + "".join(lines))
        (scratch / "whole").mkdir()
        run(sys.executable, "-m", "wheel", "pack", "-d", scratch / "whole", package)
        run(sys.executable, "-m", "auditwheel", "repair", "-w", out, only(scratch / "whole", "*.whl"))
    print(only(out, "*.whl"))


if __name__ == "__main__":
    main(*sys.argv[1:])
