#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the latency of serve next to train with and without watchers, in pairs of rounds.

The watchers are a reader of the web page's events, a scraper of the metrics (once a second), and a trace of all
executions.

Usage: watch_bench.py BIN_DIR [--pairs N] [--requests N] [--json FILE]
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "samples"), str(ROOT / "tests/support")]
from demo_report import interval, percentile
from waiting import until

LOAD, LATENCY_TARGET_MS = 0.3, 25
SERVE_BATCH, TRAIN_BATCH = 16, 64
PATIENCE_S = 30


def environment(binaries):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    cache = binaries.parent / "CMakeCache.txt"
    build = re.search(r"CMAKE_BUILD_TYPE:\w+=(\w+)", cache.read_text(encoding="utf-8")) if cache.exists() else None
    return [f"cpu: {cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} cores", f"kernel: {platform.release()}",
            f"build: {build.group(1) if build else 'unknown'}"]


def end(program):
    program.send_signal(signal.SIGTERM)
    program.wait(timeout=PATIENCE_S)


class Page:
    """Reads the page's events, and the metrics each second, until it is closed. Counts both."""

    def __init__(self, address):
        self.address = address
        self.events = self.scrapes = 0
        self.is_over = threading.Event()
        self.stream = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        self.threads = [threading.Thread(target=target) for target in (self.read_events, self.scrape)]
        for thread in self.threads:
            thread.start()

    def read_events(self):
        self.stream.request("GET", "/events")
        answer = self.stream.getresponse()
        while not self.is_over.is_set() and (line := answer.readline()):
            self.events += line.startswith(b"data:")

    def scrape(self):
        while not self.is_over.wait(1):
            connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
            connection.request("GET", "/metrics")
            self.scrapes += b"gpushared_launches_total" in connection.getresponse().read()
            connection.close()

    def close(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        self.stream.close()


class Bench:
    """A server with the client `train`, next to which rounds of the client `serve` are run."""

    def __init__(self, binaries, directory, requests):
        self.binaries, self.directory, self.requests = binaries, directory, requests
        self.socket = directory / "gpushared.sock"
        self.environment = {**os.environ, "GPUSHARED_SOCKET": str(self.socket)}
        self.service_ms = None
        self.events = self.scrapes = 0
        self.traced = {"slices": 0, "lost": 0}

    def start(self, name, *arguments, **more):
        return subprocess.Popen([self.binaries / name, *map(str, arguments)], env=self.environment, cwd=ROOT,
                                **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more})

    def run(self, name, *arguments):
        return subprocess.run([self.binaries / name, *map(str, arguments)], env=self.environment, cwd=ROOT, check=True,
                              capture_output=True, text=True, timeout=120).stdout

    @contextlib.contextmanager
    def served(self):
        programs = [self.start("gpushared", "--socket", self.socket, "--policy", "priority")]
        try:
            until("the server answers", lambda: subprocess.run([self.binaries / "gpusharedctl", "status"], env=self.environment,
                                                               check=False, capture_output=True).returncode == 0)
            self.run("train", "--text", "LICENSE", "--model", self.directory / "model", "--batch", TRAIN_BATCH, "--steps", 20)
            alone = [self.serve("--requests", 1)["service_ms"] for _ in range(3)]
            self.service_ms = statistics.median(alone)
            programs.append(self.start("train", "--text", "LICENSE", "--batch", TRAIN_BATCH, "--steps", 0, "--seconds", 3600))
            until("train has connected", lambda: '"train"' in self.run("gpusharedctl", "ps", "--json"))
            yield
        finally:
            for program in reversed(programs):
                end(program)

    def serve(self, *more):
        told = self.directory / "serve.json"
        self.run("serve", "--model", self.directory / "model", "--batch", SERVE_BATCH, "--latency-target-ms", LATENCY_TARGET_MS, "--load", LOAD,
                 "--variation", 1, "--json", told, *more)
        return json.loads(told.read_text(encoding="utf-8"))

    def round(self, seed):
        """Returns serve's latencies in one round. The seed determines when requests arrive."""
        return self.serve("--requests", self.requests, "--service-ms", self.service_ms, "--seed", seed)["latencies_ms"]

    @contextlib.contextmanager
    def watched(self):
        web = self.start("gpushared-web", "--listen", "127.0.0.1:0", stderr=subprocess.PIPE, text=True)
        page = Page(re.search(r"//(.*)/", web.stderr.readline()).group(1))
        trace = self.start("gpusharedctl", "trace", "--seconds", 3600, "--json", "--out", self.directory / "t.json",
                           stdout=subprocess.PIPE, text=True)
        try:
            until("the page and the trace have begun",
                  lambda: page.events > 1 and "gpushared-trace" in pathlib.Path(f"/proc/{trace.pid}/maps").read_text(encoding="utf-8"))
            yield
        finally:
            end(trace)
            page.close()
            end(web)
        self.events += page.events
        self.scrapes += page.scrapes
        told = json.loads(trace.stdout.read())
        for key in self.traced:
            self.traced[key] += told[key]


def measure(bench, pairs):
    """Returns latencies by pair: (without watchers, with watchers)."""
    rounds = []
    for pair in range(pairs):
        found = {}
        # In reverse order in every second pair, so that changes of the machine's speed affect both alike.
        for is_watched in (False, True) if pair % 2 == 0 else (True, False):
            with bench.watched() if is_watched else contextlib.nullcontext():
                found[is_watched] = bench.round(pair + 1)
        rounds.append((found[False], found[True]))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rounds


def compare(rounds, fraction):
    """Returns the medians of the rounds' percentiles, and their ratio with its interval."""
    found = [[percentile(latencies, fraction) for latencies in pair] for pair in rounds]

    def ratio(numbers):
        return statistics.median(found[number][1] for number in numbers) / statistics.median(found[number][0] for number in numbers)

    return {"off_ms": statistics.median(off for off, _ in found), "on_ms": statistics.median(on for _, on in found),
            "ratio": interval(ratio, range(len(rounds)))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", metavar="BIN_DIR", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=14)
    parser.add_argument("--requests", type=int, default=300, help="of serve, per round")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    for line in environment(options.binaries.resolve()):
        print(line)
    with tempfile.TemporaryDirectory(prefix="gpushared-watch-") as directory:
        bench = Bench(options.binaries.resolve(), pathlib.Path(directory), options.requests)
        with bench.served():
            rounds = measure(bench, options.pairs)
    print(f"{options.pairs} pairs of rounds of {options.requests} requests of {bench.service_ms:.2f} ms, load {LOAD}; while watched "
          f"{bench.events} updates, {bench.scrapes} scrapes, {bench.traced['slices']} slices traced, {bench.traced['lost']} lost")
    print(f"{'':<12}{'off':>10}{'on':>12}{'on/off [95 %]':>22}")
    result = {f"p{fraction * 100:g}": compare(rounds, fraction) for fraction in (0.5, 0.95, 0.99)}
    for name, row in result.items():
        ratio = row["ratio"]
        print(f"{'serve ' + name:<12}{row['off_ms']:>7.2f} ms{row['on_ms']:>9.2f} ms{ratio['value']:>10.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if result["p99"]["ratio"]["low"] > 1:
        sys.exit("watch_bench: watching makes p99 longer, by more than the machine's noise")


if __name__ == "__main__":
    main()
