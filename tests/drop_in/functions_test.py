# SPDX-License-Identifier: Apache-2.0
"""Checks that the build fails if a function has no decision for gate mode, and that a new function has no decision.

Usage: functions_test.py COMPILER SOURCE TOOLKIT_INCLUDE

COMPILER compiles gate/gate.cpp of the checkout SOURCE with tables that lack a decision.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

COMPILER, SOURCE, TOOLKIT = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
DROP_IN = pathlib.Path("client_lib/drop_in")


class Decisions(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        (self.root / DROP_IN).mkdir(parents=True)
        for name in ("functions.inc", "make_functions.py"):
            shutil.copy(SOURCE / DROP_IN / name, self.root / DROP_IN)
        self.table = self.root / DROP_IN / "functions.inc"

    def edit(self, pattern, replacement):
        text, count = re.subn(pattern, replacement, self.table.read_text(encoding="utf-8"), flags=re.M)
        self.assertEqual(count, 1)
        self.table.write_text(text, encoding="utf-8")

    def make(self, *options):
        return subprocess.run([sys.executable, self.root / DROP_IN / "make_functions.py", *options, "--include", TOOLKIT],
                              capture_output=True, text=True, check=False)

    def compile(self):
        includes = [f"-I{path}" for path in (self.root, SOURCE, SOURCE / "client_lib/include", SOURCE / "ipc/include")]
        return subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", *includes, SOURCE / DROP_IN / "gate/gate.cpp"],
                              capture_output=True, text=True, check=False)

    def test_the_committed_table_is_complete(self):
        self.assertEqual(self.make("--check").returncode, 0)
        self.assertEqual(self.compile().stderr, "")

    def test_check_and_build_fail_without_a_decision(self):
        self.edit(r"(cuGraphLaunch_ptsz, \w+, \w+), \w+\)$", r"\1, kUndecided)")
        check = self.make("--check")
        self.assertNotEqual(check.returncode, 0)
        self.assertIn("cuGraphLaunch_ptsz has no decision for gate mode", check.stdout)
        build = self.compile()
        self.assertNotEqual(build.returncode, 0)
        self.assertIn("cuGraphLaunch_ptsz has no decision for gate mode", build.stderr)

    def test_a_function_of_a_new_release_has_no_decision(self):
        self.edit(r"^.*, cuLaunchKernelEx_ptsz, .*\n", "")
        self.assertNotEqual(self.make().returncode, 0)
        self.assertIn("cuLaunchKernelEx_ptsz, kPerThread, kMissing, kUndecided)", self.table.read_text(encoding="utf-8"))
        self.assertIn("cuLaunchKernelEx_ptsz has no decision for gate mode", self.make("--check").stdout)

    def test_both_default_streams_have_the_same_decision(self):
        self.edit(r"(cuGetProcAddress_v2_ptsz, \w+, \w+), \w+\)$", r"\1, kForwarded)")
        self.assertIn("one handler and hook serve both default streams", self.make("--check").stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
