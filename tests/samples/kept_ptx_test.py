# SPDX-License-Identifier: Apache-2.0
"""Checks that the PTX files stored with the samples' kernels are nvcc's output for them.

Usage: kept_ptx_test.py SOURCE_DIR NVCC           compares; exits with 77 if nvcc is of another release
       kept_ptx_test.py SOURCE_DIR NVCC --write   writes the files again
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT, NVCC = pathlib.Path(sys.argv[1]), sys.argv[2]
KERNELS = ROOT / "samples/kernels"
SKIPPED = 77


def made(source):
    """Returns nvcc's output for a kernel file, with the options of tests' kernels. Names of internal functions contain
    a hash of the file's path, up to twice. It is zeroed here, so that every checkout has the same text."""
    command = [NVCC, "-ptx", "-arch=compute_75", "-std=c++17", "-O3", "-I", ROOT, source, "-o", "/dev/stdout"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.sub(r"(_INTERNAL|_GLOBAL__N_)_[0-9a-f]{8}_", r"\1_00000000_", text)


def release_of(text):
    return re.search(r"Cuda compilation tools, (release \S+), V(\S+)", text).groups()


class KeptPtx(unittest.TestCase):
    def test_each_kernel_file_has_its_ptx_and_each_ptx_its_kernel_file(self):
        self.assertEqual({path.stem for path in KERNELS.glob("*.cu")}, {path.stem for path in KERNELS.glob("*.ptx")})

    def test_kept_ptx_is_what_nvcc_makes(self):
        for source in sorted(KERNELS.glob("*.cu")):
            kept = source.with_suffix(".ptx").read_text(encoding="utf-8")
            self.assertEqual(kept, made(source), f"{source.name} changed: run this test with --write")


if "--write" in sys.argv:
    for source in sorted(KERNELS.glob("*.cu")):
        source.with_suffix(".ptx").write_text(made(source), encoding="utf-8")
    sys.exit()

version = subprocess.run([NVCC, "--version"], check=True, capture_output=True, text=True).stdout
for kept_file in KERNELS.glob("*.ptx"):
    kept_release = release_of(kept_file.read_text(encoding="utf-8"))
    if kept_release != release_of(version):
        print(f"{kept_file.name} was made by nvcc of {kept_release}, this one is of {release_of(version)}: not compared")
        sys.exit(SKIPPED)
unittest.main(argv=sys.argv[:1])
