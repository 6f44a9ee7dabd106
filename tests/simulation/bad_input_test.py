# SPDX-License-Identifier: Apache-2.0
"""gpushared-sim rejects invalid input with a one-line message, and no input makes it crash or hang.

Usage: bad_input_test.py GPUSHARED_SIM
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SIM = sys.argv.pop(1)
JOBS = ["--high", "even:2:100:10", "--low", "even:1:100:10", "--requests", "100", "--policy", "priority"]


class BadInput(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def file(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def rejected(self, arguments, said):
        with self.subTest(arguments):
            ran = subprocess.run([SIM, *arguments], capture_output=True, text=True, timeout=60)
            self.assertGreater(ran.returncode, 0, "ended by a signal, or not at all")
            self.assertIn(said, ran.stdout + ran.stderr)
            self.assertNotIn("invariant", ran.stderr)

    def test_numbers_out_of_range(self):
        for option in ("--load", "--latency-target", "--window", "--launch-bubble",
                       "--context-switch"):
            for value in ("-1", "nan", "inf", "1e300", "x", "1x", ""):
                self.rejected(["compare", *JOBS, option, value], option)
        for option, value in (("--requests", "99"), ("--requests", "99999999999999999999"),
                              ("--high-clients", "0"), ("--low-clients", "65"), ("--block-stretch", "0"),
                              ("--seed", "-1")):
            self.rejected(["compare", *JOBS, option, value], option)
        for option in ("--sleep", "--seconds"):
            self.rejected(["shares", option, "nan"], option)
        self.rejected(["shares", "--weights", *["1"] * 300], "300 weights")
        self.rejected(["shares", "--weights", "1", "0"], "--weights")
        for share in ("0", "101", "nan", "-1", "x"):
            self.rejected(["shares", "--max-share", share], "--max-share")
        self.rejected(["shares", "--max-share", "10", "20", "30"], "3 maximum shares, but only 2 clients")
        self.rejected(["shares", "--max-share", "10", "--policy", "mps"], "'mps' does not support caps")

    def test_files(self):
        header = "Name,Profile,Memory_footprint,SM_usage,Duration\n"
        directory = str(self.directory)
        for job, said in (("/no/file", "cannot read"), (directory, "no kernels"), (self.file("a", ""), "no kernels"),
                          (self.file("b", header), "no kernels"), (self.file("c", header + "k,1,0,80,nan\n"), "line 2"),
                          (self.file("d", header + "k,1,0,80,-5\n"), "line 2"), ("even:1:1e3:1", "even:"),
                          ("in:nan", "in:US")):
            self.rejected(["compare", *JOBS, "--low", job], said)
            self.rejected(["mix", "/no/file", "--profile", f"a={job}"], said)
        first = "TIMESTAMP\n2023-11-16 18:17:03.0\n"
        for trace, said in (("/no/file", "cannot read"), (directory, "cannot read"), (self.file("e", ""), "cannot read"),
                            (self.file("f", first), "fewer than two"), (self.file("g", first * 2), "line 3"),
                            (self.file("h", first + "2023-11-16 18:17:nan\n"), "line 3"),
                            (self.file("i", first + "2023-11-16 18:17:03.0\n"), "same time")):
            self.rejected(["compare", *JOBS, "--arrivals", "poisson", trace], said)
        self.rejected(["compare", *JOBS, "--json", "/no/directory/rows.json"], "cannot write")
        self.rejected(["compare", *JOBS, "--policy", "best"], "gpushared-sim policies")
        for mix, said in (("/no/file", "cannot read"), (directory, "cannot read"), (self.file("j", "{"), "not JSON"),
                          (self.file("k", '{"time": 1e400, "tasks": []}'), "not JSON"),
                          (self.file("l", '{"time": 1, "tasks": [7]}'), "'tasks[0]'")):
            self.rejected(["mix", mix, "--profile", "a=even:1:100:10"], said)
        self.rejected(["mix", self.file("m", "{}"), "--profile", "nonsense"], "MODEL=JOB")

    def test_places(self):
        job = self.file("job", '{"gpushared_profile": 1, "name": "a", "class": "low", "pace": "endless",\n'
                               '"kernels": [{"name": "k"}], "requests": [{"steps": [[0, 50]]}]}')
        node = self.file("node", '{"gpushared_node": 1, "name": "n", "kind": "cpu", "multiprocessors": 1,\n'
                                 '"policy": "fair", "clients": []}')
        fits = subprocess.run([SIM, "place", "--node", node, "--job", job, "--seeds", "1"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(fits.returncode, 0, fits.stderr)
        self.assertIn("a fits on n", fits.stdout)
        late = self.file("late", pathlib.Path(job).read_text().replace('"endless"', '"periodic", "every_ms": 0.01'))
        self.assertEqual(subprocess.run([SIM, "place", "--node", node, "--job", late, "--seeds", "1"],
                                        capture_output=True, timeout=60).returncode, 4)
        for bad, said in (("/no/file", "cannot read"), (str(self.directory), "cannot read"), (self.file("p", "{"), "line 1"),
                          (self.file("q", '{\n"gpushared_profile": 1}'), "/q': "),
                          (self.file("r", "[" * 100_000), "16 deep")):
            self.rejected(["place", "--node", node, "--job", bad], said)
            self.rejected(["place", "--node", bad, "--job", job], said)
        for option, value in (("--seeds", "0"), ("--seeds", "1001"), ("--least-pace", "101"), ("--least-pace", "nan")):
            self.rejected(["place", "--node", node, "--job", job, option, value], option)

    def test_no_such_command(self):
        for arguments in ([], ["nonsense"], ["compare"], ["mix"], ["policies", "--x"]):
            self.rejected(arguments, "--help")


if __name__ == "__main__":
    unittest.main()
