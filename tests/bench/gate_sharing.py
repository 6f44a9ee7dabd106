#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost and the effect of gate mode, on a modelled GPU that all processes share (tests/gate/shared_gpu.cpp).

Usage: gate_sharing.py BUILD_DIR [--rounds N] [--json FILE]

Prints four tables:
- the nanoseconds that the gate adds to a launch, with a driver whose kernels take no time;
- the request times of a serving program: alone, and at the same time as a training program, ungated and gated, for
  training kernels of three lengths;
- the share of the GPU that each of two training programs gets, under policies with and without shares;
- how long a waiting program still waits after the program that occupies the GPU, or the server, has ended or hangs.

Each row contains the median of its rounds and, in brackets, the lowest and the highest value. The rounds alternate with
those of the baseline. The serving program always has real-time priority, because the programs, the model of the GPU and
the server compete for the cores of a small machine, and this competition is not to be measured. If the user may not set
real-time priority, the output says so.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

KERNELS_US = (20, 50, 200)
TRAIN_MS = 2200
REQUESTS = 300


def realtime():
    """Returns the command prefix that gives a program real-time priority; empty if the user may not set it."""
    command = ["chrt", "-f", "1"]
    is_allowed = shutil.which("chrt") is not None and subprocess.run([*command, "true"], check=False).returncode == 0
    return command if is_allowed else []


class Bench:
    def __init__(self, build, directory):
        self.program = build / "bin/gated_program"
        self.binaries = build / "bin"
        self.driver = build / "tests/gate/shared_gpu"
        self.drop_in = build / "lib/drop_in"
        self.directory = pathlib.Path(directory)
        self.socket = self.directory / "socket"

    def environment(self, client_class=None, shares_gpu=True):
        """Returns a program's environment. If the class is None, the program calls the driver directly; if it is
        "none", the program uses the gate, but finds no server."""
        directories = [str(self.driver)]
        variables = dict(os.environ)
        if shares_gpu:
            variables["SHARED_GPU"] = str(self.directory / "gpu")
        if client_class is not None:
            directories.insert(0, str(self.drop_in))
            socket = self.socket if client_class != "none" else self.directory / "no-server"
            variables |= {"GPUSHARED_MODE": "gate", "GPUSHARED_SOCKET": str(socket)}
            if client_class != "none":
                variables["GPUSHARED_CLASS"] = client_class
        return variables | {"LD_LIBRARY_PATH": ":".join(directories)}

    def start(self, client_class, *arguments, shares_gpu=True, is_realtime=False):
        before = realtime() if is_realtime else []
        return subprocess.Popen([*before, self.program, *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                                env=self.environment(client_class, shares_gpu))

    @staticmethod
    def result(process):
        text, _ = process.communicate(timeout=60)
        if process.returncode != 0:
            raise SystemExit(f"gated_program failed: {text}")
        return json.loads(text)

    @contextlib.contextmanager
    def server(self, policy):
        command = [self.binaries / "gpushared", "--device", "cpu:0", "--policy", policy, "--socket", self.socket]
        with open(self.directory / "log", "w", encoding="utf-8") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 20
            while subprocess.run([self.binaries / "gpusharedctl", "--socket", self.socket, "status"],
                                 capture_output=True, check=False).returncode != 0:
                if time.monotonic() > deadline:
                    raise SystemExit("the server does not answer")
                time.sleep(0.05)
            yield server
        finally:
            server.terminate()
            server.wait(20)

    def totals(self, client_class):
        text = subprocess.run([self.binaries / "gpusharedctl", "--socket", self.socket, "status", "--json"],
                              capture_output=True, text=True, check=True).stdout
        totals = json.loads(text)["devices"][0]["totals"]
        return totals["classes"][client_class]

    def overhead(self, client_class):
        return self.result(self.start(client_class, "overhead", shares_gpu=False))["ns"]

    def serve(self, client_class):
        return self.result(self.start(client_class, "serve", "--requests", REQUESTS, is_realtime=True))

    def pair(self, low, high, kernel_us):
        """Runs a serving and a training program; returns the first one's request times, the second one's GPU share."""
        train = self.start(low, "train", "--ms", TRAIN_MS, "--kernel", kernel_us, "--batch", 2000)
        time.sleep(0.3)
        served = self.serve(high)
        return served, self.result(train)["part"]

    def shares(self, client_class):
        programs = [self.start(client_class, "train", "--ms", TRAIN_MS, "--kernel", us) for us in (20, 200)]
        return [self.result(program)["part"] for program in programs]


def spread(values, digits=0):
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def measure_overhead(bench, rounds):
    ways = {"the driver alone": None, "gate, no server": "none", "class high": "high", "class low": "low"}
    found = {way: [] for way in ways}
    added = {way: [] for way in ways}
    with bench.server("priority"):
        # Another client is connected, because without one the window is unlimited and launches need no marks.
        beside = bench.start("high", "serve", "--requests", 100_000, "--every", 1_000_000, shares_gpu=False)
        try:
            for _ in range(rounds):
                for way, client_class in ways.items():
                    found[way].append(bench.overhead(client_class))
                    added[way].append(found[way][-1] - found["the driver alone"][-1])
        finally:
            beside.kill()
            beside.wait()
    print(f"\n{'ns per launch':34} {'in all':>22} {'added':>22}")
    for way in ways:
        print(f"{way:34} {spread(found[way], 1):>22} {spread(added[way], 1):>22}")
    return {way: {"ns": found[way], "added": added[way]} for way in ways}


def measure_pairs(bench, rounds):
    print(f"\n{'kernels of the low program':34} {'p50, us':>20} {'p99, us':>24} {'low, % of the GPU':>20} {'stop, us':>9}")
    rows = {}
    for kernel_us in KERNELS_US:
        found = {way: {"p50": [], "p99": [], "part": [], "stop": []} for way in ("alone", "ungated", "gated")}
        for _ in range(rounds):
            with bench.server("priority"):
                for way, (low, high) in {"ungated": (None, None), "gated": ("low", "high")}.items():
                    served, part = bench.pair(low, high, kernel_us)
                    for each in ("p50", "p99"):
                        found[way][each].append(served[each])
                    found[way]["part"].append(100 * part)
                low = bench.totals("low")
                found["gated"]["stop"].append(1e6 * low["stop_time"]["sum_s"] / max(low["stops"], 1))
                served = bench.serve("high")
                for each in ("p50", "p99"):
                    found["alone"][each].append(served[each])
        for way, row in found.items():
            print(f"{f'{kernel_us} us, {way}':34} {spread(row['p50']):>20} {spread(row['p99']):>24} "
                  f"{spread(row['part'], 1) if row['part'] else '':>20} {spread(row['stop']) if row['stop'] else '':>9}")
        rows[kernel_us] = found
    return rows


def measure_shares(bench, rounds):
    print(f"\n{'two training programs':34} {'kernels of 20 us, %':>22} {'kernels of 200 us, %':>22}")
    rows = {}
    for policy in ("round_robin", "fair", "fifo", "priority"):
        found = {"ungated": ([], []), "gated": ([], [])}
        for _ in range(rounds):
            with bench.server(policy):
                for way, client_class in {"ungated": None, "gated": "low"}.items():
                    for parts, part in zip(found[way], bench.shares(client_class)):
                        parts.append(100 * part)
        for way, parts in found.items():
            if way == "ungated" and policy != "round_robin":
                continue
            print(f"{f'{policy}' if way == 'gated' else way:34} {spread(parts[0], 1):>22} {spread(parts[1], 1):>22}")
        rows[policy] = found
    return rows


def measure_ends(bench, rounds):
    """Measures how long a waiting launch of class low still waits after the client of class high that occupies the GPU
    has been killed, or after the worker has been killed or stopped."""
    print(f"\n{'a launch that waits returns after':34} {'ms':>22}")
    rows = {}
    for what in ("the high client is killed", "the worker is killed", "the worker hangs"):
        rows[what] = []
        for _ in range(3 * rounds):
            with bench.server("priority") as server:
                low = bench.start("low", "train", "--ms", 2500, "--kernel", 50)
                time.sleep(0.2)
                high = bench.start("high", "train", "--ms", 60_000, "--kernel", 50)
                time.sleep(0.5)
                children = subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=True)
                victim = high.pid if what == "the high client is killed" else int(children.stdout.split()[0])
                at = time.monotonic_ns()
                os.kill(victim, signal.SIGSTOP if what == "the worker hangs" else signal.SIGKILL)
                waits = bench.result(low)["waits"]
                high.kill()
                high.wait()
                if what == "the worker hangs":
                    os.kill(victim, signal.SIGCONT)
                # If no launch was waiting at that time, the round has no result.
                rows[what] += [(end - at) / 1e6 for end in waits if end > at][:1]
        print(f"{what:34} {spread(rows[what], 1) if rows[what] else 'not seen':>22}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.rounds} rounds")
    if not realtime():
        print("the serving program has no real-time priority: request times contain waiting for a core")
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options.build.resolve(), directory)
        rows = {"overhead": measure_overhead(bench, options.rounds), "pairs": measure_pairs(bench, options.rounds),
                "shares": measure_shares(bench, options.rounds), "ends": measure_ends(bench, options.rounds)}
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
