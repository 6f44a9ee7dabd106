#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do programs with NVIDIA's runtime compute the same results in gate mode as with the driver alone?

Usage: gate_facts.py --drop-in DIR --rows FILE [--limit S] [--program-limit S] [--at-once N]
                     [--programs DIR] [--only NAME]...

Each program of the directory (gate_programs next to this script) runs twice at the same time: natively, and with the
libcuda.so.1 of DIR in front of the driver. Both runs use the Python that runs this script. Rows have the format of
run.sh, are written immediately, and name the differences. Exit status 0: every program was run.
"""
import argparse
import collections
import concurrent.futures
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# Programs, beginning with those that take longest to import.
NAMES = ("torch_eager", "jax_matmul", "triton_kernel", "torch_compile", "cupy_arrays", "numba_kernel")
LAUNCHES = re.compile(r"cu(Launch(?!HostFunc)|GraphLaunch)")
NEAR = 1e-5  # Relative tolerance for sums whose order may differ.
NAMES_IN_NOTE = 12

# Variables that name cache directories. They are set for each run, so that it compiles its kernels itself and leaves no
# files in a home directory.
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUPY_CACHE_DIR")
GRACE = 10  # Seconds by which the gated run may exceed the native run's limit.

TOO_LATE = "it did not end within its time"
Outcome = collections.namedtuple("Outcome", "results missing problem")


class Rows:
    """Thread-safe."""

    def __init__(self, path):
        self._file = open(path, "a", encoding="utf-8")
        self._lock = threading.Lock()

    def add(self, what, value, note="", unit="-", kind="fact", must="-"):
        fields = (os.environ.get("GPUSHARED_GPU_PART", "gate"), what, value, unit, kind, must, note)
        line = "\t".join(re.sub(r"\s+", " ", str(field)) for field in fields)
        with self._lock:
            print(f"{what:64} {value} {note}", flush=True)
            self._file.write(line + "\n")
            self._file.flush()

    def rule(self, what, holds, note=""):
        self.add(what, int(holds), note, kind="rule", must="== 1")


def end(process):
    """Ends a program that is still running."""
    process.kill()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass  # The process hangs inside the driver.


def start(program, log, variables):
    caches = {variable: f"{log}.{variable}" for variable in CACHES}
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **caches, **variables}
    with open(log, "wb") as output, open(f"{log}.errors", "wb") as errors:
        # The program stays in this process's group, so that ending the group ends all programs.
        return subprocess.Popen([sys.executable, program], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                env=environment)


def outcome(process, log, until):
    """Returns the program's output; `problem` is None if it succeeded."""
    try:
        code = process.wait(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        end(process)
        code = None
    results, missing = {}, None
    for line in pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3 and words[0] in ("bits", "near"):
            results[words[1]] = words[2]
        elif words and words[0] == "missing":
            missing = line
    problem = None
    if code is None:
        problem = TOO_LATE
    elif code != 0:
        said = pathlib.Path(f"{log}.errors").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        problem = f"exit status {code}: {said[-1][:200] if said else ''}"
    elif not results and missing is None:
        problem = "it gave no results"
    return Outcome(results, missing, problem)


def is_same(native, gated):
    if native == gated:
        return True
    try:
        return math.isclose(float(native), float(gated), rel_tol=NEAR)
    except (TypeError, ValueError):
        return False


def traced(directory):
    """Returns all processes' counts combined: kind to name to count."""
    counts = collections.defaultdict(collections.Counter)
    for path in directory.glob("trace.*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            kind, name, count = line.split("\t")
            counts[kind][name] += int(count)
    return counts


def names_of(counter):
    names = [name for name, _ in counter.most_common(NAMES_IN_NOTE)]
    return ", ".join(names) + (", ..." if len(counter) > len(names) else "")


def tell_calls(name, counts, rows):
    for function in sorted(counts["calls"]):
        if LAUNCHES.match(function):
            rows.add(f"{name}: launches by {function}", counts["calls"][function])
    rows.add(f"{name}: calls through the gate", sum(counts["calls"].values()), names_of(counts["calls"]))
    rows.add(f"{name}: functions fetched by cuGetProcAddress", len(counts["fetched"]))
    for kind, what in (("passed", "fetched from the driver past the gate"), ("absent", "asked for, not in the driver")):
        if counts[kind]:
            rows.add(f"{name}: functions {what}", len(counts[kind]), names_of(counts[kind]))


def ask(name, options, rows, stop_at):
    """Runs one program on both sides."""
    what = f"{name}: same results through the gate"
    until = min(stop_at, time.monotonic() + options.program_limit)
    if until - time.monotonic() < 1:
        rows.add(what, "none", "not asked: no time was left")
        return
    program = options.programs / f"{name}.py"
    path = ":".join(filter(None, (str(options.drop_in), os.environ.get("LD_LIBRARY_PATH"))))
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        # The native side must not inherit the drop-in from this process's environment.
        native = start(program, directory / "native", {"GPUSHARED_MODE": ""})
        gated = start(program, directory / "gated", {"LD_LIBRARY_PATH": path, "GPUSHARED_MODE": "gate",
                                                  "GPUSHARED_GATE_TRACE": str(directory / "trace")})
        try:
            alone = outcome(native, directory / "native", until)
            if alone.missing or alone.problem:
                rows.add(what, "not installed" if alone.missing else "none",
                         alone.missing or f"natively: {alone.problem}")
                return
            behind = outcome(gated, directory / "gated", min(stop_at, until + GRACE))
            if behind.problem == TOO_LATE and time.monotonic() >= stop_at:
                rows.add(what, "none", "through the gate: no time was left")
                return
        finally:
            end(native)
            end(gated)
        counts = traced(directory)
        different = sorted(key for key in alone.results.keys() | behind.results.keys()
                           if not is_same(alone.results.get(key), behind.results.get(key)))
        # Without traced calls both sides ran natively, which would prove nothing.
        seen = sum(counts["calls"].values()) > 0
        note = behind.problem or behind.missing or (f"different: {', '.join(different)}" if different else "")
        if not note:
            note = ", ".join(sorted(alone.results)) if seen else "no call of the program passed the gate"
        rows.rule(what, not (behind.problem or behind.missing or different) and seen, note)
        tell_calls(name, counts, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drop-in", required=True, type=pathlib.Path)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--limit", type=float, default=90, help="seconds in all")
    parser.add_argument("--program-limit", type=float, default=40, help="seconds for one program")
    parser.add_argument("--at-once", type=int, default=max(2, os.cpu_count() // 2),
                        help="programs that run at one time, each twice")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE / "gate_programs")
    parser.add_argument("--only", action="append", metavar="NAME")
    options = parser.parse_args()
    options.drop_in = options.drop_in.resolve()
    for library in ("libcuda.so.1", "libcuda.so"):  # Numba requests the second one first.
        if not (options.drop_in / library).exists():
            parser.error(f"{options.drop_in} has no {library}")
    stop_at = time.monotonic() + options.limit
    rows = Rows(options.rows)
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        asked = [pool.submit(ask, name, options, rows, stop_at) for name in options.only or NAMES]
        for one in asked:
            one.result()


if __name__ == "__main__":
    main()
