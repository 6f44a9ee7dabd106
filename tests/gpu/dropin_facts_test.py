# SPDX-License-Identifier: Apache-2.0
"""dropin_facts.py with programs, modules and a `gpusharedctl run` that behave as each case requires."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# A `gpusharedctl run` that records its arguments, and sets the driver of the program that it runs.
GPUSHARED = """#!{python}
import os, sys
mark = sys.argv.index("--")
with open("{directory}/calls", "a") as calls:
    print(*sys.argv[1:mark], file=calls)
os.environ["DRIVER"] = os.environ.get("DROP_IN", "{directory}/lib/drop_in/libcuda.so.1")
os.execv(sys.argv[mark + 1], sys.argv[mark + 1:])
"""
# Loads a driver, whose file is then among the mappings of the process.
LOADS = """
import builtins, mmap, os, sys
with open(os.environ["DRIVER"], "rb") as driver:
    builtins.driver = mmap.mmap(driver.fileno(), 0, prot=mmap.PROT_READ)
"""
HEAT = LOADS + 'print("100 steps in 0.500 s") if "drop_in" in os.environ["DRIVER"] else print("400 steps in 1.000 s")\n'
REJECTED = "import sys\nsys.stderr.write('gpushared: works with no driver but its own\\n')\nraise RuntimeError('no GPU')\n"
RUNTIME_ROW = "PyTorch is rejected with one sentence and does not crash"


class DropInFacts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)
        self.write("gpusharedctl", GPUSHARED.format(python=sys.executable, directory=self.directory)).chmod(0o755)
        for driver in ("lib/drop_in/libcuda.so.1", "system/libcuda.so.1"):
            self.write(driver, "a driver")
        for name in ("numba_add", "numba_streams", "cuda_core_add"):
            self.write(f"programs/{name}.py", LOADS)
        self.write("programs/numba_heat.py", HEAT)
        for module in ("numba", "cuda/__init__", "cuda/core/__init__"):
            self.write(f"modules/{module}.py", "")

    def write(self, name, text):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def facts(self, *options, status=0, **variables):
        """Returns the rows by name: value, kind and note. If `status` is not 0: stderr."""
        environment = dict(os.environ, PYTHONPATH=str(self.directory / "modules"), DRIVER=str(self.directory / "system/libcuda.so.1"),
                           **variables)
        ran = subprocess.run([sys.executable, HERE / "dropin_facts.py", "--gpusharedctl", self.directory / "gpusharedctl", "--rows",
                              self.directory / "rows", "--programs", self.directory / "programs", *options], env=environment,
                             capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(ran.returncode, status, ran.stderr)
        if status != 0:
            return ran.stderr
        lines = [line.split("\t") for line in (self.directory / "rows").read_text(encoding="utf-8").splitlines()]
        self.assertEqual({(len(line), line[0]) for line in lines}, {(7, "dropin")})
        return {line[1]: (line[2], line[4], line[6]) for line in lines}

    def test_programs_run_both_ways_and_heat_is_compared(self):
        rows = self.facts()
        for name in ("numba_add", "numba_streams", "cuda_core_add", "numba_heat"):
            for way in ("", ", --ptx"):
                self.assertEqual(rows[f"{name} computes right through the drop-in{way}"], ("1", "rule", ""))
        self.assertEqual(rows["numba_heat: native"], ("400", "fact", ""))
        self.assertEqual(rows["numba_heat: through the drop-in"][0], "200")
        self.assertEqual(rows["numba_heat: through the drop-in, --ptx / native"][0], "0.5")
        calls = (self.directory / "calls").read_text(encoding="utf-8").splitlines()
        self.assertEqual(calls, ["run --mode submit", "run --mode submit --ptx"] * 4)

    def test_fails_programs_that_used_another_driver(self):
        rows = self.facts(DROP_IN=str(self.directory / "system/libcuda.so.1"))
        value, _, note = rows["numba_add computes right through the drop-in"]
        self.assertEqual((value, note), ("0", f"its driver was {self.directory}/system/libcuda.so.1"))
        self.assertNotIn("numba_heat: through the drop-in", rows)

    def test_native_figure_requires_the_native_driver(self):
        self.write("programs/numba_heat.py", f"import os\nos.environ['DRIVER'] = '{self.directory}/lib/drop_in/libcuda.so.1'\n{HEAT}")
        rows = self.facts()
        self.assertEqual(rows["numba_heat: native"], ("none", "fact", f"its driver was {self.directory}/lib/drop_in/libcuda.so.1"))
        self.assertNotIn("numba_heat: through the drop-in / native", rows)

    def test_reports_failures_and_crashes_and_runs_the_others(self):
        self.write("programs/numba_add.py", LOADS + "assert 1 == 2, 'the sum is wrong'\n")
        self.write("programs/numba_streams.py", LOADS + f"os.kill(os.getpid(), {int(signal.SIGSEGV)})\n")
        self.write("programs/cuda_core_add.py", "")
        rows = self.facts()
        for way in ("", ", --ptx"):
            label = f"computes right through the drop-in{way}"
            self.assertEqual(rows[f"numba_add {label}"], ("0", "rule", "exit status 1: AssertionError: the sum is wrong"))
            self.assertEqual(rows[f"numba_streams {label}"], ("0", "rule", "ended by signal 11: it says nothing"))
            self.assertEqual(rows[f"cuda_core_add {label}"], ("0", "rule", "it loaded no driver"))
            self.assertEqual(rows[f"numba_heat {label}"][0], "1")

    def test_kills_a_hanging_program_with_its_children(self):
        self.write("programs/numba_add.py", LOADS + "import subprocess\nprint(subprocess.run(['sleep', '1000']))\n")
        rows = self.facts("--limit-each", "2")
        self.assertEqual(rows["numba_add computes right through the drop-in"], ("0", "rule", "still running after 2 s"))
        self.assertEqual(rows["numba_streams computes right through the drop-in"][0], "1")

    def test_limits_the_total_time(self):
        self.write("programs/numba_add.py", LOADS + "import time\ntime.sleep(1000)\n")
        rows = self.facts("--limit-each", "1000", "--limit", "4")
        self.assertRegex(rows["numba_add computes right through the drop-in"][2], "still running after [1-4] s")
        self.assertEqual(rows["cuda_core_add computes right through the drop-in"], ("0", "rule", "no time was left"))

    def test_missing_packages_are_facts(self):
        for module in ("numba", "cuda/__init__", "cuda/core/__init__"):
            (self.directory / f"modules/{module}.py").unlink()
        (self.directory / "modules/cuda/core").rmdir()
        (self.directory / "modules/cuda").rmdir()
        rows = self.facts("--python", sys.executable)
        self.assertEqual({value for value, *_ in rows.values()}, {"not installed"})
        self.assertEqual({kind for _, kind, _ in rows.values()}, {"fact"})
        self.assertEqual(rows["cuda_core_add computes right through the drop-in"][2], "cuda.core")
        self.assertEqual(rows["JAX"][2], "jax_cuda13_plugin or jax_cuda12_plugin")

    def test_programs_with_the_runtime_are_rejected_with_one_message(self):
        self.write("modules/torch.py", REJECTED)
        self.write("modules/cupy.py", "def zeros(count):\n    " + REJECTED.replace("\n", "\n    "))
        self.write("modules/jax.py", REJECTED)
        self.write("modules/jax_cuda12_plugin.py", "")
        rows = self.facts()
        for name in ("PyTorch", "CuPy", "JAX"):
            self.assertEqual(rows[f"{name} is rejected with one sentence and does not crash"],
                             ("1", "rule", "gpushared: works with no driver but its own"))

    def test_fails_runtime_programs_that_are_not_rejected_with_one_message(self):
        crash = f"import os\nos.kill(os.getpid(), {int(signal.SIGABRT)})\n"
        for text, note in ((REJECTED.replace("raise RuntimeError('no GPU')", crash), "1 messages; ended by signal 6: "),
                           ("raise RuntimeError('no GPU')", "0 messages; exit status 1: RuntimeError: no GPU"),
                           (REJECTED.replace("raise", "sys.stderr.write('gpushared: again\\n')\nraise"), "2 messages; exit status 1: "),
                           ("def zeros(*_, device):\n    pass\n", "0 messages; exit status 0: it says nothing")):
            self.write("modules/torch.py", text)
            (self.directory / "rows").unlink(missing_ok=True)
            value, kind, said = self.facts()[RUNTIME_ROW]
            self.assertEqual((value, kind), ("0", "rule"), note)
            self.assertTrue(said.startswith(note), said)

    def test_rejects_unusable_arguments(self):
        self.assertIn("'/nowhere' is no program", self.facts("--gpusharedctl", "/nowhere", status=2))
        self.assertIn("no numba_add.py in '/nowhere'", self.facts("--programs", "/nowhere", status=2))
        self.assertIn("/bin/false does not run: exit status 1", self.facts("--python", "/bin/false", status=1))


if __name__ == "__main__":
    unittest.main()
