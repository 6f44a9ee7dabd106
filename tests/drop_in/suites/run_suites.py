#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs test-suites that others wrote, unmodified, over the drop-in on the cpu device.

Usage: run_suites.py BIN_DIR CACHE_DIR TABLE [SUITE[/FILE] ...]

Each file of tests runs in a process of its own. One line per file goes to TABLE (tab-separated) and
to stdout: passed, failed, skipped; the output of each file lies beside TABLE. Nothing here judges:
a suite's failures are read and explained by people.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "programs"))
from run_programs import NUMBA, NUMPY, Server, command_of, environment_of, surroundings_of  # noqa: E402

PACKAGES = (*NUMBA, NUMPY, "cffi==2.1.1", "psutil==7.2.2", "ml_dtypes==0.6.0", "pytest==9.2.0", "filecheck==1.0.6")
# Suites by name, and their folders of files.
NUMBA_TESTS = "numba_cuda/numba/cuda/tests"
SUITES = {f"numba_{part}": part for part in ("cudadrv", "cudapy", "doc_examples", "nrt")}
SECONDS_MAX = 400


def files_of(python, part):
    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                              capture_output=True, text=True, check=True).stdout.strip()
    return sorted(path.stem for path in (pathlib.Path(packages) / NUMBA_TESTS / part).glob("test_*.py"))


def counts_of(said):
    """Passed, failed and skipped tests of a run of unittest; None when it did not end."""
    ran = re.search(r"^Ran (\d+) tests? in", said, re.M)
    verdict = re.search(r"^(OK|FAILED)(?: \((.*)\))?$", said, re.M)
    if ran is None or verdict is None:
        # A file that needs a package that is not here leaves as a whole.
        return (0, 0, 1) if re.search(r"^Skipped: ", said, re.M) else None
    found = dict(re.findall(r"([a-z ]+)=(\d+)", verdict.group(2) or ""))
    number = {name.strip(): int(count) for name, count in found.items()}
    # A test fails once, however many of its parts do.
    failed = len(set(re.findall(r"^(?:FAIL|ERROR): (\S+ \S+)", said, re.M))) + number.get("unexpected successes", 0)
    skipped = number.get("skipped", 0)
    return int(ran.group(1)) - failed - skipped, failed, skipped


def run_file(python, bin_dir, server, part, file, home):
    command = [*command_of(bin_dir, server), python, "-m", "numba.runtests", "-v", f"numba.cuda.tests.{part}.{file}"]
    try:
        ran = subprocess.run(command, env=surroundings_of({}, home), capture_output=True,
                             text=True, errors="replace", timeout=SECONDS_MAX)
        return ran.stdout + ran.stderr + f"\nexit code {ran.returncode}\n"
    except subprocess.TimeoutExpired as late:
        return f"{late.stdout}\n{late.stderr}\ntook longer than {SECONDS_MAX} s\n"


def main(bin_dir, cache, table, *wanted):
    bin_dir, cache, table = pathlib.Path(bin_dir).resolve(), pathlib.Path(cache).resolve(), pathlib.Path(table).resolve()
    totals = {}
    with tempfile.TemporaryDirectory() as scratch, Server(bin_dir, scratch) as server, table.open("w") as out:
        for suite, part in SUITES.items():
            if wanted and not any(want.split("/")[0] == suite for want in wanted):
                continue
            python, reason = environment_of("numba_suites", PACKAGES, cache, bin_dir.parent / "lib/drop_in")
            if reason is not None:
                print(f"skipped {suite}: {reason}", flush=True)
                continue
            for file in files_of(python, part):
                if wanted and suite not in wanted and f"{suite}/{file}" not in wanted:
                    continue
                said = run_file(python, bin_dir, server, part, file, scratch)
                (table.parent / f"{suite}.{file}.log").write_text(said)
                counts = counts_of(said)
                line = "\t".join(map(str, (suite, file, *(counts or ("did not end", "", "")))))
                print(line, flush=True)
                print(line, file=out, flush=True)
                total = totals.setdefault(suite, [0, 0, 0, 0])
                for i, count in enumerate(counts or ()):
                    total[i] += count
                total[3] += counts is None
    for suite, (passed, failed, skipped, unended) in totals.items():
        print(f"{suite}: {passed} passed, {failed} failed, {skipped} skipped; {unended} files did not end")
    return 0 if totals else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
