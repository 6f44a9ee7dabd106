#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs third-party test suites, unmodified, with the drop-in on the cpu device.

Usage: run_suites.py BIN_DIR CACHE_DIR TABLE [SUITE[/FILE] ...]

The tests of some packages exist only in their repositories, which no registry has. Such a suite runs if the repository,
at the tag in SUITES, has been unpacked as CACHE_DIR/sources/PACKAGE-VERSION.

Each file of tests runs in a separate process. One line per file goes to TABLE (tab-separated) and to stdout: passed,
failed, skipped; the output of each file is written next to TABLE. This program does not fail because of failed tests,
because a suite's failures need a human explanation.
"""
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import typing

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "programs"))
from run_programs import NUMBA, NUMPY, PATH, Server, command_of, environment_of, surroundings_of  # noqa: E402

DIRECTORY = pathlib.Path(__file__).parent
PYTEST = ("pytest==9.2.0", "pytest-timeout==2.4.0")
TEST_SECONDS_MAX = 150


class Suite(typing.NamedTuple):
    """Tests of a package: in its wheel, run by Numba's runner, or in its published sources, run by pytest."""

    packages: tuple
    seconds_max: int  # Time limit of each file.
    part: str = ""  # Part of Numba's tests; empty for a suite from published sources.
    surroundings: dict = {}
    tag: str = ""  # Tag of the repository with the tests, if the published sources contain none.
    directory: str = "test"  # Directory of the tests in the sources.
    plugins: tuple = ()  # Plugins of pytest, in this directory.
    too_large: str = ""  # Tests that would need too much memory on the server's machine, in the syntax of pytest's -k.

    def environment(self):
        return "numba_suites" if self.part else f"{self.packages[0].split('==')[0]}_suite"


NUMBA_PACKAGES = (*NUMBA, NUMPY, "cffi==2.1.1", "psutil==7.2.2", "ml_dtypes==0.6.0", "pytest==9.2.0", "filecheck==1.0.6")
NUMBA_TESTS = "numba_cuda/numba/cuda/tests"
SUITES = {
    **{f"numba_{part}": Suite(NUMBA_PACKAGES, 400, part) for part in ("cudadrv", "cudapy", "doc_examples", "nrt")},
    "pycuda": Suite(("pycuda==2026.1", NUMPY, *PYTEST), 3000, too_large="8gb or 16gb or big_array_elementwise or big_array_scan"),
    "tinygrad": Suite(("tinygrad==0.14.0", NUMPY, *PYTEST), 600, surroundings={"DEV": "CUDA"}),
    "drjit": Suite(("drjit==1.5.0", NUMPY, *PYTEST), 900, tag="v1.5.0", directory="tests", plugins=("cuda_types_only",)),
    "taichi": Suite(("taichi==1.7.4", NUMPY, *PYTEST, "pytest-rerunfailures==16.7", "scipy==1.17.1"), 900, tag="v1.7.4", directory="tests/python",
                    surroundings={"TI_WANTED_ARCHS": "cuda", "TI_OFFLINE_CACHE": "0"}),
}


def directory_of(package, cache):
    return cache / "sources" / package.replace("==", "-")


def sources_of(python, package, cache, drop_in):
    """Returns the unpacked sources of a package, as published by its authors."""
    directory = directory_of(package, cache)
    if not directory.exists():
        subprocess.run([python, "-m", "pip", "-q", "download", "--no-deps", "--no-binary", package.split("==")[0], "-d", directory.parent, package], check=True,
                       env={**os.environ, "PATH": PATH, "LIBRARY_PATH": str(drop_in)})
        with tarfile.open(directory.parent / f"{directory.name}.tar.gz") as archive:
            archive.extractall(directory.parent, filter="data")
    return directory


def files_of(suite, python, cache, drop_in):
    if suite.part:
        packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                                  capture_output=True, text=True, check=True).stdout.strip()
        directory = pathlib.Path(packages) / NUMBA_TESTS / suite.part
    else:
        directory = sources_of(python, suite.packages[0], cache, drop_in) / suite.directory
    return sorted(directory.glob("test_*.py"))


def counts_of(said):
    """Returns the passed, failed and skipped tests of a run of unittest or pytest; None if it did not finish.

    Tests that their authors expect to fail count as skipped.
    """
    closing = re.search(r"^=+ (.*) in [0-9.]+s(?: \([0-9:]+\))? =+$", said, re.M)
    if closing:
        number = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", closing.group(1))}
        return (number.get("passed", 0), sum(number.get(name, 0) for name in ("failed", "error", "errors", "xpassed")),
                number.get("skipped", 0) + number.get("xfailed", 0))
    ran = re.search(r"^Ran (\d+) tests? in", said, re.M)
    verdict = re.search(r"^(OK|FAILED)(?: \((.*)\))?$", said, re.M)
    if ran is None or verdict is None:
        # A file that needs a missing package is skipped as a whole.
        return (0, 0, 1) if re.search(r"^Skipped: ", said, re.M) else None
    found = dict(re.findall(r"([a-z ]+)=(\d+)", verdict.group(2) or ""))
    number = {name.strip(): int(count) for name, count in found.items()}
    # A test with several failed subtests counts as one failure.
    failed = len(set(re.findall(r"^(?:FAIL|ERROR): (\S+ \S+)", said, re.M))) + number.get("unexpected successes", 0)
    skipped = number.get("skipped", 0)
    return int(ran.group(1)) - failed - skipped, failed, skipped


def run_file(suite, python, bin_dir, server, file, home):
    if suite.part:
        tests = ["-m", "numba.runtests", "-v", f"numba.cuda.tests.{suite.part}.{file.stem}"]
    else:
        some = ["-k", f"not ({suite.too_large})"] if suite.too_large else []
        plugins = [part for plugin in suite.plugins for part in ("-p", plugin)]
        tests = ["-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", *plugins, f"--timeout={TEST_SECONDS_MAX}", *some, file]
    surroundings = {**suite.surroundings, **({"PYTHONPATH": str(DIRECTORY)} if suite.plugins else {})}
    try:
        ran = subprocess.run([*command_of(bin_dir, server), python, *tests], env=surroundings_of(surroundings, home),
                             capture_output=True, text=True, errors="replace", timeout=suite.seconds_max, cwd=home)
        return ran.stdout + ran.stderr + f"\nexit code {ran.returncode}\n"
    except subprocess.TimeoutExpired as late:
        return f"{late.stdout}\n{late.stderr}\ntook longer than {suite.seconds_max} s\n"


def main(bin_dir, cache, table, *wanted):
    bin_dir, cache, table = pathlib.Path(bin_dir).resolve(), pathlib.Path(cache).resolve(), pathlib.Path(table).resolve()
    totals = {}
    with tempfile.TemporaryDirectory() as scratch, Server(bin_dir, scratch) as server, table.open("w") as out:
        for name, suite in SUITES.items():
            if wanted and not any(want.split("/")[0] == name for want in wanted):
                continue
            drop_in = bin_dir.parent / "lib/drop_in"
            if suite.tag and not directory_of(suite.packages[0], cache).exists():
                print(f"skipped {name}: tag {suite.tag} of its repository is not in {directory_of(suite.packages[0], cache)}", flush=True)
                continue
            python, reason = environment_of(suite.environment(), suite.packages, cache, drop_in)
            if reason is not None:
                print(f"skipped {name}: {reason}", flush=True)
                continue
            for file in files_of(suite, python, cache, drop_in):
                if wanted and name not in wanted and f"{name}/{file.stem}" not in wanted:
                    continue
                said = run_file(suite, python, bin_dir, server, file, scratch)
                (table.parent / f"{name}.{file.stem}.log").write_text(said)
                counts = counts_of(said)
                line = "\t".join(map(str, (name, file.stem, *(counts or ("did not end", "", "")))))
                print(line, flush=True)
                print(line, file=out, flush=True)
                total = totals.setdefault(name, [0, 0, 0, 0])
                for i, count in enumerate(counts or ()):
                    total[i] += count
                total[3] += counts is None
    for name, (passed, failed, skipped, unended) in totals.items():
        print(f"{name}: {passed} passed, {failed} failed, {skipped} skipped; {unended} files did not end")
    return 0 if totals else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
