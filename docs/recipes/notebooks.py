#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs cells in twelve Jupyter kernels of the kernel specification `shared-gpu`; see notebooks.sh.

Usage: notebooks.py GPUSHAREDCTL [--seconds N]
"""
import argparse
import json
import subprocess
import sys
import threading
import time

from jupyter_client.manager import start_new_kernel

NOTEBOOKS, ACTIVE, MEBIBYTES = 12, 2, 96
SLOWDOWN_MAX = 1.5  # Of a cell beside ten idle notebooks.
PREPARE = f"""
import numpy as np
from numba import cuda

@cuda.jit
def add(values, more):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += more

values = cuda.to_device(np.full({MEBIBYTES} << 18, NUMBER, np.int32))
def compute(rounds):
    for _ in range(rounds):
        add[64, 256](values[:16384], 1)
        add[64, 256](values[:16384], -1)
    cuda.synchronize()
compute(1)
"""
CHECK = "assert (values.copy_to_host() == NUMBER).all()"


class Notebook:
    def __init__(self, number):
        self.number = number
        self.manager, self.client = start_new_kernel(kernel_name="shared-gpu", stderr=subprocess.DEVNULL)
        self.run(PREPARE)

    def run(self, cell):
        """Returns the time of the cell in milliseconds."""
        begin = time.monotonic()
        reply = self.client.execute_interactive(cell.replace("NUMBER", str(self.number)), timeout=300, output_hook=lambda _: None)
        if reply["content"]["status"] != "ok":
            sys.exit(f"notebooks.py: notebook {self.number} failed: {reply['content']['evalue']}")
        return 1000 * (time.monotonic() - begin)

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def quantile(times, share):
    return sorted(times)[int(share * len(times))]


def compute(notebooks, seconds):
    """Returns the times of all cells that these notebooks run for this long."""
    end, times = time.monotonic() + seconds, []

    def work(notebook):
        while time.monotonic() < end:
            times.append(notebook.run("compute(20)"))

    threads = [threading.Thread(target=work, args=(each,)) for each in notebooks]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return times


def list_clients(gpusharedctl):
    return json.loads(subprocess.check_output([gpusharedctl, "ps", "--json"]))["clients"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gpusharedctl")
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    seconds = arguments.seconds
    active = [Notebook(number + 1) for number in range(ACTIVE)]
    before = compute(active, seconds)
    idle = [Notebook(number + 1) for number in range(ACTIVE, NOTEBOOKS)]
    beside = compute(active, seconds)
    parked = sum(client["state"] == "idle" for client in list_clients(arguments.gpusharedctl))
    first = [notebook.run(CHECK) for notebook in idle]
    second = [notebook.run(CHECK) for notebook in idle]
    for notebook in active:
        notebook.run(CHECK)
    swapped_mib = sum(client["swapped_in_bytes"] for client in list_clients(arguments.gpusharedctl)) >> 20
    print(f"{NOTEBOOKS} notebooks with {MEBIBYTES} MiB each, {parked} parked; swapped in so far: {swapped_mib} MiB")
    for notebook in idle:
        notebook.end()
    after = compute(active, seconds)  # Again, because the machine's speed may have changed.
    for name, times in (("a cell of two active notebooks", before), ("the same beside ten idle ones", beside),
                        ("the same when these have ended", after),
                        ("first cell of an idle notebook", first), ("its second cell", second)):
        print(f"{name}: p50 {quantile(times, 0.5):.1f} ms, p99 {quantile(times, 0.99):.1f} ms, {len(times)} cells")
    for notebook in active:
        notebook.end()
    if swapped_mib < MEBIBYTES or parked < NOTEBOOKS - ACTIVE:
        return "notebooks.py: not all idle notebooks were parked and woken"
    slowdown = quantile(beside, 0.5) / max(quantile(before, 0.5), quantile(after, 0.5))
    return f"notebooks.py: idle notebooks slow others down {slowdown:.2f} times" if slowdown > SLOWDOWN_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
