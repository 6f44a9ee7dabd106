#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified Python programs on a GPU, through the drop-in: are their results correct, and what does sharing cost them?

Runs programs of tests/drop_in/programs with `gpusharedctl run`, without options and with --ptx. Without --ptx, Numba
and cuda-core pass machine code for the GPU, whose kernels cannot be preempted. A program is correct if its own checks
held and it had loaded only the drop-in as a driver. Then come programs that contain NVIDIA's runtime, which cannot work
with the drop-in: each must be rejected with one message and must not crash. The server is the one that GPUSHARED_SOCKET
names.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from rows import Rows

HERE = pathlib.Path(__file__).resolve().parent
# The program's name, and the module that it needs.
PROGRAMS = (("numba_add", "numba"), ("numba_streams", "numba"), ("cuda_core_add", "cuda.core"))
HEAT = "numba_heat"
# Programs with NVIDIA's runtime: the modules, one of which must be installed, and a program that needs a GPU.
RUNTIMES = (("PyTorch", ("torch",), "import torch; torch.zeros(1, device='cuda')"),
            ("CuPy", ("cupy",), "import cupy; cupy.zeros(1)"),
            ("JAX", ("jax_cuda13_plugin", "jax_cuda12_plugin"), "import jax; jax.devices('gpu')"))
# Prints which of its arguments can be imported.
FIND = """
import importlib.util, json, sys
def is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # A package that contains the module is missing.
        return False
print(json.dumps([name for name in sys.argv[1:] if is_there(name)]))
"""
# Runs a program as the main module, then prints which drivers this process has loaded.
RUN = """
import json, runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
with open("/proc/self/maps") as maps:
    files = {line.split(maxsplit=5)[5].strip() for line in maps if "/libcuda.so" in line}
print("\\n" + json.dumps(sorted(files)))
"""
DROP_IN = "/drop_in/"  # Part of the drop-in's path, and of no driver's.
MESSAGE = "gpushared: "  # Prefix of the drop-in's messages to users.


class Ran:
    """The results of a program. A program without an exit status did not finish, for the reason in `err`."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def why(self):
        if self.status is None:
            return self.err
        lines = [line for line in self.err.splitlines() if re.search(r"\w", line)] or ["it says nothing"]
        ended = f"ended by signal {-self.status}" if self.status < 0 else f"exit status {self.status}"
        return f"{ended}: {lines[-1][:200]}"

    def drivers(self):
        lines = self.out.splitlines()
        return json.loads(lines[-1]) if self.status == 0 and lines else []

    def problem(self, wanted):
        """Returns why the program failed or did not use the wanted driver, or an empty string."""
        if self.status != 0:
            return self.why()
        others = [file for file in self.drivers() if (DROP_IN in file) != (wanted == "drop-in")]
        if others:
            return f"its driver was {others[0]}"
        return "" if self.drivers() else "it loaded no driver"


class Facts:
    def __init__(self, options):
        self.options = options
        self.rows = Rows(options.rows, options.part)
        self.end = time.monotonic() + options.limit
        modules = sorted({module for _, module in PROGRAMS} | {each for _, names, _ in RUNTIMES for each in names})
        found = self.run([options.python, "-c", FIND, *modules])
        if found.status != 0:
            raise SystemExit(f"dropin_facts.py: {options.python} does not run: {found.why()}")
        self.modules = json.loads(found.out)

    def run(self, command):
        limit = min(self.options.limit_each, self.end - time.monotonic())
        if limit < 1:
            return Ran(None, "", "no time was left")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", start_new_session=True)
        try:
            out, err = process.communicate(timeout=limit)
            return Ran(process.returncode, out, err)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Ran(None, "", f"still running after {limit:.0f} s")

    def shared(self, command, *options):
        return self.run([self.options.gpusharedctl, "run", "--mode", "submit", *options, "--", *command])

    def program(self, name, *arguments):
        return [self.options.python, "-c", RUN, str(self.options.programs / f"{name}.py"), *arguments]

    def compute(self, name, module, *arguments):
        """Runs both variants through the drop-in. Returns those that ran correctly, by the label of their rows."""
        ran_right = {}
        for label, options in (("through the drop-in", ()), ("through the drop-in, --ptx", ("--ptx",))):
            if module not in self.modules:
                self.rows.add(f"{name} computes right {label}", "not installed", note=module)
                continue
            ran = self.shared(self.program(name, *arguments), *options)
            problem = ran.problem("drop-in")
            self.rows.rule(f"{name} computes right {label}", not problem, problem)
            if not problem:
                ran_right[label] = ran
        return ran_right

    def heat(self):
        """Measures the steps per second of HEAT without the server, and of both variants through the server."""
        seconds = str(self.options.heat_seconds)
        native = None
        if "numba" in self.modules:
            ran = self.run(self.program(HEAT, seconds))
            problem = ran.problem("native")
            native = None if problem else steps_per_s(ran.out)
            self.rows.add(f"{HEAT}: native", native, "steps/s", note=problem)
        for label, ran in self.compute(HEAT, "numba", seconds).items():
            shared = steps_per_s(ran.out)
            self.rows.add(f"{HEAT}: {label}", shared, "steps/s")
            if native and shared:
                self.rows.add(f"{HEAT}: {label} / native", shared / native)

    def reject(self, label, modules, text):
        if not set(modules) & set(self.modules):
            self.rows.add(label, "not installed", note=" or ".join(modules))
            return
        ran = self.shared([self.options.python, "-c", text])
        messages = [line for line in ran.err.splitlines() if line.startswith(MESSAGE)]
        is_rejected = ran.status is not None and ran.status > 0 and len(messages) == 1
        note = messages[0] if is_rejected else f"{len(messages)} messages; {ran.why()}"
        self.rows.rule(f"{label} is rejected with one sentence and does not crash", is_rejected, note)


def steps_per_s(text):
    found = re.search(r"(\d+) steps in ([0-9.]+) s", text)
    return int(found[1]) / float(found[2]) if found else None


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpusharedctl", required=True, help="the program; its drop-in lies beside it")
    parser.add_argument("--rows", required=True, help="file to append rows to")
    parser.add_argument("--part", default="dropin", help="name of the part in rows")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parent / "drop_in/programs", help="their directory")
    parser.add_argument("--python", default=sys.executable, help="what runs the programs")
    parser.add_argument("--limit-each", type=float, default=20, help="seconds of a program")
    parser.add_argument("--limit", type=float, default=60, help="seconds of all")
    parser.add_argument("--heat-seconds", type=float, default=2, help=f"seconds in which {HEAT} counts steps")
    options = parser.parse_args(arguments)
    if not os.access(options.gpusharedctl, os.X_OK):
        parser.error(f"'{options.gpusharedctl}' is no program")
    missing = [name for name in (*(name for name, _ in PROGRAMS), HEAT) if not (options.programs / f"{name}.py").exists()]
    if missing:
        parser.error(f"no {missing[0]}.py in '{options.programs}'")
    return options


def main(arguments):
    facts = Facts(parse(arguments))
    for name, module in PROGRAMS:
        facts.compute(name, module)
    facts.heat()
    # None of these reaches the GPU, and each takes seconds to be imported.
    with concurrent.futures.ThreadPoolExecutor(len(RUNTIMES)) as pool:
        list(pool.map(lambda runtime: facts.reject(*runtime), RUNTIMES))


if __name__ == "__main__":
    main(sys.argv[1:])
