# SPDX-License-Identifier: Apache-2.0
"""gate_pair.py without a GPU: its arithmetic, its rows, and programs that are missing, fail or hang.

Usage: gate_pair_test.py PROGRAMS_DIRECTORY DROP_IN_DIRECTORY SHARED_GPU_DIRECTORY [TEST]

A module whose networks launch kernels of known length stands in for PyTorch. The tests of Sharing run everything with a
real server, which schedules the programs on the modelled GPU of tests/gate.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import gate_pair  # noqa: E402  pylint: disable=wrong-import-position

BIN = DROP_IN = SHARED_GPU = ""  # From the command line.

# Every attribute and call returns a Thing. Networks launch kernels on the modelled GPU if SHARED_GPU names one, and
# otherwise only sleep for the kernels' time.
TORCH = """
import contextlib, ctypes, json, os, pathlib, time

class Gpu:
    def __init__(self):
        self.driver, self.us, self.recorded = None, 0, None
    def begin(self):
        if "SHARED_GPU" in os.environ:
            self.driver, made = ctypes.CDLL("libcuda.so.1"), [ctypes.c_void_p() for _ in range(3)]
            codes = [self.driver.cuInit(0), self.driver.cuCtxCreate_v2(ctypes.byref(made[0]), 0, 0),
                     self.driver.cuModuleLoadData(ctypes.byref(made[1]), b"image"),
                     self.driver.cuModuleGetFunction(ctypes.byref(made[2]), made[1], b"kernel")]
            assert not any(codes), codes
            self.kernel = made[2]
        elif os.environ.get("GPUSHARED_MODE") == "gate":
            name = os.environ["GPUSHARED_CLASS"] + "." + str(os.getpid())
            (pathlib.Path(os.environ["CLIENTS"]) / name).touch()
    def launch(self, us):
        if self.recorded is not None:
            self.recorded.append(us)
        elif self.driver:
            assert not self.driver.cuLaunchKernel(self.kernel, us, 1, 1, 32, 1, 1, 0, None, None, None)
        else:
            self.us += us
    def synchronize(self):
        if self.driver:
            assert not self.driver.cuCtxSynchronize()
        time.sleep(self.us / 1e6)
        self.us = 0

gpu = Gpu()

class Thing:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self
    def __call__(self, *arguments, **options): return self
    def __getitem__(self, index): return self
    def __add__(self, other): return self
    def __enter__(self): return self
    def __exit__(self, *error): pass
    def __iter__(self): return iter((self, self, self))
    def cpu(self): gpu.synchronize(); return self
    def backward(self): gpu.launch(500)

class Module:
    def __init__(self, *parts, **options): self.parts = [part for part in parts if isinstance(part, Module)]
    def __call__(self, *given): return self.forward(*given)
    def forward(self, given):
        if not self.parts: gpu.launch(20)
        for part in self.parts: given = part(given)
        return given
    def eval(self): return self
    def to(self, *where, **options): gpu.begin(); return self
    def parameters(self): return ()

class nn:
    functional = Thing()
    def __getattr__(self, name): return Module
nn = nn()
nn.Module, nn.Sequential = Module, Module

class Event:
    def record(self): pass
    def synchronize(self): gpu.synchronize()

class CUDAGraph:
    def replay(self):
        for us in self.kernels: gpu.launch(us)

class Cuda(Thing):
    def synchronize(self): gpu.synchronize()
    def get_device_name(self): return "played"
    @contextlib.contextmanager
    def graph(self, graph):
        gpu.recorded = graph.kernels = []
        yield
        gpu.recorded = None
cuda = Cuda()
cuda.Event, cuda.CUDAGraph = Event, CUDAGraph

def mm(one, other, out): gpu.launch(20000)

__version__ = "0"
def __getattr__(name): return Thing()
"""

# The server's answers about the clients that the stand-in for PyTorch has registered.
CTL = """#!{python}
import json, os, pathlib, sys
directory = pathlib.Path(os.environ["CLIENTS"])
asked = len(list(directory.glob("asked.*")))
(directory / ("asked." + str(asked))).touch()
clients = [path.name.split(".") for path in directory.iterdir() if path.name.split(".")[0] in ("high", "low")]
if sys.argv[1:] == ["--json", "ps"]:
    print(json.dumps({{"clients": [{{"class": name, "pid": int(pid), "stops": 4 * asked, "stop_time_s": 0.001 * asked, "passes": 1,
                                   "launches": 9}} for name, pid in clients]}}))
else:
    print(json.dumps({{"devices": [{{"totals": {{"classes": {{"high": {{"launches": asked}}, "low": {{"launches": asked}}}}}}}}]}}))
"""
BENCH = """#!/bin/sh
[ "$1 $2 $3" = "--probe launches 7" ] && [ "$GPUSHARED_MODE" = gate ] || exit 1
[ $GPUSHARED_CLASS = high ] && printf 'p50\\t2150\\nnative p50\\t2000\\n' || printf 'p50\\t3500\\nnative p50\\t2000\\n'
"""
VICTIM = "import json, time\nprint(json.dumps({'launched': 1}), flush=True)\ntime.sleep(60)\n"


def answers(begin, end, latencies, **more):
    return {"begin": begin, "end": end, "latencies_ms": latencies, "times_ms": latencies, "ends": [], **more}


class Arithmetic(unittest.TestCase):
    def test_percentiles_are_latencies_that_occurred(self):
        requests = gate_pair.Requests(answers(10, 12, [float(ms) for ms in range(100, 0, -1)]))
        self.assertEqual((requests.p50, requests.p99, requests.worst), (50, 99, 100))
        one = gate_pair.Requests(answers(0, 1, [7.0]))
        self.assertEqual((one.p50, one.p99, one.worst), (7, 7, 7))

    def test_busy_is_the_share_of_time_in_requests(self):
        self.assertAlmostEqual(gate_pair.Requests(answers(10, 12, [100.0] * 5)).busy, 0.25)

    def test_a_phase_without_requests_has_no_figures(self):
        with self.assertRaisesRegex(gate_pair.Failed, "no request"):
            gate_pair.Requests(answers(0, 1, []))

    def test_steps_count_by_their_share_of_the_time(self):
        ends = [1.0, 2.0, 4.0, 8.0]
        for moment, steps in ((0.5, 0), (1, 1), (1.5, 1.5), (3, 2.5), (7, 3.75), (8, 4), (9, 4)):
            self.assertEqual(gate_pair.steps_until(ends, moment), steps, moment)
        self.assertEqual(gate_pair.rate_of(ends, 1.5, 3.5).per_s, 1.25 / 2)
        self.assertEqual(gate_pair.rate_of([], 0, 4).per_s, 0)
        self.assertEqual(gate_pair.rate_of([1.0, 9.0], 2, 6).per_s, 0.125)

    def test_waits_last_until_the_first_end_after_each_kill(self):
        self.assertEqual(gate_pair.waits_after([1.0, 2.5, 5.0], [0.5, 1.5, 2.0, 4.5]), [0.5, 2.0, None])


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.rows = {}
        for name in ("bin", "drop_in", "clients", "packages"):
            (self.directory / name).mkdir()
        (self.directory / "drop_in" / "libcuda.so.1").touch()
        self.write("packages/torch.py", TORCH)
        shutil.copytree(HERE / "gate_programs", self.directory / "gate_programs",
                        ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, path, text):
        file = self.directory / path
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    def measure(self, *arguments, **variables):
        """Runs gate_pair.py, and returns its exit status."""
        path = self.directory / "rows.tsv"
        path.touch()
        command = [sys.executable, HERE / "gate_pair.py", "--rows", path, "--programs", self.directory / "gate_programs",
                   *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self.directory / "packages"), "PYTHONDONTWRITEBYTECODE": "1", **variables}
        self.run_ = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240)
        for line in path.read_text(encoding="utf-8").splitlines():
            part, what, value, unit, kind, must, note = line.split("\t")
            self.assertEqual(part, "gate_pair")
            self.rows[what] = (value, unit, kind, must, note)
        return self.run_.returncode

    def number(self, what):
        return float(self.rows[what][0])

    def failed_rules(self):
        return {what: row for what, row in self.rows.items()
                if row[2] == "rule" and float(row[0]) != float(row[3].split(" ")[1])}


class Script(Case):
    """With a fake server."""

    def setUp(self):
        super().setUp()
        self.write("bin/gpusharedctl", CTL.format(python=sys.executable))
        self.write("bin/gate_bench", BENCH)
        self.program("launches", VICTIM)

    def program(self, name, text):
        self.write(f"gate_programs/{name}.py", text)

    def pair(self, *arguments):
        code = self.measure("--bin", self.directory / "bin", "--drop-in", self.directory / "drop_in", "--socket", "nowhere",
                            "--seconds", "0.5", "--kills", "2", "--kill-after", "0.05", "--probe-ms", "7", *arguments,
                            CLIENTS=str(self.directory / "clients"))
        self.assertEqual(code, 0, self.run_.stderr)

    def test_every_phase_has_rows_and_figures_have_bounds(self):
        self.pair("--mps", "CUDA_MPS_PIPE_DIRECTORY=x", "--limit", "200")
        self.assertEqual(self.failed_rules(), {})
        for mode in ("eager", "graph"):
            for label in ("ungated", "gated", "ungated, MPS", "gated, MPS"):
                name = f"{mode}, {label}"
                is_gated = label.startswith("gated")
                for figure, must in (("(p99 - window) / alone", "<= 1.2"), ("steps / the time left", ">= 0.8")):
                    self.assertEqual(self.rows[f"{name} | {figure}"][2:4], ("figure", must) if is_gated else ("fact", "-"), name)
                for column in ("p50, ms", "p99, ms", "worst, ms", "p99 / alone", "low's steps/s", "steps / alone"):
                    self.assertGreater(self.number(f"{name} | {column}"), 0)
                    self.assertEqual(self.rows[f"{name} | {column}"][2], "fact")
                # In each answer the fake server reports 4 stops of 250 us each more than in the previous one.
                if is_gated:
                    self.assertEqual(self.number(f"{name}: stops of the low client"), 4)
                    self.assertEqual(self.number(f"{name}: stop_time_s / stops"), 250)
                    self.assertEqual(self.number(f"{name}: launches that did not wait long enough"), 0)
            self.assertGreater(self.number(f"{mode}, alone | p99, ms"), 0)
        for low in ("20 ms kernels", "step graphs"):
            self.assertEqual(self.rows[f"graph, gated; low: {low} | p99 / alone"][2:4], ("fact", "-"))
        for client_class in ("low", "high"):
            self.assertEqual(self.rows[f"gated: kills of a {client_class} client after which the other went on"][:4],
                             ("2", "-", "rule", "== 2"))
        self.assertEqual(self.rows["windows of 500 and 100 us"][0], "not measured")
        # No driver is loaded that could report whether a program is a client of MPS.
        self.assertEqual(self.rows["gated, MPS: programs under MPS"][:3], ("none", "-", "fact"))

    def test_the_bounded_figures_follow_from_the_others(self):
        self.pair("--limit", "200")
        alone = self.number("graph, alone | p99, ms")
        shared = self.number("graph, gated | p99, ms")
        self.assertAlmostEqual(self.number("graph, gated | (p99 - window) / alone"), (shared - 0.25) / alone, delta=1e-4)
        self.assertAlmostEqual(self.number("graph, gated | p99 / alone"), shared / alone, delta=1e-4)
        steps, alone = self.number("graph, gated | low's steps/s"), self.number("training alone | low's steps/s")
        self.assertAlmostEqual(self.number("graph, gated | steps / alone"), steps / alone, delta=1e-4)
        busy = int(self.rows["graph, gated | steps / the time left"][4].split(" ")[5]) / 100
        self.assertAlmostEqual(self.number("graph, gated | steps / the time left"), steps / alone / (1 - busy), delta=0.02)
        for client_class, cost, must in (("high", 150, "<= 200"), ("low", 1500, "<= 1000")):
            row = self.rows[f"a connected {client_class} client, ns per launch: more than the driver alone"]
            self.assertEqual((float(row[0]), *row[1:4]), (cost, "ns", "figure", must))

    def test_without_pytorch_only_launches_are_measured(self):
        self.write("packages/torch.py", "raise ImportError('libtorch is lost')")
        self.pair()
        self.assertEqual(self.rows["PyTorch"][::4], ("not installed", "missing torch: libtorch is lost"))
        self.assertEqual(self.failed_rules(), {})
        self.assertIn("a connected low client, ns per launch: more than the driver alone", self.rows)

    def test_a_program_that_fails_has_a_row_with_the_reason(self):
        self.program("serve", "import sys\nsys.stdin.readline()\nsys.exit('no memory')")
        self.pair()
        self.assertEqual(self.rows["ungated: programs started: measured"],
                         ("0", "-", "rule", "== 1", "serve: exit status 1: no memory"))
        self.assertEqual(self.rows["training alone: measured"][::4], ("none", "ungated: serve: exit status 1: no memory"))
        self.assertEqual(self.rows["gated: kills of a low client: measured"][0], "none")

    def test_a_mode_that_fails_affects_no_other(self):
        self.write("packages/torch.py", TORCH.replace("gpu.launch(20000)", "raise RuntimeError('out of memory')"))
        self.pair("--limit", "200")
        self.assertEqual(self.rows["gated: low's mode kernel"][::4], ("none", "RuntimeError: out of memory"))
        self.assertEqual(self.failed_rules(), {})
        self.assertIn("graph, gated; low: step graphs | p99, ms", self.rows)

    def test_programs_that_hang_cost_their_time(self):
        self.program("train", "import signal\nsignal.pause()\n")
        begin = time.monotonic()
        self.pair("--limit", "6")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(self.rows["ungated: programs started: measured"][::4], ("0", "train: no answer within its time"))
        self.assertEqual(self.rows["gated: programs started: measured"][::4], ("none", "no time was left"))

    def test_programs_that_the_server_does_not_know_are_not_called_gated(self):
        self.write("bin/gpusharedctl", "#!/bin/sh\necho '{}'\n")
        self.pair()
        self.assertEqual(self.rows["gated: both programs are clients of the server"][0], "0")
        self.assertEqual(self.rows["a connected high client: the server counts the launches"][0], "0")
        self.assertNotIn("graph, gated | p99, ms", self.rows)
        self.assertIn("graph, ungated | p99, ms", self.rows)

    def test_a_survivor_that_stops_is_found(self):
        # Records no end of a request after the first 0.6 s of a phase, but still answers.
        text = (HERE / "gate_programs" / "serve.py").read_text(encoding="utf-8")
        self.program("serve", text.replace("ends.append(end)", "ends += [end] if end < phase.begin + 0.6 else []"))
        self.pair("--kill-after", "0.8", "--limit", "200")
        self.assertLess(self.number("gated: kills of a low client after which the other went on"), 2)
        self.assertEqual(self.rows["gated: from the kill of a low client to the other's next end, worst"][0], "none")
        self.assertEqual(self.number("gated: kills of a high client after which the other went on"), 2)

    def test_an_unexpected_answer_fails_only_its_measurement(self):
        self.program("serve", "import json, sys\nfor _ in sys.stdin:\n    print(json.dumps({'mps': 0}), flush=True)\n")
        self.pair()
        self.assertEqual(self.rows["eager, alone: measured"][::4], ("0", "KeyError: 'begin'"))
        self.assertEqual(self.rows["training alone: measured"][0], "1")
        self.assertEqual(self.rows["graph, ungated: measured"][0], "0")

    def test_a_victim_that_does_not_start_fails_only_its_measurement(self):
        self.program("launches", "raise SystemExit('no kernel')")
        self.pair("--limit", "200")
        for client_class in ("low", "high"):
            self.assertEqual(self.rows[f"gated: kills of a {client_class} client: measured"][::4],
                             ("0", "launches: exit status 1: no kernel"))

    def test_a_failing_gate_bench_has_a_row_with_the_reason(self):
        self.write("bin/gate_bench", "#!/bin/sh\nprintf 'error\\tno device\\n'\n")
        self.write("packages/torch.py", "raise ImportError('none')")
        self.pair()
        self.assertEqual(self.rows["a connected low client, ns per launch: measured"][::4], ("0", "gate_bench: no device"))

    def test_rejects_a_directory_without_the_library(self):
        (self.directory / "drop_in" / "libcuda.so.1").unlink()
        self.assertEqual(self.measure("--bin", "x", "--drop-in", self.directory / "drop_in", "--socket", "x"), 2)
        self.assertIn("has no libcuda.so.1", self.run_.stderr)

    def test_programs_end_with_their_input_and_at_their_limit(self):
        environment = {**os.environ, "PYTHONPATH": str(self.directory / "packages")}
        for name in ("serve", "train"):
            command = [sys.executable, "-B", self.directory / "gate_programs" / f"{name}.py", "--limit"]
            said = subprocess.run([*command, "50"], input="prepare\nnothing 1\n", capture_output=True, text=True, check=True,
                                  env=environment, timeout=60).stdout.splitlines()
            self.assertEqual(json.loads(said[0])["device"], "played")
            self.assertIn("KeyError", json.loads(said[1])["error"])
            with subprocess.Popen([*command, "1"], stdin=subprocess.PIPE, env=environment) as waits:
                self.assertEqual(waits.wait(timeout=30), -signal.SIGALRM)


class Sharing(Case):
    """With a real server and two real processes on a modelled GPU."""

    def setUp(self):
        super().setUp()
        self.socket = str(self.directory / "server.sock")
        self.log = open(self.directory / "log", "wb")
        self.addCleanup(self.log.close)
        self.server = subprocess.Popen([f"{BIN}/gpushared", "--policy", "priority", "--device", "cpu:0", "--memory", "64MiB",
                                        "--socket", self.socket], stdout=self.log, stderr=self.log)
        self.addCleanup(self.end_server)
        until = time.monotonic() + 30
        while subprocess.run([f"{BIN}/gpusharedctl", "--socket", self.socket, "ps"], capture_output=True, check=False).returncode:
            self.assertLess(time.monotonic(), until, (self.directory / "log").read_text(encoding="utf-8"))
            time.sleep(0.1)

    def end_server(self):
        self.server.terminate()
        self.server.wait(timeout=30)

    def test_both_sides_share_the_gpu_by_turns(self):
        code = self.measure("--bin", BIN, "--drop-in", DROP_IN, "--socket", self.socket, "--seconds", "1.5", "--kills", "3",
                            "--probe-ms", "20", "--limit", "200", LD_LIBRARY_PATH=SHARED_GPU,
                            SHARED_GPU=str(self.directory / "gpu"))
        self.assertEqual(code, 0, self.run_.stderr)
        self.assertEqual({what: row for what, row in self.failed_rules().items() if "ns per launch" not in what
                          and "counts the launches" not in what}, {})
        self.assertGreater(self.number("graph, gated: stops of the low client"), 3)
        self.assertGreater(self.number("graph, gated | low's steps/s"), 0)


if __name__ == "__main__":
    BIN, DROP_IN, SHARED_GPU = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
