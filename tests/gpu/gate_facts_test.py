# SPDX-License-Identifier: Apache-2.0
"""gate_facts.py and gate_bench on a fake driver: rows, limits, and programs that are missing, fail or differ.

Usage: gate_facts_test.py GATE_BENCH DROP_IN_DIRECTORY FAKE_CUDA_DIRECTORY [TEST]
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BENCH = DROP_IN = FAKE_CUDA = ""  # From the command line.

# Programs like those of gate_programs, without packages.
LOADS = """
import ctypes, os
driver = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
driver.cuInit(0), driver.cuDeviceGetCount(ctypes.byref(count))
print("bits devices", count.value)
"""
# The gate's counts for a program that loads no driver.
TRACES = """
import os
is_gated = os.environ["GPUSHARED_MODE"] == "gate"
if is_gated:
    with open(f"{os.environ['GPUSHARED_GATE_TRACE']}.{os.getpid()}", "w") as file:
        file.write("calls\\tcuInit\\t1\\ncalls\\tcuLaunchKernelEx_ptsz\\t7\\ncalls\\tcuGraphLaunch\\t2\\n"
                   "calls\\tcuLaunchHostFunc\\t3\\nfetched\\tcuInit\\t1\\npassed\\tcuNew@13050\\t1\\n")
"""


def rows_of(path):
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        part, what, value, _, kind, must, note = line.split("\t")
        assert part == "gate", line
        rows[what] = (value, kind, must, note)
    return rows


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.rows = self.directory / "rows.tsv"

    def ended(self, *command):
        environment = {**os.environ, "LD_LIBRARY_PATH": FAKE_CUDA, "FAKE_CUDA": "sms 2"}
        self.run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
        return self.run.returncode


class Facts(Case):
    def facts(self, programs, *arguments):
        for name, text in programs.items():
            (self.directory / f"{name}.py").write_text(text, encoding="utf-8")
        only = [word for name in programs for word in ("--only", name)]
        self.code = self.ended(sys.executable, HERE / "gate_facts.py", "--drop-in", DROP_IN, "--rows", self.rows,
                               "--programs", self.directory, *only, *arguments)
        return rows_of(self.rows)

    def same(self, text, *arguments):
        return self.facts({"a": text}, *arguments)["a: same results through the gate"]

    def test_reports_equal_results_and_counts_driver_calls(self):
        rows = self.facts({"a": LOADS})
        self.assertEqual(self.code, 0, self.run.stderr)
        self.assertEqual(rows["a: same results through the gate"], ("1", "rule", "== 1", "devices"))
        self.assertEqual(rows["a: calls through the gate"][:2], ("2", "fact"))
        self.assertIn("cuDeviceGetCount", rows["a: calls through the gate"][3])

    def test_counts_launches_by_driver_function(self):
        rows = self.facts({"a": TRACES + "print('bits sum 1')"})
        self.assertEqual(rows["a: launches by cuLaunchKernelEx_ptsz"][0], "7")
        self.assertEqual(rows["a: launches by cuGraphLaunch"][0], "2")
        self.assertNotIn("a: launches by cuLaunchHostFunc", rows)
        self.assertEqual(rows["a: functions fetched by cuGetProcAddress"][0], "1")
        self.assertEqual(rows["a: functions fetched from the driver past the gate"][3], "cuNew@13050")

    def test_a_result_that_differs_is_named(self):
        row = self.same(TRACES + "print('bits sum', is_gated); print('bits product 1')")
        self.assertEqual(row, ("0", "rule", "== 1", "different: sum"))
        self.assertEqual(self.code, 0, "the row says it")

    def test_a_result_that_is_not_there_differs(self):
        self.assertEqual(self.same(TRACES + "print('bits a 1'); is_gated or print('bits b 1')")[3], "different: b")

    def test_sums_may_differ_in_their_last_digits_only(self):
        self.assertEqual(self.same(TRACES + "print('near sum', 1e6 + is_gated)")[0], "1")
        self.rows.unlink()
        self.assertEqual(self.same(TRACES + "print('near sum', 1e6 + 20 * is_gated)")[0], "0")

    def test_a_program_that_does_not_pass_the_gate_proves_nothing(self):
        row = self.same("print('bits sum 1')")
        self.assertEqual((row[0], row[3]), ("0", "no call of the program passed the gate"))

    def test_a_package_that_is_missing_is_a_fact(self):
        row = self.same("print('missing torch: No module')")
        self.assertEqual(row, ("not installed", "fact", "-", "missing torch: No module"))
        self.assertEqual(self.code, 0)

    def test_a_program_that_fails_natively_is_a_fact(self):
        row = self.same("raise ValueError('no compiler')")
        self.assertEqual(row, ("none", "fact", "-", "natively: exit status 1: ValueError: no compiler"))

    def test_a_program_that_fails_only_through_the_gate_fails_its_rule(self):
        row = self.same(TRACES + "print('bits sum 1', flush=True)\nassert not is_gated, 'rejected'")
        self.assertEqual((row[0], row[3]), ("0", "exit status 1: AssertionError: rejected"))

    def test_a_program_that_hangs_is_ended_at_its_limit(self):
        begin = time.monotonic()
        rows = self.facts({"a": "import time; time.sleep(100)", "b": TRACES + "print('bits sum 1')"},
                          "--program-limit", "3")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(rows["a: same results through the gate"][3], "natively: it did not end within its time")
        self.assertEqual(rows["b: same results through the gate"][0], "1")

    def test_a_program_for_which_no_time_is_left_is_a_fact(self):
        rows = self.facts({"a": "import time; time.sleep(100)", "b": "print('bits sum 1')"},
                          "--limit", "3", "--at-once", "1")
        self.assertEqual(rows["b: same results through the gate"][:2], ("none", "fact"))
        self.assertIn("no time was left", rows["b: same results through the gate"][3])

    def test_writes_each_row_immediately(self):
        for name, text in (("a", TRACES + "print('bits sum 1')"), ("b", "import time; time.sleep(100)")):
            (self.directory / f"{name}.py").write_text(text, encoding="utf-8")
        facts = subprocess.Popen([sys.executable, HERE / "gate_facts.py", "--drop-in", DROP_IN, "--rows", self.rows,
                                  "--programs", self.directory, "--only", "a", "--only", "b", "--limit", "60"],
                                 stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            while not (self.rows.exists() and "a: same results" in self.rows.read_text(encoding="utf-8")):
                self.assertIsNone(facts.poll())
                time.sleep(0.05)
            self.assertIsNone(facts.poll(), "the other program has not ended")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(facts.pid, signal.SIGKILL)
            facts.wait()

    def test_a_directory_without_both_names_is_rejected(self):
        (self.directory / "libcuda.so.1").touch()
        self.assertEqual(self.ended(sys.executable, HERE / "gate_facts.py", "--drop-in", self.directory, "--rows",
                                    self.rows), 2)
        self.assertIn("has no libcuda.so", self.run.stderr)

    def test_the_programs_are_python_and_say_what_is_missing(self):
        for program in (HERE / "gate_programs").glob("*.py"):
            if program.name in ("results.py", "phases.py", "launches.py"):
                continue  # Two modules, and a program without packages.
            # Runs without the machine's packages, so that each program misses those that it needs.
            said = subprocess.run([sys.executable, "-S", "-B", program], capture_output=True, text=True, check=False)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertTrue(said.stdout.startswith("missing "), said.stdout)


class Bench(Case):
    def test_launches_and_calls_have_rows(self):
        self.assertEqual(self.ended(BENCH, "--drop-in", DROP_IN, "--rows", self.rows, "--ms", "5"), 0, "")
        rows = rows_of(self.rows)
        self.assertEqual(rows["launches of gate_bench pass the gate"][0], "1")
        self.assertEqual(rows["ns per launch: more through the gate"][1:3], ("figure", "<= 50"))
        self.assertGreater(float(rows["ns per call: cuEventQuery"][0]), 0)
        # The fake driver lacks this call.
        self.assertEqual(rows["ns per call: cuStreamIsCapturing"][0], "none")

    def test_rows_of_two_processes_name_their_environment(self):
        self.assertEqual(self.ended(BENCH, "--pair", "--under", "MPS", "--rows", self.rows, "--ms", "20"), 0, "")
        rows = rows_of(self.rows)
        self.assertGreater(float(rows["20 us kernels of two processes in turns, MPS, p50"][0]), 0)
        self.assertEqual(rows["gate_bench, two processes, MPS: answered"][0], "1")

    def test_detects_a_directory_without_a_gate(self):
        self.assertEqual(self.ended(BENCH, "--drop-in", self.directory, "--rows", self.rows, "--ms", "5"), 0, "")
        self.assertEqual(rows_of(self.rows)["launches of gate_bench pass the gate"][0], "0")

    def test_a_machine_without_a_driver_has_rules_that_fail(self):
        with tempfile.TemporaryDirectory() as nothing:
            code = subprocess.run([BENCH, "--drop-in", DROP_IN, "--rows", self.rows, "--ms", "5"], check=False,
                                  env={**os.environ, "LD_LIBRARY_PATH": nothing}, stdout=subprocess.DEVNULL).returncode
        if code == 0:
            self.skipTest("a driver is installed")
        value, kind, _, note = rows_of(self.rows)["gate_bench, launches: answered"]
        self.assertEqual((value, kind), ("0", "rule"))
        self.assertIn("libcuda.so.1", note)

    def test_rejects_invalid_arguments(self):
        for arguments in ([], ["--pair", "--drop-in", DROP_IN], ["--ms", "0", "--pair"], ["--pair", "--under"]):
            self.assertEqual(self.ended(BENCH, *arguments), 2, arguments)


if __name__ == "__main__":
    BENCH, DROP_IN, FAKE_CUDA = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
