# SPDX-License-Identifier: Apache-2.0
"""run.sh over a fake driver: what it promises about parts that fail, its verdicts and its results."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("environment", "conformance", "hostile", "claims", "bench", "model", "solo", "pair", "churn", "facts", "limits",
         "sanitizer")
BIN = FAKE_CUDA = FAKE_NVML = ""  # Folders; from the command line.
# The fake CUDA driver's GPU is the one that the fake NVML calls GPU 0.
GPU = "sms 2; uuid 0 GPU-a0000000-fa4e-4000-8000-000000000000; "


def row(value, kind="rule", must=">= 1", part="facts", what="a figure", note=""):
    return "\t".join((part, what, value, "-", kind, must, note)) + "\n"


class Report(unittest.TestCase):
    """The judge, by itself."""

    def judge(self, rows, short=0):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.tsv"
            file.write_text(rows, encoding="utf-8")
            out = pathlib.Path(folder) / "results.json"
            run = subprocess.run(
                ["awk", "-f", HERE / "report.awk", "-v", f"json={out}", "-v", f"short={short}", "-v", "seconds=7",
                 "-v", "bench=", file], capture_output=True, text=True, check=False)
            result = json.loads(out.read_text(encoding="utf-8"))
            self.assertEqual(run.returncode == 0, result["ok"])
            self.assertTrue(run.stdout.endswith("GPU OK\n" if result["ok"] else "GPU FAILED\n"), run.stdout)
            return result

    def verdict(self, *arguments, short=0, **names):
        return self.judge(row(*arguments, **names), short)["rows"][0]["verdict"]

    def test_bounds_hold_at_their_edges_and_not_beyond(self):
        for value, must, verdict in (("1", ">= 1", "ok"), ("0.999", ">= 1", "FAILED"), ("2", "<= 2", "ok"),
                                     ("2.1", "<= 2", "FAILED"), ("0", "== 0", "ok"), ("1", "== 0", "FAILED"),
                                     ("-1", "== 1", "FAILED"), ("10", ">= 9", "ok"), ("1e+01", ">= 9", "ok")):
            self.assertEqual(self.verdict(value, must=must), verdict, f"{value} {must}")

    def test_what_is_no_number_never_holds_a_bound(self):
        for value in ("", "failed", "nan", "-", "inf", "1.5x"):
            self.assertEqual(self.verdict(value), "FAILED", value)
        self.assertEqual(self.verdict("1", must="~ 1"), "FAILED")

    def test_what_has_no_bound_is_not_judged(self):
        self.assertEqual(self.verdict("anything", kind="fact", must="-"), "-")

    def test_a_short_run_judges_rules_and_no_figures(self):
        self.assertEqual(self.verdict("0", kind="figure"), "FAILED")
        self.assertEqual(self.verdict("0", kind="figure", short=1), "-")
        self.assertEqual(self.verdict("0", kind="rule", short=1), "FAILED")

    def test_one_failure_among_many_fails_the_run(self):
        self.assertTrue(self.judge(row("1") * 3)["ok"])
        result = self.judge(row("1") * 3 + row("0") + row("1"))
        self.assertEqual((result["ok"], result["held"], result["failed"]), (False, 4, 1))

    def test_a_run_that_judged_nothing_is_no_success(self):
        self.assertFalse(self.judge("")["ok"])
        self.assertFalse(self.judge(row("1", kind="figure"), short=1)["ok"])

    def test_text_survives_in_json(self):
        nasty = 'a "quoted" \\ path & more'
        self.assertEqual(self.judge(row("1", note=nasty))["rows"][0]["note"], nasty)


class Run(unittest.TestCase):
    """The script on a fake GPU of two multiprocessors."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "nvml.json").write_text('{"gpus": [{"board": "H200"}]}', encoding="utf-8")
        (self.folder / "mps").mkdir()

    def start(self, name, *arguments, script="", driver=True):
        environment = dict(os.environ, FAKE_NVML=str(self.folder / "nvml.json"), FAKE_CUDA=GPU + script,
                           CUDA_MPS_PIPE_DIRECTORY=str(self.folder / "mps"))
        libraries = [FAKE_CUDA, FAKE_NVML] if driver else [FAKE_NVML]
        environment["LD_LIBRARY_PATH"] = ":".join(libraries)
        # In sanitizer builds, gcc 12's leak checker crashes on the thread-local storage of threads
        # that a library loaded at run time still has at exit, as drivers do.
        environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        return subprocess.Popen(
            [HERE / "run.sh", "--short", "--bin", BIN, "--out", self.folder / name, *arguments],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, name, process):
        text, _ = process.communicate()
        result = json.loads((self.folder / name / "results.json").read_text(encoding="utf-8"))
        result["text"] = text
        result["status"] = process.returncode
        self.assertEqual(result["ok"], process.returncode == 0, text)
        self.assertEqual((self.folder / name / "table.txt").read_text(encoding="utf-8").splitlines()[-1],
                         "GPU OK" if result["ok"] else "GPU FAILED")
        return result

    @staticmethod
    def value(result, part, what):
        found = [r for r in result["rows"] if (r["part"], r["what"]) == (part, what)]
        return found[0]["value"] if found else None

    def ended(self, result, part):
        return self.value(result, part, "the part ran to its end")

    def test_every_part_runs_and_every_rule_holds(self):
        result = self.finish("all", self.start("all"))
        self.assertEqual(result["status"], 0, result["text"])
        for part in PARTS:
            self.assertEqual(self.ended(result, part), 1, part)
        for part, what in (("bench", "null launch: submit, of the caller's time"),
                           ("bench", "copy to_host, pageable, async, 1 MiB"),
                           ("bench", "null launch: round trip beside a low client's kernels of 100 us"),
                           ("bench", "worker killed: until a new session has run a kernel"),
                           ("solo", "train alone: steps/s, shared / native"),
                           ("pair", "both, policy priority: p99 / alone"),
                           ("pair", "both, native time slicing: p99 / alone"),
                           ("churn", "p99 of serve beside it / alone"),
                           ("claims", "programs of the corpus that compute right as they are"),
                           ("claims", "kernel 'stream', blocks of 20 us: claimed / original"),
                           ("claims", "kernel 'stream', blocks of 20 us: fenced / original"),
                           ("claims", "kernel 'stream', blocks of 20 us: contained / original"),
                           ("hostile", "kernels that mean harm"),
                           ("claims", "stop of a launch of 20 us blocks, p99"),
                           ("facts", "registering 16 MiB of a sealed memfd")):
            value = self.value(result, part, what)
            self.assertIsInstance(value, (int, float), what)
            self.assertGreater(value, 0, what)
        self.assertEqual(self.value(result, "claims", "of these, not claimed and stopped at random"), 0)
        self.assertEqual(self.value(result, "hostile", "the worker went on"), 1)
        self.assertEqual(self.value(result, "pair", "MPS"), "skipped")
        self.assertEqual(self.value(result, "limits", "multiprocessors of class low under --sm-limit low=100%"), 2)
        self.assertEqual(self.value(result, "limits", "a low client computes within it"), 1)
        self.check_ratios(result)
        whats = {r["what"] for r in result["gpu_bench"]["rows"]}
        for side in ("native", "shared"):
            self.assertIn(f"{side}: null launch: round trip", whats)

    def check_ratios(self, result):
        """A ratio that stands the wrong way round judges the opposite: recompute it from what it was made of."""
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
            elif row_["part"] == "pair" and row_["what"].endswith("p99 of serve"):
                alone, = numbers(row_, r"alone p99 (\S+) ms")
                expected = row_["value"] / alone
                row_ = next(r for r in result["rows"] if r["what"] == row_["what"].replace("p99 of serve", "p99 / alone"))
            elif row_["part"] == "churn" and row_["what"].startswith("p99"):
                beside, alone = numbers(row_, r"(\S+) ms, alone (\S+) ms")
                expected = beside / alone
            else:
                continue
            checked += 1
            self.assertAlmostEqual(row_["value"] / expected, 1, delta=0.01, msg=row_)
        self.assertGreaterEqual(checked, 20)

    def test_a_part_that_fails_or_hangs_does_not_stop_the_others(self):
        # Side by side: the one that hangs is left alone until its limit.
        hangs = self.start("hangs", "--only", "facts", "--only", "sanitizer", script="hold")
        fails = self.start("fails", "--only", "facts", "--only", "environment",
                           script="fail cuMemHostRegister_v2 * 2; fail cuMemHostRegister * 2")
        result = self.finish("fails", fails)
        self.assertEqual(result["status"], 1, result["text"])
        self.assertEqual(self.ended(result, "facts"), 0)
        self.assertEqual(self.value(result, "facts", "sealed shared memory: answered"), 0)
        self.assertEqual(self.value(result, "facts", "stream priority: answered"), 1)
        self.assertEqual(self.ended(result, "environment"), 1)
        result = self.finish("hangs", hangs)
        self.assertEqual(result["status"], 1, result["text"])
        self.assertEqual(self.ended(result, "facts"), 0)
        self.assertEqual(self.ended(result, "sanitizer"), 1)

    def test_without_a_driver_nothing_is_proven(self):
        result = self.finish("none", self.start("none", "--only", "conformance", "--only", "facts", driver=False))
        self.assertEqual(result["status"], 1, result["text"])
        self.assertEqual(self.value(result, "conformance", "rules passed"), 0)
        self.assertGreater(self.value(result, "conformance", "rules beyond the device, skipped"), 0)
        self.assertEqual(self.ended(result, "facts"), 0)

    def test_what_is_not_understood_is_refused(self):
        for arguments in (["--frobnicate"], ["--bin", "/nowhere"], ["--only", "nonsense"]):
            run = subprocess.run([HERE / "run.sh", "--out", self.folder / "refused", "--bin", BIN, *arguments],
                                 capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 2, arguments)


if __name__ == "__main__":
    BIN, FAKE_CUDA, FAKE_NVML = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
