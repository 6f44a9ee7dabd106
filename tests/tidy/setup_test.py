# SPDX-License-Identifier: Apache-2.0
"""Which nvcc packaging/setup_debian.sh chooses, and which packages it installs.

Usage: setup_test.py SOURCE_DIR
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT = (pathlib.Path(sys.argv.pop(1)) / "packaging/setup_debian.sh").read_text(encoding="utf-8")


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


class Setup(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        script = self.root / "packaging/setup_debian.sh"
        script.parent.mkdir()
        # Hides the machine's own toolkit, which would precede the fetched one.
        script.write_text(SCRIPT.replace("/usr/local/cuda", str(self.root / "none")), encoding="utf-8")
        write_program(self.root / "bin/dpkg-query", "echo install ok installed")
        # Pretends that the wheels have been fetched before.
        wheels = re.search(r"gpushared_nvcc_wheels=\(([^)]*)\)", SCRIPT).group(1).split()
        self.fetched = self.root / ".cache/cuda/nvidia/cu13"
        write_program(self.fetched / "bin/nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
        (self.root / ".cache/cuda/packages").write_text(" ".join(wheels) + "\n", encoding="utf-8")

    def chosen(self, toolkit_says):
        """Returns CUDA_HOME afterwards, and the output, with a toolkit whose nvcc prints this."""
        toolkit = self.root / "toolkit"
        write_program(toolkit / "bin/nvcc", toolkit_says)
        run = subprocess.run(
            ["bash", "-c", 'source "$0" && echo "$CUDA_HOME"', self.root / "packaging/setup_debian.sh"],
            env={"PATH": f"{self.root}/bin:/usr/bin:/bin", "CUDA_HOME": str(toolkit)},
            check=True, capture_output=True, text=True)
        return run.stdout.strip(), run.stderr

    def test_a_toolkit_that_is_new_enough_is_used(self):
        for release in ("13.0", "13.1", "20.4"):
            home, said = self.chosen(f"echo 'Cuda compilation tools, release {release}, V{release}.1'")
            self.assertEqual((home, said), (str(self.root / "toolkit"), ""))

    def test_an_older_toolkit_is_named_and_passed_over(self):
        for release in ("12.9", "9.2", "11.8"):
            home, said = self.chosen(f"echo 'Cuda compilation tools, release {release}, V{release}.1'")
            self.assertEqual(home, str(self.fetched))
            self.assertIn(f"toolkit/bin/nvcc is of release {release}, needed is 13.0 or newer", said)

    def test_a_toolkit_that_does_not_run_is_passed_over(self):
        home, said = self.chosen("exit 1")
        self.assertEqual(home, str(self.fetched))
        self.assertIn("needed is 13.0 or newer", said)

    def installed(self, *parts):
        """Returns the packages that apt-get is asked to install for these parts, on a bare machine as root."""
        write_program(self.root / "bin/dpkg-query", "exit 1")
        write_program(self.root / "bin/id", "echo 0")
        write_program(self.root / "bin/apt-get", f'[ "$1" = install ] && echo "$@" >>{self.root}/asked; exit 0')
        (self.root / "asked").unlink(missing_ok=True)
        run = subprocess.run(["bash", "-c", 'source "$0" "$@" && echo "CUDA_HOME=${CUDA_HOME:-}"',
                              self.root / "packaging/setup_debian.sh", *parts],
                             env={"PATH": f"{self.root}/bin:/usr/bin:/bin"}, capture_output=True, text=True, check=False)
        asked = self.root / "asked"
        return run, set(asked.read_text(encoding="utf-8").split()) if asked.exists() else set()

    def test_the_product_needs_neither_gtest_nor_nvcc(self):
        run, packages = self.installed("product")
        self.assertLessEqual({"g++", "cmake", "libboost-dev"}, packages)
        self.assertFalse({"libgtest-dev", "libgmock-dev", "clang", "python3-venv", "libyaml-cpp-dev"} & packages)
        self.assertEqual(run.stdout, "CUDA_HOME=\n")

    def test_part_tests_adds_gtest_and_nvcc_and_is_the_default(self):
        named, packages = self.installed("tests")
        self.assertLessEqual({"g++", "libgtest-dev", "libyaml-cpp-dev"}, packages)
        self.assertNotIn("clang", packages)
        self.assertEqual(named.stdout, f"CUDA_HOME={self.fetched}\n")
        default, default_packages = self.installed()
        self.assertEqual((default.stdout, default_packages), (named.stdout, packages))

    def test_fuzz_adds_clang(self):
        self.assertLessEqual({"g++", "libgtest-dev", "clang"}, self.installed("fuzz")[1])

    def test_lint_adds_clang_and_its_checks(self):
        self.assertLessEqual({"g++", "libgtest-dev", "clang", "clang-tidy-19", "clang-format"}, self.installed("lint")[1])

    def test_web_adds_a_browser(self):
        self.assertLessEqual({"g++", "libgtest-dev", "chromium", "chromium-driver"}, self.installed("web")[1])

    def test_kubernetes_adds_grpc_and_no_daemon(self):
        packages = self.installed("kubernetes")[1]
        self.assertLessEqual({"g++", "libgrpc++-dev", "protobuf-compiler-grpc"}, packages)
        self.assertFalse({"containerd", "etcd-server", "kubernetes-client"} & packages)

    def test_slurm_adds_its_daemons_and_starts_none(self):
        # The part writes Debian's policy file and removes it; here, a file of the test takes its place.
        policy = self.root / "policy-rc.d"
        script = self.root / "packaging/setup_debian.sh"
        script.write_text(script.read_text(encoding="utf-8").replace("/usr/sbin/policy-rc.d", str(policy)), encoding="utf-8")
        write_program(self.root / "bin/apt-get", "exit 0")
        run, packages = self.installed("slurm")
        self.assertLessEqual({"g++", "slurmctld", "slurmd", "slurmdbd", "munge", "mariadb-server"}, packages, run.stderr)
        self.assertFalse(policy.exists())
        write_program(self.root / "bin/apt-get", f'[ "$1" = install ] || exit 0; sh {policy}; [ $? = 101 ]')
        env = {"PATH": f"{self.root}/bin:/usr/bin:/bin"}
        asked = subprocess.run(["bash", script, "slurm"], env=env, capture_output=True, text=True, check=False)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertFalse(policy.exists())

    def test_an_unknown_part_is_rejected(self):
        run, packages = self.installed("everything")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("unknown part 'everything': product, tests, fuzz, lint", run.stderr)
        self.assertFalse(packages)


unittest.main()
