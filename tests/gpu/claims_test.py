# SPDX-License-Identifier: Apache-2.0
"""gpu_claims on a fake driver: a corpus program that ends its context is named, and does not affect other programs.

Usage: claims_test.py GPU_CLAIMS FAKE_CUDA_DIRECTORY [TEST]
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CLAIMS = FAKE_CUDA = ""  # From the command line.
LIMIT_S = 120
RIGHT = "programs of the corpus that compute right as they are"
DIFFERENT = "of these, not claimed and stopped at random"
LOST = "programs of the corpus that ended their context, or did not end"
SMALL = 8  # The first of our own programs, which are right on the fake driver.
MANY = 36  # All of our own programs, those of the toolkit, and the first of CUB's.


class Corpus(unittest.TestCase):
    def run_programs(self, count, script=""):
        """Returns the value and the note of each row that gpu_claims writes, by the row's name."""
        with tempfile.TemporaryDirectory() as directory:
            rows = pathlib.Path(directory) / "rows.tsv"
            environment = dict(os.environ, LD_LIBRARY_PATH=FAKE_CUDA, FAKE_CUDA="sms 4; " + script)
            ran = subprocess.run([CLAIMS, "--part", "corpus", "--programs", str(count), "--rows", rows],
                                 env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            fields = (line.split("\t") for line in rows.read_text(encoding="utf-8").splitlines())
            return {field[1]: (float(field[2]), field[6]) for field in fields}

    def test_programs_compute_the_same_when_they_are_stopped(self):
        rows = self.run_programs(SMALL)
        self.assertEqual(rows[RIGHT][0], SMALL, rows)
        self.assertEqual((rows[DIFFERENT][0], rows[LOST][0]), (0, 0), rows)

    def test_launches_grid_barriers_cooperatively(self):
        rows = self.run_programs(MANY)
        self.assertEqual(rows[LOST][0], 0, rows)
        self.assertNotIn("GridBarrier", rows[RIGHT][1])

    def test_a_rejected_launch_does_not_fail_the_next_program(self):
        # Not all programs are right, because the fake driver's stack is too small for recursion, and CUB checks for
        # earlier errors.
        right = self.run_programs(MANY)[RIGHT][1]
        self.assertIn("RecursiveCalls: kernel '", right)
        self.assertNotIn("CubDeviceScan", right)

    def test_a_dead_context_fails_only_the_program_that_ended_it(self):
        # Each process loses its context at the twelfth kernel that it starts.
        rows = self.run_programs(SMALL, "fault 12 719")
        lost, names = rows[LOST]
        self.assertGreaterEqual(lost, 1, rows)
        self.assertEqual(names.count("kernel '"), lost, names)
        self.assertEqual(names.count("CUDA_ERROR_LAUNCH_FAILED (719)"), lost, names)
        self.assertRegex(names, r"^(Integer|Real)\w+: .*kernel '.*', (as it is|stopped at random): ")
        self.assertIn(f"of {SMALL} for which there was time", rows[RIGHT][1])
        # A program may be right without stops, and be lost when it is stopped.
        self.assertGreaterEqual(rows[RIGHT][0], SMALL - lost, rows)

    def test_stops_after_eight_lost_contexts(self):
        lost = self.run_programs(MANY, "fault 1 719")[LOST][0]
        self.assertEqual(lost, 8)


if __name__ == "__main__":
    CLAIMS, FAKE_CUDA = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
