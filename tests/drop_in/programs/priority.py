#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two unmodified Numba programs of class low next to the sample `serve` of class high, a native client.

Usage: priority.py BIN_DIR CACHE_DIR [ROUNDS]

As in samples/demo.sh, in each round serve answers alone, next to both programs under fifo, and next to both under
priority. Prints p99 with its ratio to serve alone, and the programs' share of the device time that serve left.
Fails by the demo's criteria: if p99 under priority is above 1.5 times the p99 of serve alone or above half of the p99
under fifo, or if the programs used less than 80 % of the device time that serve left. A criterion is missed only if its
whole confidence interval is beyond the bound. Skipped with the reason if Numba is not available.
"""
import contextlib
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

DIRECTORY = pathlib.Path(__file__).parent
ROOT = DIRECTORY.parents[2]
sys.path[:0] = [str(DIRECTORY), str(ROOT / "samples")]
from demo_report import (GAP_USED_MIN, P99_TO_ALONE_MAX, P99_TO_FIFO_MAX, host_share, interval,  # noqa: E402
                         percentile, with_interval)
from run_programs import NUMBA, NUMPY, Server, command_of, environment_of, surroundings_of  # noqa: E402

JOBS = (ROOT / "samples/python_server/train_numba.py", DIRECTORY / "numba_heat.py")
POLICIES = ("fifo", "priority")
REQUESTS, LOAD, BATCH, LATENCY_TARGET_MS = 100, 0.3, 16, 25
LEAD_S = 0.5  # Time from starting serve to its first request.
SECONDS_MAX = 600


class Jobs:
    """Both programs on one server. They are suspended unless asked to run."""

    def __init__(self, python, bin_dir, server, home):
        self.processes = [subprocess.Popen([*command_of(bin_dir, server)[:-1], "--class", "low", "--name", job.stem, "--",
                                            python, job, str(SECONDS_MAX)], env=surroundings_of({}, home))
                          for job in JOBS]

    def signal(self, number):
        for process in self.processes:
            if process.poll() is not None:
                raise SystemExit(f"FAILED  priority: {process.args[-2].name} ended with {process.returncode}")
            process.send_signal(number)

    @contextlib.contextmanager
    def running(self):
        self.signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.signal(signal.SIGSTOP)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def asked(bin_dir, server, command):
    return json.loads(subprocess.run([bin_dir / "gpusharedctl", "--socket", server.socket, command, "--json"],
                                     check=True, capture_output=True, text=True).stdout)


def until_busy(bin_dir, server):
    """Waits until each job has used the device."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        busy = {client["name"] for client in asked(bin_dir, server, "ps")["clients"] if client.get("launches", 0) > 100}
        if {job.stem for job in JOBS} <= busy:
            return
        time.sleep(0.2)
    raise SystemExit("FAILED  priority: a Numba program launched nothing in 120 s")


def serve(bin_dir, server, scratch, service_ms, seed):
    """Runs one phase of serve, and returns the outcome that serve writes."""
    outcome = scratch / "serve.json"
    subprocess.run([bin_dir / "serve", "--model", scratch / "model", "--batch", str(BATCH), "--requests", str(REQUESTS),
                    "--service-ms", f"{service_ms:.3f}", "--load", str(LOAD), "--variation", "1", "--latency-target-ms",
                    str(LATENCY_TARGET_MS), "--seed", str(seed), "--start-at", f"{time.time() + LEAD_S:.3f}", "--json", outcome],
                   env={"GPUSHARED_SOCKET": str(server.socket)}, check=True, stdout=subprocess.DEVNULL)
    return json.loads(outcome.read_text())


@contextlib.contextmanager
def watched(bin_dir, server, scratch):
    """Yields a list that contains demo_watch.py's samples of each client's device time after the block."""
    samples, file = [], scratch / "device.json"
    watcher = subprocess.Popen([sys.executable, ROOT / "samples/demo_watch.py", bin_dir / "gpusharedctl"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    watcher.stdout.readline()  # Waits until the watcher is ready.
    watcher.stdin.write(f"{time.time() + LEAD_S:.3f}\t{server.socket}\t{file}\n")
    watcher.stdin.flush()
    try:
        yield samples
    finally:
        watcher.communicate()  # The watcher exits at the end of its input.
    samples += json.loads(file.read_text())


def gap_of(samples):
    """Returns the jobs' device seconds, and the time in which the device was available and not used by serve."""
    used = left = 0
    names = {"serve", *(job.stem for job in JOBS)}
    for (begin, before, _), (end, after, _) in zip(samples, samples[1:]):
        if names <= before.keys() & after.keys():
            had = {name: after[name] - before[name] for name in names}
            used += sum(had.values()) - had["serve"]
            left += (end - begin) * (1 - host_share(samples)) - had["serve"]
    return used, max(left, used)


def measure(bin_dir, servers, jobs, scratch, rounds):
    """Returns the p99 of each phase and round, all latencies of each phase, and the jobs' part of the gap under
    priority."""
    p99, latencies, gaps, service_ms = {}, {}, [], 0.0
    for number in range(rounds):
        for phase in ("alone", *POLICIES):
            server = servers["priority" if phase == "alone" else phase]
            if phase == "alone":
                outcome = serve(bin_dir, server, scratch, service_ms, number)
                service_ms = outcome["service_ms"] * (outcome["busy"] / LOAD if number else 1)
            else:
                with jobs[phase].running(), watched(bin_dir, server, scratch) as samples:
                    outcome = serve(bin_dir, server, scratch, service_ms, number)
                if phase == "priority":
                    gaps.append(gap_of(samples))
            if not outcome["results_checked"]:
                raise SystemExit("FAILED  priority: an answer of serve differs from the reference")
            p99.setdefault(phase, []).append(percentile(outcome["latencies_ms"], 0.99))
            latencies.setdefault(phase, []).extend(outcome["latencies_ms"])
    return p99, latencies, gaps


def report(p99, latencies, gaps):
    """Prints the table. Returns messages about criteria whose whole confidence interval is beyond the bound."""
    numbers = range(len(gaps))
    ratio = {}
    for phase in ("alone", *POLICIES):
        ratio[phase] = interval(lambda some, phase=phase: statistics.median(p99[phase][i] for i in some) /
                                statistics.median(p99["alone"][i] for i in some), numbers)
        print(f"{phase:<10} p50 {percentile(latencies[phase], 0.5):6.2f} ms, p99 {statistics.median(p99[phase]):6.2f} ms, "
              f"to alone {with_interval(ratio[phase], 'f', 2)}")
    to_fifo = interval(lambda some: statistics.median(p99["priority"][i] for i in some) /
                       statistics.median(p99["fifo"][i] for i in some), numbers)
    used = interval(lambda some: sum(gaps[i][0] for i in some) / sum(gaps[i][1] for i in some), numbers)
    print(f"the Numba programs used {with_interval(used, '%', 0)} of the device time that serve left under priority")
    if ratio["priority"]["low"] > P99_TO_ALONE_MAX:
        yield f"p99 is {with_interval(ratio['priority'], 'f', 2)} of that alone, promised {P99_TO_ALONE_MAX}"
    if to_fifo["low"] > P99_TO_FIFO_MAX:
        yield f"p99 is {with_interval(to_fifo, 'f', 2)} of that under fifo, promised {P99_TO_FIFO_MAX}"
    if used["high"] < GAP_USED_MIN:
        yield f"the Numba programs used {with_interval(used, '%', 0)} of the gap, promised {GAP_USED_MIN:.0%}"


def main(bin_dir, cache, rounds="10"):
    bin_dir, cache = pathlib.Path(bin_dir).resolve(), pathlib.Path(cache).resolve()
    python, reason = environment_of("numba_add", (*NUMBA, NUMPY), cache, bin_dir.parent / "lib/drop_in")
    if reason is not None:
        print(f"skipped priority: {reason}")
        return 0
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers, jobs = {}, {}
        for policy in POLICIES:
            (scratch / policy).mkdir()
            servers[policy] = stack.enter_context(Server(bin_dir, scratch / policy, "--policy", policy))
        subprocess.run([bin_dir / "train", "--text", ROOT / "LICENSE", "--model", scratch / "model", "--steps", "10"],
                       env={"GPUSHARED_SOCKET": str(servers["fifo"].socket)}, check=True, stdout=subprocess.DEVNULL)
        for policy, server in servers.items():
            jobs[policy] = Jobs(python, bin_dir, server, scratch)
            stack.callback(jobs[policy].end)
            until_busy(bin_dir, server)
            jobs[policy].signal(signal.SIGSTOP)
        broken = list(report(*measure(bin_dir, servers, jobs, scratch, int(rounds))))
    print(f"FAILED  priority: {'; '.join(broken)}" if broken else
          f"passed  priority: no interval lies beyond p99 of {P99_TO_ALONE_MAX} times alone and {P99_TO_FIFO_MAX} of fifo's")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
