#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How does gate mode share a GPU between PyTorch's inference and training?

Usage: gate_pair.py --rows FILE --bin DIR --drop-in DIR --socket PATH [--part NAME] [--limit S] [--seconds S]
                    [--kills N] [--mps NAME=VALUE]... [--programs DIR]

A server with policy priority must be running at PATH. serve.py and train.py (gate_programs next to this script) run
alone, beside each other, and beside each other as clients of classes high and low. With --mps, which gives the
variables that make programs clients of MPS, they also run beside each other under MPS, without and with the server.
Rows have the format of run.sh and are written immediately. A program that fails or hangs has a row with the reason.
Exit status 0: everything was tried.
"""
import argparse
import bisect
import collections
import contextlib
import json
import math
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from rows import Rows

HERE = pathlib.Path(__file__).resolve().parent
MODES = ("eager", "graph")
# Window of a low client beside a high one: Submitter::kUrgentWindow of the server.
WINDOW_MS = 0.25
# Bounds. The p99 may grow by this factor and by the window.
P99_MAX, STEPS_MIN = 1.2, 0.8
BUSY_MAX = 0.95  # If inference alone takes more of the time, it leaves too little to judge.
COST_NS_MAX = {"high": 200, "low": 1000}
COST_ROUNDS = 3
COUNTED_S = 2  # The server notices within this time that a client has ended.
GOES_ON_S = 1.0  # A survivor's next step must end within this time after the other side was killed.
LEAD_S = 0.5  # The low side is at work for this long before the high one begins.
PREPARE_S, GRACE_S, QUICK_S = 40, 8, 5  # Limits of an answer.

# Other modes of the low side, in which the gate can close only between long pieces of work.
LONG = {"kernel": "20 ms kernels", "graph": "step graphs"}

Rate = collections.namedtuple("Rate", "per_s note")


class Failed(Exception):
    """A program did not carry out a command."""


class Missing(Exception):
    """A package that the programs need is not installed."""


class Program:
    """A program of gate_programs. Its stderr goes to a file."""

    def __init__(self, path, arguments, variables, directory, stop_at):
        self.name, self.stop_at = path.stem, stop_at
        self.unanswered = 0  # Commands whose answers have not come.
        self.errors = pathlib.Path(directory) / f"{self.name}.{time.monotonic_ns()}.errors"
        self.text = b""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
        with open(self.errors, "wb") as errors:
            # The program stays in this process's group, so that ending the group ends all programs.
            self.process = subprocess.Popen([sys.executable, path, *arguments], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, env=environment)
        self.pid = self.process.pid

    def tell(self, command):
        self.unanswered += command != "stop"
        with contextlib.suppress(BrokenPipeError):  # answer() reports the reason.
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()

    def answer(self, seconds):
        """Returns the next answer. Raises Failed if it does not come in time."""
        until = min(time.monotonic() + seconds, self.stop_at)
        while b"\n" not in self.text:
            if not select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                self.process.kill()
                raise Failed(f"{self.name}: no answer within its time")
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise Failed(f"{self.name}: {self._how_it_ended()}")
            self.text += piece
        line, _, self.text = self.text.partition(b"\n")
        self.unanswered -= 1
        if line.startswith(b"missing "):
            raise Missing(line.decode(errors="replace"))
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failed(f"{self.name}: printed {line[:100]!r}") from None
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}")
        return answer

    def _how_it_ended(self):
        try:
            code = self.process.wait(timeout=QUICK_S)
        except subprocess.TimeoutExpired:
            return "closed its output"
        said = self.errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        how = f"exit status {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
        return f"{how}: {said[-1][:200] if said else ''}"

    def kill(self):
        self.process.kill()
        self._reap()

    def end(self):
        """Ends the program by closing its input, or kills it if it hangs."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=QUICK_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reap()

    def _reap(self):
        with contextlib.suppress(subprocess.TimeoutExpired):  # The program hangs inside the driver.
            self.process.wait(timeout=QUICK_S)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()


class Requests:
    """Latencies of the requests of a phase, in milliseconds."""

    def __init__(self, answer):
        self.begin, self.end, self.ends = answer["begin"], answer["end"], answer["ends"]
        self.latencies = sorted(answer["latencies_ms"])
        if not self.latencies:
            raise Failed("serve: no request was served")
        self.p50, self.p99 = self.percentile(0.5), self.percentile(0.99)
        self.worst = self.latencies[-1]
        # Share of the time in which a request was in progress.
        self.busy = sum(answer["times_ms"]) / 1000 / (self.end - self.begin)

    def percentile(self, share):
        """Returns the smallest latency that at least this share of requests does not exceed."""
        return self.latencies[max(0, math.ceil(share * len(self.latencies)) - 1)]


def steps_until(ends, moment):
    """Returns the number of steps until `moment`; a step that was in progress counts by its share."""
    done = bisect.bisect_right(ends, moment)
    if done in (0, len(ends)):
        return float(done)
    return done + (moment - ends[done - 1]) / (ends[done] - ends[done - 1])


def rate_of(ends, begin, end):
    """Returns the steps per second within this time."""
    return Rate((steps_until(ends, end) - steps_until(ends, begin)) / (end - begin), f"{len(ends)} steps")


def waits_after(moments, ends):
    """Returns for each moment the time until the next end, or None if there is none."""
    waits = []
    for moment in moments:
        place = bisect.bisect_right(ends, moment)
        waits.append(ends[place] - moment if place < len(ends) else None)
    return waits


class Session:
    """serve.py and train.py in one environment. Both are started early, because importing PyTorch takes seconds. They
    use the GPU only from the command `prepare` on."""

    def __init__(self, label, is_gated, variables, options, directory, stop_at):
        self.label, self.is_gated = label, is_gated
        self.is_mps = bool(options.mps) and "MPS" in label
        self.broken = None  # The reason, if a program accepts no further commands.
        self.step_ms = {}
        given = {name: {**variables, **(gate_variables(options, name) if is_gated else {"GPUSHARED_MODE": ""})}
                 for name in ("high", "low")}
        modes = "step,kernel,graph" if is_gated and not self.is_mps else "step"
        limit = ["--limit", str(math.ceil(options.limit) + QUICK_S)]
        self.serve = Program(options.programs / "serve.py", limit, given["high"], directory, stop_at)
        self.train = Program(options.programs / "train.py", [*limit, "--modes", modes], given["low"], directory, stop_at)

    def prepare(self):
        for program in (self.serve, self.train):
            program.tell("prepare")
        return self.serve.answer(PREPARE_S), self.train.answer(PREPARE_S)

    def is_in_order(self):
        """Returns whether both programs run and have answered everything."""
        return all(program.process.poll() is None and not program.unanswered for program in (self.serve, self.train))

    def end(self):
        for program in (self.serve, self.train):
            program.end()


def gate_variables(options, client_class):
    path = ":".join(filter(None, (str(options.drop_in), os.environ.get("LD_LIBRARY_PATH"))))
    # A program that silently ran without the server would be measured as if it were gated.
    return {"LD_LIBRARY_PATH": path, "GPUSHARED_MODE": "gate", "GPUSHARED_SOCKET": options.socket,
            "GPUSHARED_CLASS": client_class, "GPUSHARED_FALLBACK": "none"}


class Pair:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.rows = Rows(options.rows, options.part)
        self.stop_at = time.monotonic() + options.limit
        self.alone = {}  # Mode to Requests.
        self.steps_alone = None  # A Rate.

    def left(self):
        return self.stop_at - time.monotonic()

    # ---- what the server knows

    def ctl(self, command):
        """Returns an answer of gpusharedctl; an empty one if there is none."""
        try:
            said = subprocess.run([self.options.bin / "gpusharedctl", "--json", *command], capture_output=True, check=True,
                                  env={**os.environ, "GPUSHARED_SOCKET": self.options.socket}, timeout=QUICK_S).stdout
            return json.loads(said)
        except (OSError, ValueError, subprocess.SubprocessError):
            return {}

    def client(self, program):
        return next((client for client in self.ctl(["ps"]).get("clients", []) if client.get("pid") == program.pid), {})

    def launches_of(self, client_class):
        """Returns the launches of this class that the server has counted."""
        devices = self.ctl(["status"]).get("devices", [])
        return sum(device.get("totals", {}).get("classes", {}).get(client_class, {}).get("launches", 0) for device in devices)

    # ---- the frame of each measurement

    def measure(self, what, seconds, action, session=None):
        """Adds a row on whether this was measured. `seconds`: time that it usually takes."""
        what = f"{what}: measured"
        if session is not None and session.broken:
            self.rows.add(what, None, note=f"{session.label}: {session.broken}")
        elif self.left() < seconds:
            self.rows.add(what, None, note="no time was left")
        else:
            try:
                action()
                self.rows.rule(what, True)
            except (Failed, ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
                # Errors other than Failed mean that an answer was not as expected.
                self.rows.rule(what, False, str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}")
                if session is not None and not session.is_in_order():
                    session.broken = str(error)

    # ---- cost of a launch

    def cost(self, client_class):
        counted = self.launches_of(client_class)
        more, native = [], []
        for _ in range(COST_ROUNDS):
            found = self.probe_launches(client_class)
            native.append(found["native p50"])
            more.append(found["p50"] - found["native p50"])
        connected = f"a connected {client_class} client"
        until = time.monotonic() + COUNTED_S
        while self.launches_of(client_class) <= counted and time.monotonic() < until:
            time.sleep(0.1)
        self.rows.rule(f"{connected}: the server counts the launches", self.launches_of(client_class) > counted,
                       "a program whose driver lacks calls that the gate needs runs without the server")
        self.rows.add(f"{connected}, ns per launch: more than the driver alone", statistics.median(more), "ns", "figure",
                      f"<= {COST_NS_MAX[client_class]}",
                      f"p50, median of rounds; the driver alone takes {statistics.median(native):.0f}")

    def probe_launches(self, client_class):
        """Returns ns per launch through the gate and natively, in turns in one process."""
        command = [self.options.bin / "gate_bench", "--probe", "launches", str(self.options.probe_ms)]
        environment = {**os.environ, **gate_variables(self.options, client_class)}
        try:
            said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment,
                                  timeout=2 * GRACE_S).stdout
            found = dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)
            if "error" in found:
                raise Failed(f"gate_bench: {found['error']}")
            return {name: float(found[name]) for name in ("p50", "native p50")}
        except (OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            raise Failed(f"gate_bench: {type(error).__name__}: {error}") from error

    # ---- phases

    def serve_alone(self, session, mode):
        session.serve.tell(f"{mode} {self.options.seconds}")
        requests = self.alone[mode] = Requests(session.serve.answer(self.options.seconds + GRACE_S))
        self.write_latencies(f"{mode}, alone", requests)

    def train_alone(self, session):
        session.train.tell(f"step {self.options.seconds}")
        found = session.train.answer(self.options.seconds + GRACE_S)
        self.steps_alone = rate_of(found["ends"], found["begin"], found["end"])
        self.rows.add("training alone | low's steps/s", self.steps_alone.per_s, "1/s", note=self.steps_alone.note)

    def beside(self, session, mode, low="step"):
        """Returns Requests, the low side's Rate, and the increases of the low client's totals."""
        session.train.tell(f"{low} {self.options.seconds + 2 * GRACE_S}")
        time.sleep(LEAD_S)
        before = self.client(session.train) if session.is_gated else {}
        try:
            session.serve.tell(f"{mode} {self.options.seconds}")
            requests = Requests(session.serve.answer(self.options.seconds + GRACE_S))
            after = self.client(session.train) if session.is_gated else {}
        finally:
            session.train.tell("stop")
            steps = session.train.answer(GRACE_S)
        rose = {key: after[key] - before[key] for key in ("stops", "stop_time_s", "passes", "launches")
                if key in after and key in before}
        return requests, rate_of(steps["ends"], requests.begin, requests.end), rose

    def contend(self, session, mode):
        requests, rate, rose = self.beside(session, mode)
        name = f"{mode}, {session.label}"
        self.write_latencies(name, requests)
        alone = self.alone.get(mode)
        why = "" if alone else f"{mode} was not measured alone"
        self.rows.add(f"{name} | p99 / alone", requests.p99 / alone.p99 if alone else None, note=why)
        kind, must = ("figure", f"<= {P99_MAX}") if session.is_gated else ("fact", "-")
        self.rows.add(f"{name} | (p99 - window) / alone", (requests.p99 - WINDOW_MS) / alone.p99 if alone else None,
                      "-", kind, must, why or f"a window of {WINDOW_MS} ms")
        self.rows.add(f"{name} | low's steps/s", rate.per_s, "1/s", note=rate.note)
        self.write_shares(name, session, rate, alone)
        if session.is_gated:
            self.write_stops(name, rose)

    def write_latencies(self, name, requests):
        note = f"{len(requests.latencies)} requests; busy for {100 * requests.busy:.0f} % of the time"
        self.rows.add(f"{name} | p50, ms", requests.p50, "ms", note=note)
        self.rows.add(f"{name} | p99, ms", requests.p99, "ms")
        self.rows.add(f"{name} | worst, ms", requests.worst, "ms")

    def write_shares(self, name, session, rate, alone):
        share = rate.per_s / self.steps_alone.per_s if self.steps_alone and self.steps_alone.per_s else None
        why = "" if share is not None else "training was not measured alone"
        self.rows.add(f"{name} | steps / alone", share, note=why)
        kind, must = ("figure", f">= {STEPS_MIN}") if session.is_gated else ("fact", "-")
        left = None
        if share is not None and alone is None:
            why = "inference was not measured alone"
        elif share is not None and alone.busy > BUSY_MAX:
            # Inference leaves too little time to judge the share.
            kind, must, why = "fact", "-", f"inference alone is busy for {100 * alone.busy:.0f} % of the time"
        elif share is not None:
            left = share / (1 - alone.busy)
            why = f"inference alone is busy for {100 * alone.busy:.0f} % of the time"
        self.rows.add(f"{name} | steps / the time left", left, "-", kind, must, why)

    def write_stops(self, name, rose):
        stops = rose.get("stops")
        self.rows.add(f"{name}: stops of the low client", stops,
                      note=f"{rose.get('launches', 'unknown')} launches" if rose else "gpusharedctl ps does not list it")
        if stops:
            self.rows.add(f"{name}: stop_time_s / stops", 1e6 * rose["stop_time_s"] / stops, "us")
        if "passes" in rose:
            self.rows.add(f"{name}: launches that did not wait long enough", rose["passes"])

    def long_low(self, session, low):
        requests, rate, rose = self.beside(session, "graph", low)
        name = f"graph, {session.label}; low: {LONG[low]}"
        alone = self.alone.get("graph")
        self.write_latencies(name, requests)
        self.rows.add(f"{name} | p99 / alone", requests.p99 / alone.p99 if alone else None,
                      note="" if alone else "graph was not measured alone")
        self.rows.add(f"{name} | low's steps/s", rate.per_s, "1/s", note=f"each takes {session.step_ms[low]:.3g} ms")
        self.write_stops(name, rose)

    # ---- kills

    def kill_beside(self, session, survivor, mode, client_class):
        """Kills a client of this class again and again. The survivor's steps must go on."""
        survivor.tell(f"{mode} {self.options.limit}")
        killed = []
        try:
            for _ in range(self.options.kills):
                if killed and self.left() < GRACE_S + QUICK_S:
                    break
                victim = Program(self.options.programs / "launches.py", ["--limit", "30"],
                                 gate_variables(self.options, client_class), self.directory, self.stop_at)
                try:
                    victim.answer(GRACE_S)
                    time.sleep(self.options.kill_after)
                    killed.append(time.monotonic())
                finally:
                    victim.kill()
                time.sleep(self.options.kill_after)
            time.sleep(GOES_ON_S)
        finally:
            survivor.tell("stop")
            ends = survivor.answer(GRACE_S)["ends"]
        waits = waits_after(killed, ends)
        went_on = sum(wait is not None and wait <= GOES_ON_S for wait in waits)
        what = f"{session.label}: kills of a {client_class} client after which the other went on"
        self.rows.add(what, went_on, "-", "rule", f"== {len(killed)}",
                      f"of {self.options.kills}; {survivor.name} ended a step within {GOES_ON_S:.0f} s")
        known = [1000 * wait for wait in waits if wait is not None]
        self.rows.add(f"{session.label}: from the kill of a {client_class} client to the other's next end, worst",
                      max(known) if len(known) == len(waits) else None, "ms",
                      note=f"median {statistics.median(known):.4g} ms" if known else "there was none")

    # ---- all

    def begin(self, session):
        served, trained = session.prepare()
        session.step_ms = trained.get("step_ms", {})
        clients = sum(each.get("mps") == 1 for each in (served, trained))
        unknown = any(each.get("mps") is None for each in (served, trained))
        wanted = 2 if session.is_mps else 0
        self.rows.add(f"{session.label}: programs under MPS", None if unknown else clients, "-",
                      "fact" if unknown else "rule", "-" if unknown else f"== {wanted}",
                      f"{served.get('device')}, PyTorch {served.get('torch')}")
        if not unknown and clients != wanted:
            session.broken = f"{clients} of the programs are under MPS"
            raise Failed(session.broken)
        if session.is_gated:
            classes = [self.client(program).get("class") for program in (session.serve, session.train)]
            self.rows.rule(f"{session.label}: both programs are clients of the server", classes == ["high", "low"], str(classes))
            if classes != ["high", "low"]:
                session.broken = "the programs are not connected"
                raise Failed(session.broken)
        for mode, error in trained.get("errors", {}).items():
            self.rows.add(f"{session.label}: low's mode {mode}", None, note=error)

    def run_session(self, session):
        seconds = self.options.seconds
        usual = seconds + LEAD_S + 1
        self.measure(f"{session.label}: programs started", 3, lambda: self.begin(session), session)
        if not session.is_gated and not session.is_mps:
            for mode in MODES:
                self.measure(f"{mode}, alone", seconds, lambda mode=mode: self.serve_alone(session, mode), session)
            self.measure("training alone", seconds, lambda: self.train_alone(session), session)
        for mode in MODES:
            self.measure(f"{mode}, {session.label}", usual, lambda mode=mode: self.contend(session, mode), session)
        if not session.is_gated or session.is_mps:
            return
        for low in LONG:
            if low in session.step_ms:
                self.measure(f"graph, {session.label}; low: {LONG[low]}", usual,
                             lambda low=low: self.long_low(session, low), session)
        # Kills nothing under MPS, because a client of MPS that is killed during a kernel may end the others, too.
        for client_class, survivor, mode in (("low", session.serve, "graph"), ("high", session.train, "step")):
            self.measure(f"{session.label}: kills of a {client_class} client", GRACE_S + QUICK_S,
                         lambda c=client_class, s=survivor, m=mode: self.kill_beside(session, s, m, c), session)

    def run(self):
        self.rows.add("windows of 500 and 100 us", "not measured",
                      note="the server has no option for the window of gated clients, which is 250 us beside a high one")
        for client_class in COST_NS_MAX:
            self.measure(f"a connected {client_class} client, ns per launch", COST_ROUNDS,
                         lambda c=client_class: self.cost(c))
        labels = [("ungated", False, {}), ("gated", True, {})]
        if self.options.mps:
            mps = dict(each.split("=", 1) for each in self.options.mps)
            labels += [("ungated, MPS", False, mps), ("gated, MPS", True, mps)]
        sessions = []
        try:
            for label, is_gated, variables in labels:
                sessions.append(Session(label, is_gated, variables, self.options, self.directory, self.stop_at))
            for session in sessions:
                self.run_session(session)
                session.end()
        except Missing as error:
            self.rows.add("PyTorch", "not installed", note=str(error))
        finally:
            for session in sessions:
                session.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="directory of gpusharedctl and gate_bench")
    parser.add_argument("--drop-in", required=True, type=pathlib.Path)
    parser.add_argument("--socket", required=True, help="the server's")
    parser.add_argument("--part", default="gate_pair", help="name of the part in rows")
    parser.add_argument("--limit", type=float, default=130, help="seconds in all")
    parser.add_argument("--seconds", type=float, default=3.5, help="seconds of a phase")
    parser.add_argument("--kills", type=int, default=10, help="kills on each side")
    parser.add_argument("--kill-after", type=float, default=0.1, help="seconds from a client's first launch to its kill")
    parser.add_argument("--probe-ms", type=int, default=200, help="time of a round of launches")
    parser.add_argument("--mps", action="append", metavar="NAME=VALUE", help="a variable of programs under MPS")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE / "gate_programs")
    options = parser.parse_args()
    options.drop_in = options.drop_in.resolve()
    if not (options.drop_in / "libcuda.so.1").exists():
        parser.error(f"{options.drop_in} has no libcuda.so.1")
    with tempfile.TemporaryDirectory() as directory:
        Pair(options, directory).run()


if __name__ == "__main__":
    main()
