#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeatedly kills an unmodified Numba program next to a second Numba program and the native sample `serve`.

Usage: kills.py BIN_DIR CACHE_DIR [KILLS [SEED]]

KILLS is the number of kills (default 200), and SEED (default 1) determines their times. The program gets SIGKILL while
Python starts, or while the program connects, compiles or works. Only its client may end. The second program must keep
launching, each answer of `serve` must equal its reference, and the device must keep its worker. Skipped with the reason
if Numba is not available.
"""
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

DIRECTORY = pathlib.Path(__file__).parent
ROOT = DIRECTORY.parents[2]
sys.path.insert(0, str(DIRECTORY))
from priority import JOBS, asked  # noqa: E402
from run_programs import NUMBA, NUMPY, Server, command_of, environment_of, surroundings_of  # noqa: E402

LIFE_TO_START = 1.5  # Maximum time of a kill, as a multiple of the time that the first program took until its first launch.
SECONDS_MAX = 3600
TOLD_EVERY = 10  # Number of kills between two progress reports.


def fail(why):
    raise SystemExit(f"FAILED  kills: {why}")


def start(job, python, bin_dir, server, home):
    command = [*command_of(bin_dir, server)[:-1], "--class", "low", "--name", job.stem, "--", python, job, str(SECONDS_MAX)]
    return subprocess.Popen(command, env=surroundings_of({}, home), stdout=subprocess.DEVNULL)


def client(bin_dir, server, name):
    """Returns the client's row of `ps`, or None if no such client is connected."""
    return next((it for it in asked(bin_dir, server, "ps")["clients"] if it["name"] == name), None)


def until(what, condition):
    end = time.monotonic() + 120
    while not condition():
        if time.monotonic() > end:
            fail(f"120 s have passed and {what}")
        time.sleep(0.1)


class Service:
    """Runs the sample `serve` again and again, and reports a run that fails or has wrong answers."""

    def __init__(self, bin_dir, server, scratch):
        self.command = [bin_dir / "serve", "--model", scratch / "model", "--batch", "16", "--requests", "50", "--load",
                        "0.1", "--json", scratch / "serve.json"]
        self.outcome = scratch / "serve.json"
        self.environment = {"GPUSHARED_SOCKET": str(server.socket)}
        self.answered = 0
        self.process = None

    def look(self):
        if self.process is not None:
            if self.process.poll() is None:
                return
            if self.process.returncode != 0:
                fail(f"serve ended with {self.process.returncode}")
            if not json.loads(self.outcome.read_text())["results_checked"]:
                fail("an answer of serve differs from the reference")
            self.answered += 50
        self.process = subprocess.Popen(self.command, env=self.environment, stdout=subprocess.DEVNULL)

    def end(self):
        self.process.kill()
        self.process.wait()


def main(bin_dir, cache, kills="200", seed="1"):
    bin_dir, cache = pathlib.Path(bin_dir).resolve(), pathlib.Path(cache).resolve()
    python, reason = environment_of("numba_add", (*NUMBA, NUMPY), cache, bin_dir.parent / "lib/drop_in")
    if reason is not None:
        print(f"skipped kills: {reason}")
        return 0
    victim_job, steady_job = JOBS
    moments = random.Random(int(seed))
    met = 0  # Number of kills of a client that had connected.
    with tempfile.TemporaryDirectory() as directory, Server(bin_dir, directory, "--policy", "priority") as server:
        scratch = pathlib.Path(directory)
        subprocess.run([bin_dir / "train", "--text", ROOT / "LICENSE", "--model", scratch / "model", "--steps", "10"],
                       env={"GPUSHARED_SOCKET": str(server.socket)}, check=True, stdout=subprocess.DEVNULL)
        generation = [it["generation"] for it in asked(bin_dir, server, "devices")["devices"]]
        steady = start(steady_job, python, bin_dir, server, directory)
        service = Service(bin_dir, server, scratch)
        try:
            until("the steady program launches nothing", lambda: (client(bin_dir, server, steady_job.stem) or {}).get("launches", 0) > 0)
            life_s_max = None
            for number in range(int(kills)):
                before = client(bin_dir, server, steady_job.stem)["launches"]
                victim = start(victim_job, python, bin_dir, server, directory)
                if life_s_max is None:
                    begin = time.monotonic()
                    until("the program launches nothing", lambda: (client(bin_dir, server, victim_job.stem) or {}).get("launches", 0) > 0)
                    life_s_max = LIFE_TO_START * (time.monotonic() - begin)
                else:
                    time.sleep(moments.uniform(0, life_s_max))
                met += client(bin_dir, server, victim_job.stem) is not None
                victim.send_signal(signal.SIGKILL)
                if victim.wait() != -signal.SIGKILL:
                    fail(f"the program ended before kill {number}, with {victim.returncode}")
                until(f"the server still has the program of kill {number}",
                      lambda: client(bin_dir, server, victim_job.stem) is None)
                if steady.poll() is not None:
                    fail(f"the steady program ended at kill {number}, with {steady.returncode}")
                until(f"the steady program launches nothing after kill {number}",
                      lambda before=before: client(bin_dir, server, steady_job.stem)["launches"] > before)
                service.look()
                if (number + 1) % TOLD_EVERY == 0:
                    print(f"kills: {number + 1} of {kills}, {met} of them connected; {service.answered} correct answers of serve",
                          flush=True)
            if [it["generation"] for it in asked(bin_dir, server, "devices")["devices"]] != generation:
                fail("the device's worker was replaced")
            if service.answered == 0:
                fail("serve never answered")
        finally:
            steady.kill()
            steady.wait()
            if service.process is not None:
                service.end()
    print(f"passed  kills: {kills}, {met} of them of a program that was connected; {service.answered} answers of serve are correct")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
