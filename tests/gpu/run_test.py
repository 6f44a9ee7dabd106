# SPDX-License-Identifier: Apache-2.0
"""run.sh on a fake driver: its guarantees about parts that fail, its verdicts and its results."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("smoke", "native", "environment", "facts", "conformance", "stops", "hostile", "model", "pair", "hog", "drop_in",
         "gate", "solo", "bench", "costs", "churn", "limits")
NAMED = ("gate_pair",)  # Parts that only run if they are named.
RESULTS = ["logs.tgz", "results.json", "rows.tsv", "table.txt"]
CONTENDERS = ("priority", "deadline", "time slicing", "one process, stream priorities", "MPS, client priority",
              "MPS, stream priorities", "MPS, low has 50 % of the threads")
BIN = FAKE_CUDA = FAKE_NVML = PTXAS = ""  # Directories, and a compiler for the fake driver; from the command line.
# The fake NVML's first instance.
INSTANCE = "MIG-a0000000-fa4e-4000-8000-000000000000"
# The part of the MPS control program that run.sh uses; records each request as a line of a file next to it.
MPS_CONTROL = """#!/bin/sh
echo "$CUDA_MPS_PIPE_DIRECTORY $1" >>"$(dirname "$0")/mps.log"
if [ "$1" = -d ]; then exec touch "$CUDA_MPS_PIPE_DIRECTORY/control"; fi
read -r line
[ "$line" = "quit -t 5" ] && rm "$CUDA_MPS_PIPE_DIRECTORY/control"
"""
# A native program that is a client of the MPS daemon that its environment names.
MPS_CLIENT = """#!/bin/sh
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] && export FAKE_CUDA="$FAKE_CUDA; attribute 133 1"
exec {} "$@"
"""
# The nvidia-smi of an older driver, which does not know the newer name of the reasons.
NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2 ;;
  *clocks_throttle_reasons*) echo "NVIDIA Fake, 580.1, 1980 MHz, 0x0" ;;
  *) echo "GPU-a0000000-fa4e-4000-8000-000000000000, NVIDIA Fake" ;;
esac
"""
# The fake CUDA driver's GPU is the one that the fake NVML calls GPU 0.
GPU = "sms 2; uuid 0 GPU-a0000000-fa4e-4000-8000-000000000000; "


def row(value, kind="rule", must=">= 1", part="facts", what="a figure", note=""):
    return "\t".join((part, what, value, "-", kind, must, note)) + "\n"


class Report(unittest.TestCase):
    """Tests report.awk alone."""

    def judge(self, rows, short=0):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "rows.tsv"
            file.write_text(rows, encoding="utf-8")
            out = pathlib.Path(directory) / "results.json"
            run = subprocess.run(
                ["awk", "-f", HERE / "report.awk", "-v", f"json={out}", "-v", f"short={short}", "-v", "seconds=7",
                 "-v", "bench=", "-v", f"summary={pathlib.Path(directory) / 'summary.txt'}", file], capture_output=True, text=True, check=False)
            result = json.loads(out.read_text(encoding="utf-8"))
            self.assertEqual(run.returncode == 0, result["ok"])
            self.assertTrue(run.stdout.endswith("GPU OK\n" if result["ok"] else "GPU FAILED\n"), run.stdout)
            result["summary"] = (pathlib.Path(directory) / "summary.txt").read_text(encoding="utf-8")
            return result

    def verdict(self, *arguments, short=0, **names):
        return self.judge(row(*arguments, **names), short)["rows"][0]["verdict"]

    def test_bounds_hold_at_their_edges_and_not_beyond(self):
        for value, must, verdict in (("1", ">= 1", "ok"), ("0.999", ">= 1", "FAILED"), ("2", "<= 2", "ok"),
                                     ("2.1", "<= 2", "FAILED"), ("0", "== 0", "ok"), ("1", "== 0", "FAILED"),
                                     ("-1", "== 1", "FAILED"), ("10", ">= 9", "ok"), ("1e+01", ">= 9", "ok")):
            self.assertEqual(self.verdict(value, must=must), verdict, f"{value} {must}")

    def test_a_value_that_is_not_a_number_fails_its_bound(self):
        for value in ("", "failed", "nan", "-", "inf", "1.5x"):
            self.assertEqual(self.verdict(value), "FAILED", value)
        self.assertEqual(self.verdict("1", must="~ 1"), "FAILED")

    def test_a_row_with_an_empty_value_fails(self):
        for kind, must in (("fact", "-"), ("figure", ">= 1"), ("rule", "== 1")):
            for short in (0, 1):
                self.assertEqual(self.verdict("", kind, must, short=short), "FAILED", kind)
        self.assertEqual(self.verdict("none", "fact", "-"), "-")

    def test_a_row_without_a_bound_is_not_judged(self):
        self.assertEqual(self.verdict("anything", kind="fact", must="-"), "-")

    def test_a_short_run_judges_rules_and_no_figures(self):
        self.assertEqual(self.verdict("0", kind="figure"), "FAILED")
        self.assertEqual(self.verdict("0", kind="figure", short=1), "-")
        self.assertEqual(self.verdict("0", kind="rule", short=1), "FAILED")

    def test_one_failure_among_many_fails_the_run(self):
        self.assertTrue(self.judge(row("1") * 3)["ok"])
        result = self.judge(row("1") * 3 + row("0") + row("1"))
        self.assertEqual((result["ok"], result["held"], result["failed"]), (False, 4, 1))

    def test_a_run_without_judged_rows_fails(self):
        self.assertFalse(self.judge("")["ok"])
        self.assertFalse(self.judge(row("1", kind="figure"), short=1)["ok"])

    def test_text_survives_in_json(self):
        nasty = 'a "quoted" \\ path & more'
        self.assertEqual(self.judge(row("1", note=nasty))["rows"][0]["note"], nasty)


    def test_the_summary_begins_with_the_failed_rows_and_fits_on_the_console(self):
        cells = "".join(row("1.23456", "figure", "-", "hog", f"contender {i} | a column with a long name {j}", "n" * 400)
                        for i in range(12) for j in range(20))
        for failed in (0, 3, 500):
            rows = row("1") + row("0", what="a rule that fails", note="m" * 400) * failed + cells
            summary = self.judge(rows)["summary"]
            self.assertLess(len(summary), 11_000)
            self.assertEqual(summary.startswith("FAILED facts: a rule that fails: 0 -, must be >= 1"), failed > 0)
            self.assertEqual(summary.count("FAILED facts"), min(failed, 24))
            self.assertTrue(summary.endswith("GPU OK\n" if failed == 0 else "GPU FAILED\n"))
            self.assertIn("contender 11 ", summary)

    def test_cells_stand_in_the_row_of_their_contender(self):
        summary = self.judge(row("1") + row("2", part="pair", what="a | x") + row("3", part="pair", what="b | y") +
                             row("0", part="pair", what="b | x"))["summary"]
        lines = [line.split() for line in summary.splitlines()]
        self.assertIn(["pair:", "(1)", "x", "(2)", "y"], lines)
        self.assertIn(["a", "2"], lines)
        self.assertIn(["b", "0!", "3"], lines)

    def test_an_incomplete_last_row_is_ignored(self):
        result = self.judge(row("1") + "facts\ta fig")
        self.assertEqual((result["ok"], len(result["rows"])), (True, 1))


class Run(unittest.TestCase):
    """Tests the script on a fake GPU of two multiprocessors."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)
        self.running = []
        (self.directory / "nvml.json").write_text('{"gpus": [{"board": "H200"}]}', encoding="utf-8")
        (self.directory / "mps").mkdir()
        (self.directory / "tools").mkdir()
        (self.directory / "tools" / "ptxas").symlink_to(PTXAS)
        self.program(self.directory / "tools" / "nvidia-smi", NVIDIA_SMI)

    def program(self, path, text):
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def programs_under_mps(self, clients_find_it=True):
        """Returns a directory of programs on a machine with an MPS daemon that can be started."""
        self.program(self.directory / "tools" / "nvidia-cuda-mps-control", MPS_CONTROL)
        directory = self.directory / "bin"
        directory.mkdir()
        for file in (*pathlib.Path(BIN).iterdir(), pathlib.Path(BIN).parent / "tests" / "cuda_conformance_test"):
            (directory / file.name).symlink_to(file)
        for name in ("train_native", "serve_native", "gpu_ops_native", "gpu_hog_native") if clients_find_it else ():
            self.program(directory / name, MPS_CLIENT.format(pathlib.Path(BIN) / name))
        return directory

    def start(self, name, *arguments, script="", driver=True, programs=None):
        environment = dict(os.environ, TMPDIR=str(self.directory), FAKE_NVML=str(self.directory / "nvml.json"), FAKE_CUDA=GPU + script,
                           CUDA_MPS_PIPE_DIRECTORY=str(self.directory / "mps"),
                           PATH=f"{self.directory / 'tools'}:{os.environ['PATH']}")
        libraries = [FAKE_CUDA, FAKE_NVML] if driver else [FAKE_NVML]
        environment["LD_LIBRARY_PATH"] = ":".join(libraries)
        # In sanitizer builds, gcc 12's leak checker crashes on the thread-local storage of threads that a library
        # loaded at run time still has at exit, as with drivers.
        environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.running.append(subprocess.Popen(
            [HERE / "run.sh", "--short", "--bin", programs or BIN, "--out", self.directory / name, *arguments],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return self.running[-1]

    def log(self, name):
        """Returns a log of a run in progress, in the directory that the run removes at its end."""
        found = list(self.directory.glob(f"tmp.*/logs/{name}"))
        return found[0] if found else None

    def await_log(self, process, name, text):
        while self.log(name) is None or text not in self.log(name).read_text(encoding="utf-8"):
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        return self.log(name)

    def ends(self, pid):
        """Returns whether the process ends soon. A killed one takes a while, and is a zombie until it is reaped."""
        for _ in range(250):
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            except (FileNotFoundError, ProcessLookupError):
                return True
            if "State:\tZ" in status:
                return True
            time.sleep(0.02)
        return False

    def logs(self, name):
        """Returns the names and texts of the logs that came back."""
        with tarfile.open(self.directory / name / "logs.tgz") as archive:
            return {member.name: archive.extractfile(member).read().decode() for member in archive if member.isfile()}

    def finish(self, name, process):
        text, _ = process.communicate()
        self.assertEqual(sorted(file.name for file in (self.directory / name).iterdir()), RESULTS)
        self.running.remove(process)
        if not self.running:
            self.assertEqual(list(self.directory.glob("tmp.*")), [])
        self.assertLess(len(text) - text.rfind("(at most"), 11_000)
        result = json.loads((self.directory / name / "results.json").read_text(encoding="utf-8"))
        result["text"] = text
        result["status"] = process.returncode
        self.assertEqual(result["ok"], process.returncode == 0, text)
        self.assertEqual((self.directory / name / "table.txt").read_text(encoding="utf-8").splitlines()[-1],
                         "GPU OK" if result["ok"] else "GPU FAILED")
        return result

    @staticmethod
    def value(result, part, what):
        found = [r for r in result["rows"] if (r["part"], r["what"]) == (part, what)]
        return found[0]["value"] if found else None

    @staticmethod
    def note(result, part, what):
        return next(r["note"] for r in result["rows"] if (r["part"], r["what"]) == (part, what))

    def ended(self, result, part):
        return self.value(result, part, "the part ran to its end")

    def test_every_part_runs_and_every_rule_holds(self):
        result = self.finish("all", self.start("all", programs=self.programs_under_mps()))
        self.assertEqual(result["status"], 0, result["text"])
        for part in PARTS:
            self.assertEqual(self.ended(result, part), 1, part)
        rows = [r for r in result["rows"] if r["what"] == "GPU before the part"]
        self.assertEqual([r["part"] for r in rows], list(PARTS))
        self.assertEqual({r["value"] for r in rows}, {"NVIDIA Fake, 580.1, 1980 MHz, 0x0"})
        self.assertEqual(result["text"].count("GPU: NVIDIA Fake, 580.1, 1980 MHz, 0x0"), len(PARTS))
        for part, what in (("bench", "null launch: submit, of the caller's time"),
                           ("bench", "copy to_host, pageable, async, 1 MiB"),
                           ("bench", "null launch: round trip beside a low client's kernels of 100 us"),
                           ("pair", "priority 1: began late by"),
                           ("pair", "time slicing, native 1 ms kernel: round trip beside another process's "
                                    "kernels of 10 ms, p99"),
                           ("pair", "MPS, client priority, native 1 ms kernel: round trip alone, p99"),
                           ("hog", "priority | null beside 2500 x 20 us, p99 us"),
                           ("hog", "priority | serve beside 1 x 1000 us, p99 ms"),
                           ("hog", "MPS, low has 50 % of the threads | kernel_1ms beside 50 x 20 us, p99 us"),
                           ("hog", "one process, stream priorities | hog 250 x 200 us, launches/s"),
                           ("bench", "a low client alone, 20 us kernels back to back"),
                           ("bench", "a low client beside an idle high session, 300 us kernels of 20 us blocks"),
                           ("bench", "a contained low client beside an idle high session, 50 us kernels back to back"),
                           ("costs", "kernel 'busy', several groups: claimed / original"),
                           ("bench", "completions by writes / by events, round trip p50"),
                           ("bench", "copy to_host, pinned, async, 1 MiB, of a low client"),
                           ("bench", "a low client killed amid its kernels: a high client's round trip"),
                           ("bench", "worker killed: until a new session has run a kernel"),
                           ("solo", "train alone: steps/s, shared / native"),
                           *(("pair", f"{contender}, seed {seed} | p99 / alone") for contender in CONTENDERS for seed in (1, 2)),
                           ("churn", "p99 of serve beside it / alone"),
                           ("costs", "programs of the corpus that compute right as they are"),
                           ("costs", "kernel 'stream', blocks of 20 us: claimed / original"),
                           ("costs", "kernel 'stream', blocks of 20 us: fenced / original"),
                           ("costs", "kernel 'stream', blocks of 20 us: contained / original"),
                           ("hostile", "kernels that mean harm"),
                           ("costs", "stop of a launch of 20 us blocks, p99"),
                           ("gate", "ns per launch: through the gate"),
                           ("facts", "31 busy streams: a word of another one is seen after"),
                           ("facts", "no call beside a 20 ms kernel, LAZY: takes"),
                           ("facts", "no call beside a 20 ms kernel, EAGER: another thread's longest call"),
                           ("facts", "registering 16 MiB of a sealed memfd"),
                           ("facts", "call: launch"),
                           ("facts", "null kernel, end seen by a host function, p50"),
                           ("facts", "null kernel beside a thread that maps 64 MiB, p99"),
                           ("facts", "blocks that look at a word in pinned memory of the host, time / without")):
            value = self.value(result, part, what)
            self.assertIsInstance(value, (int, float), what)
            self.assertGreater(value, 0, what)
        for policy in ("priority", "deadline"):
            for seed in (1, 2):
                self.check_used_of_left(result, f"{policy}, seed {seed} | train / the time that serve left")
        self.assertEqual(self.value(result, "costs", "of these, not claimed and stopped at random"), 0)
        self.assertIsNotNone(self.value(result, "facts", "memory of a context, in another process"))
        self.assertEqual(self.value(result, "hostile", "the worker went on"), 1)
        for part in ("environment", "pair"):
            self.assertEqual(self.value(result, part, "policy priority: kernels can be preempted"), 1)
        self.assertEqual(self.value(result, "conformance", "rules without an answer"), 0)
        # Ten rules in each of seven flavours, some of which a flavour does not support.
        self.assertEqual(self.value(result, "smoke", "rules passed") +
                         self.value(result, "smoke", "rules beyond the device, skipped"), 70)
        self.assertEqual(self.value(result, "smoke", "a server is ready"), 1)
        self.assertGreater(self.value(result, "hostile", "kernels that mean harm"),
                           self.value(result, "smoke", "kernels that mean harm"))
        self.assertEqual(self.value(result, "gate", "launches of gate_bench pass the gate"), 1)
        self.assertIn("launch", self.logs("all")["logs/costs.txt"])
        self.check_mps(result)
        self.assertEqual(self.value(result, "limits", "multiprocessors of class low under --sm-limit low=100%"), 2)
        self.assertEqual(self.value(result, "limits", "a low client computes within it"), 1)
        self.check_ratios(result)
        whats = {r["what"] for r in result["gpu_bench"]["rows"]}
        for side in ("native", "shared"):
            self.assertIn(f"{side}: null launch: round trip", whats)

    def test_the_whole_run_passes_over_the_costed_fake(self):
        result = self.finish("costed", self.start("costed", "--modelled", script="costs on; lock on",
                                                  programs=self.programs_under_mps()))
        self.assertEqual(result["status"], 0, result["text"])
        for part in PARTS:
            self.assertEqual(self.ended(result, part), 1, part)
        self.assertLess(result["seconds"], 560)
        for row_ in result["rows"]:
            self.assertEqual(row_["what"].startswith("modelled: "), row_["kind"] != "rule", row_)
        self.assertGreater(self.value(result, "bench", "modelled: a low client alone, 300 us kernels back to back"), 0)

    def check_mps(self, result):
        for contender in CONTENDERS[2:]:
            if contender != "one process, stream priorities":
                self.assertEqual(self.value(result, "pair", f"{contender} 1: programs under MPS"),
                                 2 if contender.startswith("MPS") else 0, contender)
        # Three contenders in each of the parts pair and hog, and once in the part gate.
        self.check_mps_calls(2 * 3 + 1)

    def check_mps_calls(self, times):
        """Checks that the daemon was started this often, always in the run's own directory, and ended each time."""
        log = (self.directory / "tools" / "mps.log").read_text(encoding="utf-8")
        calls = [line.split(" ") for line in log.splitlines()]
        self.assertEqual([call[1] for call in calls], ["-d", ""] * times, log)
        self.assertEqual(len({call[0] for call in calls}), 1)
        self.assertNotEqual(calls[0][0], str(self.directory / "mps"))

    def test_programs_without_mps_are_not_reported_as_its_clients(self):
        programs = self.programs_under_mps(clients_find_it=False)
        result = self.finish("deaf", self.start("deaf", "--only", "pair", programs=programs))
        self.assertEqual(result["status"], 1, result["text"])
        for contender in CONTENDERS[4:]:
            self.assertEqual(self.value(result, "pair", f"{contender}: a first program is under MPS"), 0)
        self.assertEqual([r["what"] for r in result["rows"] if re.match("MPS.*seed", r["what"])], [])
        self.check_mps_calls(3)
        # The other contenders have results, even without the part that determines sizes.
        self.assertEqual(self.value(result, "pair", "sizes"), "not measured")
        self.assertGreater(self.value(result, "pair", "time slicing, seed 1 | p99 / alone"), 0)

    def test_a_part_that_is_cut_short_keeps_its_rows(self):
        control = self.directory / "control"
        control.touch()
        process = self.start("cut", "--only", "conformance", script=f"control {control}")
        log = self.await_log(process, "conformance.gtest.log", " OK ]")
        control.write_text("hold\n", encoding="utf-8")
        test = next(int(pid.name) for pid in pathlib.Path("/proc").iterdir() if pid.name.isdigit() and
                    (pid / "cmdline").exists() and self.is_rules_of(pid, log))
        group = os.getpgid(test)
        # Sends the signal repeatedly, because timeout may forward a signal at any time, even during the last messages.
        while process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
            time.sleep(0.005)
        result = self.finish("cut", process)
        self.assertEqual(self.ended(result, "conformance"), 0)
        self.assertGreater(self.value(result, "conformance", "rules passed"), 0)
        self.assertGreater(self.value(result, "conformance", "rules without an answer"), 0)

    def test_a_hanging_rule_affects_no_other(self):
        control = self.directory / "control"
        control.touch()
        process = self.start("hung", "--only", "conformance", script=f"control {control}")
        log = self.await_log(process, "conformance.gtest.log", " OK ]")
        control.write_text("hold\n", encoding="utf-8")
        result = self.finish("hung", process)
        self.assertEqual(result["status"], 1, result["text"])
        self.assertEqual(self.value(result, "conformance", "rules that hung or crashed"), 1)
        self.assertEqual(self.value(result, "conformance", "rules without an answer"), 1)
        self.assertGreater(self.value(result, "conformance", "rules passed"), 50)
        self.assertEqual(self.ended(result, "conformance"), 1)

    def test_a_dead_context_affects_only_its_rule(self):
        """After a wild address, for example, every later call of that process fails, so the other rules run in another
        process."""
        result = self.finish("dead", self.start("dead", "--only", "conformance", script="fault 20 700"))
        self.assertEqual(result["status"], 1, result["text"])
        dead = self.value(result, "conformance", "rules that left a dead context")
        self.assertGreater(dead, 0)
        self.assertEqual(self.value(result, "conformance", "rules failed"), dead)
        self.assertEqual(self.value(result, "conformance", "rules without an answer"), 0)
        self.assertEqual(self.value(result, "conformance", "rules that hung or crashed"), 0)
        log = self.logs("dead")["logs/conformance.gtest.log"]
        first = re.search(r"^\[  FAILED  \] (\S+) ", log, re.MULTILINE).group(1)
        self.assertIn(f"first: {first}: ", self.note(result, "conformance", "rules failed"))
        self.assertIn("Failure", self.note(result, "conformance", "rules failed"))

    def test_wrong_copies_are_found_by_the_parts_that_copy(self):
        """Copies of less than 4 KiB arrive correctly, so sessions and other small copies still work."""
        parts = ("environment", "facts", "model", "bench", "hostile", "limits")
        result = self.finish("wrong", self.start("wrong", "--modelled", *self.only(parts),
                                                 script="costs on; copies wrong 4K"))
        self.assertEqual(result["status"], 1, result["text"])
        failed = {row_["part"] for row_ in result["rows"] if row_["verdict"] == "FAILED"}
        self.assertEqual(failed, set(parts))
        self.assertIn("what arrived is not what was there", result["text"])
        whats = {row_["what"] for row_ in result["rows"] if row_["verdict"] == "FAILED"}
        self.assertIn("copy to_device, pinned, sync, 64 KiB", whats)
        self.assertIn("measurements failed, the first: ", self.note(result, "bench", "the part ran to its end"))
        # Operations without copies of that length are measured nevertheless.
        self.assertGreater(self.value(result, "bench", "modelled: null launch: submit, of the caller's time"), 0)

    def test_lost_words_are_found_by_the_parts_that_stop_kernels(self):
        parts = ("facts", "bench", "hostile", "stops")
        result = self.finish("lost", self.start("lost", "--modelled", *self.only(parts),
                                                script="costs on; words lost"))
        self.assertEqual(result["status"], 1, result["text"])
        failed = {row_["part"] for row_ in result["rows"] if row_["verdict"] == "FAILED"}
        # A contained kernel ends through a word that the host stores, which needs no stream.
        self.assertEqual(failed, set(parts) - {"hostile"})
        self.assertIn("a word that a stream writes was not seen within", result["text"])
        # A launch in groups still ends between two of them, only later.
        self.assertEqual(self.value(result, "stops", "stops that ended a launch amid a group of its blocks, of all"), 0)
        # A server that detects no end costs its limit, and the other mechanism is measured.
        self.assertEqual(self.value(result, "bench", "completions by writes: measured"), 0)
        self.assertGreater(self.value(result, "bench", "modelled: null launch: submit, of the caller's time"), 0)

    def test_lost_workers_are_not_reported_as_changed_memory(self):
        result = self.finish("lossy", self.start("lossy", "--only", "hostile", script="fault 40 700"))
        self.assertEqual(result["status"], 1, result["text"])
        self.assertGreater(self.value(result, "hostile", "of these, took the neighbour's session along"), 0)
        self.assertEqual(self.value(result, "hostile", "of these, changed a neighbour's memory"), 0)
        kernels = [row_ for row_ in result["rows"] if row_["what"].startswith("kernel '")]
        self.assertEqual(len(kernels), self.value(result, "hostile", "kernels that mean harm"))

    def test_an_early_end_leaves_the_results_so_far(self):
        process = self.start("early", "--only", "environment", "--only", "facts")
        results = self.directory / "early" / "results.json"
        result = None
        while result is None or self.ended(result, "environment") is None:
            self.assertIsNone(process.poll())
            with contextlib.suppress(FileNotFoundError):
                result = json.loads(results.read_text(encoding="utf-8"))
        self.assertIsNone(self.ended(result, "facts"))
        process.send_signal(signal.SIGTERM)
        result = self.finish_killed("early", process)
        self.assertEqual(self.ended(result, "environment"), 1, result)

    def finish_killed(self, name, process):
        """Checks a run that received SIGTERM: all its processes have exited, and its results so far are complete."""
        process.communicate()
        self.assertEqual(process.returncode, 143)
        self.assertEqual(list(self.directory.glob("tmp.*")), [])
        self.assertEqual(sorted(file.name for file in (self.directory / name).iterdir()), RESULTS)
        return json.loads((self.directory / name / "results.json").read_text(encoding="utf-8"))

    @staticmethod
    def only(parts):
        return [word for part in parts for word in ("--only", part)]

    @staticmethod
    def is_rules_of(pid, log):
        try:
            return (os.readlink(pid / "exe").endswith("/cuda_conformance_test") and
                    os.readlink(pid / "fd" / "1") == str(log))
        except OSError:
            return False

    def test_the_total_time_suffices_for_each_part(self):
        text = (HERE / "run.sh").read_text(encoding="utf-8")
        total = int(re.search(r"^readonly total_s=(\d+)$", text, re.MULTILINE).group(1))
        parts = re.search(r"^readonly parts=\(([^)]*)\)", text, re.MULTILINE).group(1).split()
        times = {part.split(":")[0]: tuple(map(int, part.split(":")[1:])) for part in parts}
        self.assertEqual(tuple(part for part in times if part not in NAMED), PARTS)
        self.assertLess(set(NAMED), set(times))
        for part, (least, limit) in times.items():
            self.assertLess(least, limit, part)
        # A command on a lent machine may take 600 s, and the first parts run on a GPU in a power-saving state.
        self.assertLessEqual(total, 560)
        slack = total - sum(times[part][0] for part in PARTS)
        self.assertGreaterEqual(slack, times["environment"][1] - times["environment"][0])

    def test_runs_gate_pair_only_if_it_is_named(self):
        programs = self.programs_under_mps()
        result = self.finish("named", self.start("named", "--only", "gate_pair", "--python", sys.executable, programs=programs))
        self.assertEqual({r["part"] for r in result["rows"]}, set(NAMED))
        self.assertEqual(self.ended(result, "gate_pair"), 1, result["text"])
        # The fake driver lacks calls that the gate needs, so gated programs run without the server.
        self.assertEqual([r["what"] for r in result["rows"] if r["verdict"] == "FAILED"],
                         [f"a connected {client_class} client: the server counts the launches" for client_class in ("high", "low")])
        self.assertEqual([r["verdict"] for r in result["rows"] if r["what"].endswith("ns per launch: measured")], ["ok", "ok"])

    def test_all_programs_use_a_mig_instance(self):
        (self.directory / "nvml.json").write_text(
            '{"gpus": [{"board": "H200", "mig": true, "instances": [{"profile": "1g.18gb", "start": 0}]}]}',
            encoding="utf-8")
        result = self.finish("instance", self.start(
            "instance", "--only", "environment", "--only", "facts", script=f"uuid 0 {INSTANCE}; "))
        self.assertEqual(result["status"], 0, result["text"])
        self.assertEqual(self.value(result, "environment", "device"), INSTANCE)
        self.assertEqual(self.value(result, "environment", "the server serves a GPU"), 1)

    def check_ratios(self, result):
        """Recomputes ratios from their components, because an inverted ratio would judge the opposite."""
        def numbers(row_, pattern):
            found = re.search(pattern, row_["note"])
            self.assertIsNotNone(found, row_)
            return [float(number) for number in found.groups()]

        checked = 0
        for row_ in result["rows"]:
            if row_["unit"] == "native/shared":
                native, shared = numbers(row_, r"native p50 (\S+) p99 .* shared p50 (\S+) p99")
                expected = native / shared
            elif row_["part"] == "solo" and row_["what"].endswith("shared / native"):
                native, shared = numbers(row_, r"last round native (\S+), shared (\S+)")
                expected = shared / native
            elif row_["part"] == "pair" and row_["what"].endswith("| p99 / alone"):
                alone, = numbers(row_, r"alone p99 (\S+) ms")
                p99 = row_["what"].replace("p99 / alone", "p99 of serve, ms")
                expected = self.value(result, "pair", p99) / alone
            elif row_["part"] == "churn" and row_["what"].startswith("p99"):
                beside, alone = numbers(row_, r"(\S+) ms, alone (\S+) ms")
                expected = beside / alone
            else:
                continue
            checked += 1
            self.assertAlmostEqual(row_["value"] / expected, 1, delta=0.01, msg=row_)
        self.assertGreaterEqual(checked, 20)

    def test_a_part_that_fails_or_hangs_does_not_stop_the_others(self):
        # Starts both runs at once, because the one that hangs lasts until its limit.
        programs = self.programs_under_mps()
        self.program(programs / "gpu_ops_native", "#!/bin/sh\ntrap '' TERM\nsleep 300\n")
        hangs = self.start("hangs", "--only", "native", "--only", "environment", programs=programs)
        fails = self.start("fails", "--only", "facts", "--only", "environment", "--only", "bench",
                           script="fail cuMemHostRegister_v2 * 2; fail cuMemHostRegister * 2; attribute 122 0")
        result = self.finish("fails", fails)
        self.assertEqual(result["status"], 1, result["text"])
        self.assertEqual(self.ended(result, "facts"), 0)
        self.assertEqual(self.value(result, "facts", "sealed shared memory: answered"), 0)
        self.assertEqual(self.value(result, "facts", "stream priority: answered"), 1)
        self.assertEqual(self.ended(result, "environment"), 1)
        # One of the two completion mechanisms is missing: the other is measured, and so is everything else.
        self.assertEqual(self.value(result, "bench", "completions by writes: measured"), 0)
        self.assertGreater(self.value(result, "bench", "null launch: submit, of the caller's time"), 0)
        self.assertEqual(self.ended(result, "bench"), 1)
        result = self.finish("hangs", hangs)
        self.assertEqual(result["status"], 1, result["text"])
        self.assertEqual(self.ended(result, "native"), 0)
        self.assertEqual(self.ended(result, "environment"), 1)

    def test_without_a_driver_it_says_so_and_measures_nothing(self):
        process = self.start("none", driver=False)
        text, _ = process.communicate()
        self.assertEqual(process.returncode, 1, text)
        self.assertIn("no GPU to measure: libcuda.so.1", text)
        self.assertFalse((self.directory / "none").exists())

    def test_without_a_gpu_that_is_served_the_other_parts_are_left_out(self):
        (self.directory / "nvml.json").write_text('{"gpus": []}', encoding="utf-8")
        result = self.finish("unserved", self.start("unserved", *self.only(("smoke", "facts")), script="devices 0"))
        self.assertEqual(result["status"], 1, result["text"])
        self.assertEqual(self.ended(result, "smoke"), 0)
        self.assertIsNone(self.ended(result, "facts"))
        self.assertIn("no GPU is served, the remaining parts are left out", result["text"])

    def test_a_failed_worker_ends_the_wait_and_is_reported_with_the_reason(self):
        """A server with nothing to serve exits; one whose worker died reports the reason for its restart."""
        programs = self.programs_under_mps()
        (programs / "gpusharedctl").unlink()
        self.program(programs / "gpusharedctl", """#!/bin/sh
            printf '  "last_death": "worker generation 1 was killed by signal 9",\\n  "state": "restarting",\\n'
            """)
        for name, script, options, reason in (
                ("failing", "fail cuStreamCreateWithPriority * 2", {}, "cuStreamCreateWithPriority: CUDA_ERROR"),
                ("restarting", "", {"programs": programs}, "the device is restarting: worker generation 1 was killed")):
            result = self.finish(name, self.start(name, "--only", "environment", script=script, **options))
            self.assertEqual(self.ended(result, "environment"), 0)
            why = self.note(result, "environment", "the part ran to its end")
            self.assertIn("environment: the server did not start: ", why)
            self.assertIn(reason, why)
            self.assertLess(result["seconds"], 20)  # A run that misses the reason waits for 20 s.

    def test_ends_processes_that_a_killed_part_has_left(self):
        """Workers have separate process groups, which the limit of their part does not reach."""
        programs = self.programs_under_mps()
        # Like a program that hangs and ignores all signals except KILL; its server is killed with its part.
        self.program(programs / "gpu_hostile", "#!/bin/bash\ntrap '' TERM\nsleep 300\n")
        self.program(programs / "timeout", "")
        (programs / "timeout").unlink()
        self.program(self.directory / "tools" / "timeout",
                     "#!/bin/bash\n[[ $1 == --kill-after=5 ]] && exec /usr/bin/timeout --kill-after=1 6 \"${@:3}\"\n"
                     "exec /usr/bin/timeout \"$@\"\n")
        process = self.start("killed", "--only", "hostile", programs=programs)
        self.await_log(process, "hostile.gpushared.log", "is ready")
        worker = int(re.search(r"worker pid (\d+)", self.log("hostile.gpushared.log").read_text(encoding="utf-8")).group(1))
        result = self.finish("killed", process)
        self.assertEqual(self.ended(result, "hostile"), 0)
        self.assertTrue(self.ends(worker))

    def test_a_run_that_is_killed_at_any_moment_leaves_its_results(self):
        """Kills the run and all processes that it started, as the limit of a lent machine's command does."""
        seed = random.randrange(1 << 32)
        moments = random.Random(seed)
        for batch in range(5):
            runs = [(f"killed{batch}{i}", moments.uniform(0, 8)) for i in range(4)]
            processes = [self.start(name, *self.only(("smoke", "native", "environment"))) for name, _ in runs]
            while not all((self.directory / name / "logs.tgz").exists() for name, _ in runs):
                time.sleep(0.01)  # The first files are written before the first measurement.
            begin = time.monotonic()
            for (name, moment), process in sorted(zip(runs, processes), key=lambda pair: pair[0][1]):
                time.sleep(max(0.0, begin + moment - time.monotonic()))
                process.kill()
                process.communicate()
                with self.subTest(seed=seed, moment=moment):
                    self.check_results_of_a_killed_run(self.directory / name)
            for scratch in self.directory.glob("tmp.*"):
                self.end_marked(scratch)

    def check_results_of_a_killed_run(self, out):
        files = sorted(file.name for file in out.iterdir() if not file.name.startswith("."))
        self.assertEqual(files, RESULTS)
        self.assertLessEqual(len(list(out.iterdir())), 5)
        result = json.loads((out / "results.json").read_text(encoding="utf-8"))
        self.assertLessEqual(len(result["rows"]), len((out / "rows.tsv").read_text(encoding="utf-8").splitlines()))
        self.assertIn((out / "table.txt").read_text(encoding="utf-8").splitlines()[-1], ("GPU OK", "GPU FAILED"))
        with tarfile.open(out / "logs.tgz") as archive:
            self.assertIn("logs", archive.getnames())

    @staticmethod
    def end_marked(scratch):
        for environment in pathlib.Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"GPUSHARED_GPU_RUN={scratch}\0".encode() in environment.read_bytes():
                    os.kill(int(environment.parent.name), signal.SIGKILL)

    def test_without_time_left_by_serve_the_share_is_none_with_a_reason(self):
        """On a machine that is too slow for its requests, `serve` leaves no time of which a part could be used."""
        programs = self.programs_under_mps()
        self.program(programs / "serve", f"""#!/bin/bash
            {BIN}/serve "$@" || exit
            while [[ $# -gt 1 && $1 != --json ]]; do shift; done
            [[ $# -lt 2 ]] || sed -i 's/"busy": [^,]*/"busy": 1/' "$2"
            """)
        result = self.finish("slow", self.start("slow", "--only", "pair", programs=programs))
        self.assertEqual(result["status"], 0, result["text"])
        what = "deadline, seed 2 | train / the time that serve left"
        self.assertEqual(self.value(result, "pair", what), "none")
        self.assertIn("serve was busy for 1 of its time", self.note(result, "pair", what))
        self.assertEqual([row_["what"] for row_ in result["rows"] if row_["value"] == ""], [])

    def check_used_of_left(self, result, what):
        """On a machine that others keep busy, `serve` may leave no time."""
        value = self.value(result, "pair", what)
        if value == "none":
            self.assertIn("serve was busy for", self.note(result, "pair", what))
        else:
            self.assertGreater(value, 0, what)

    def test_programs_that_do_not_run_here_are_named_with_the_reason(self):
        programs = self.directory / "broken"
        programs.mkdir()
        self.program(programs / "gpushared", "#!/bin/sh\necho 'libc.so.6: version `GLIBC_9.9 not found' >&2\nexit 1\n")
        process = self.start("broken", programs=programs)
        text, _ = process.communicate()
        self.assertEqual(process.returncode, 2, text)
        self.assertIn("broken/gpushared does not run on this machine: libc.so.6: version `GLIBC_9.9 not found", text)

    def test_rejects_invalid_arguments(self):
        for arguments in (["--frobnicate"], ["--bin", "/nowhere"], ["--only", "nonsense"]):
            run = subprocess.run([HERE / "run.sh", "--out", self.directory / "rejected", "--bin", BIN, *arguments],
                                 capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 2, arguments)


if __name__ == "__main__":
    BIN, FAKE_CUDA, FAKE_NVML, PTXAS = sys.argv[1:5]
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
