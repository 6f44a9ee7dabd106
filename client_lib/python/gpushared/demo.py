# SPDX-License-Identifier: Apache-2.0
"""Shows what scheduling does: a service that answers requests, alone and together with a batch job.

    python -m gpushared.demo

Starts servers of its own and takes about half a minute. Prints the service's latencies when it runs alone, and when it
runs together with a batch job under policy fifo, which runs work in the order of its arrival, and under policy
priority. Without a GPU the server's cpu device executes the same kernels.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import gpushared
from gpushared import _programs

# Each thread of the kernel computes `steps` terms of a recurrence, so a block takes a time that does not depend on data.
_KERNEL = """.version 7.0
.target sm_52
.address_size 64
.visible .entry recurrence(.param .u64 out, .param .u32 steps)
{
  .reg .pred %p;
  .reg .u32 %i, %n, %t, %b, %d;
  .reg .f32 %x;
  .reg .u64 %a, %o;
  ld.param.u64 %a, [out];
  ld.param.u32 %n, [steps];
  mov.u32 %t, %tid.x;
  mov.u32 %b, %ctaid.x;
  mov.u32 %d, %ntid.x;
  mad.lo.u32 %t, %b, %d, %t;
  mov.f32 %x, 0f3F000000;
  mov.u32 %i, 0;
next:
  fma.rn.f32 %x, %x, 0f3F7F0000, 0f3B800000;
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %n;
  @%p bra next;
  mul.wide.u32 %o, %t, 4;
  cvta.to.global.u64 %a, %a;
  add.u64 %a, %a, %o;
  st.global.f32 [%a], %x;
  ret;
}
"""
_THREADS = 64
_STEPS = 2000
_REQUEST_S = 0.002  # Device time of a request.
_BATCH_S = 0.040  # Device time of a launch of the batch job.
_PERIOD_S = 0.050


class _Work:
    """Launches kernels that run for a given time."""

    def __init__(self, client: gpushared.Client) -> None:
        self._kernel = client.load_module(_KERNEL)["recurrence"]
        self._stream = client.default_stream
        self._out = client.allocate(_THREADS << 16, np.float32)
        self._per_block_s = 0.0
        blocks = 16
        while True:  # Until the length can be measured.
            begin = time.perf_counter()
            self._launch(blocks)
            self._stream.synchronize()
            took = time.perf_counter() - begin
            if took > 0.05 or blocks >= 1 << 16:
                break
            blocks *= 2
        self._per_block_s = took / blocks

    def _launch(self, blocks: int) -> None:
        self._stream.launch(self._kernel, blocks, _THREADS, self._out, np.uint32(_STEPS))

    def run(self, length_s: float) -> None:
        """Launches work of this length, and returns when it has ended."""
        self._launch(min(max(round(length_s / self._per_block_s), 1), 1 << 16))
        self._stream.synchronize()


def _batch(socket: str) -> None:
    """The batch job: runs until it is killed, and prints a line after each launch."""
    with gpushared.connect(socket=socket, scheduling_class="low", name="batch") as client:
        work = _Work(client)
        while True:
            work.run(_BATCH_S)
            print(flush=True)


def _serve(client: gpushared.Client, work: _Work, time_s: float) -> list[float]:
    """Answers a request every _PERIOD_S seconds, and returns the latencies of all requests in seconds."""
    latencies = []
    arrival = time.perf_counter()
    end = arrival + time_s
    while arrival < end:
        time.sleep(max(arrival - time.perf_counter(), 0))
        with client.default_stream.request():
            work.run(_REQUEST_S)
        latencies.append(time.perf_counter() - arrival)
        arrival += _PERIOD_S
    return latencies


@contextmanager
def _server(directory: pathlib.Path, device: str, policy: str) -> Iterator[str]:
    socket = directory / f"{policy}.sock"
    log = directory / f"{policy}.log"
    command = [_programs.find("gpushared"), "--policy", policy, "--socket", str(socket), "--device", device]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    gpushared.list_devices(socket=socket)
                    break
                except gpushared.Error:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise SystemExit(f"the server did not start:\n{log.read_text()}") from None
                    time.sleep(0.05)
            yield str(socket)
        finally:
            process.terminate()


@contextmanager
def _batch_job(socket: str) -> Iterator[list[int]]:
    """Runs the batch job in another process. Afterwards, the element of the list is the number of its launches."""
    count = [0]
    command = [sys.executable, "-m", "gpushared.demo", "--batch", socket]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # The batch job has completed its first launch.
            yield count
        finally:
            process.kill()
            count[0] = len(process.stdout.read())


def _show(what: str, latencies: list[float], batch: str) -> None:
    p50, p99 = (float(np.percentile(latencies, percent)) * 1e3 for percent in (50, 99))
    print(f"{what[:41]:<42}{p50:>9.1f} ms{p99:>9.1f} ms{batch:>18}", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m gpushared.demo", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each of the three parts (6)")
    parser.add_argument("--device", default="auto", help="the server's devices, as its option --device (auto)")
    parser.add_argument("--batch", metavar="SOCKET", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch is not None:
        _batch(options.batch)
    print(f"Requests of {_REQUEST_S * 1e3:.0f} ms each {_PERIOD_S * 1e3:.0f} ms; batch launches of {_BATCH_S * 1e3:.0f} ms\n")
    print(f"{'':<42}{'p50':>12}{'p99':>12}{'batch job':>18}")
    with tempfile.TemporaryDirectory(prefix="gpushared-demo-") as scratch:
        directory = pathlib.Path(scratch)
        for policy in ("fifo", "priority"):
            with _server(directory, options.device, policy) as socket, \
                    gpushared.connect(socket=socket, scheduling_class="high", name="service") as client:
                work = _Work(client)
                if policy == "fifo":
                    _show(f"alone on {client.device.name}", _serve(client, work, options.seconds), "")
                with _batch_job(socket) as count:
                    latencies = _serve(client, work, options.seconds)
                _show(f"beside a batch job, policy {policy}", latencies,
                      f"{count[0] / options.seconds:.1f} launches/s")


if __name__ == "__main__":
    main()
