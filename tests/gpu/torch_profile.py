#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which kernels make up a training step of PyTorch: how much of a GPU's time could be preempted between blocks?

Trains a small language model for some steps, without a server, and reads the profiler's trace. All rows are facts.
"""
import argparse
import json
import math
import pathlib
import re
import signal
import sys
import tempfile
import time

from rows import Rows

# Requirements of the server's preemptible forms on a launch: see tests/gpu/README.md and server/device/cuda.
WAVES_MIN = 2
BLOCK_US_MIN = 10
KERNEL_US_MIN = 100
# From CUDA's occupancy calculator, for compute capability 8.0 and 9.0.
BLOCKS_PER_SM_MAX = 32
SHARED_RESERVED = 1024
REGISTER_STEP = 256
PARTITIONS = 4
# In cuBLAS names the size of a cluster is the third pair: nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT.
CLUSTER_IN_NAME = re.compile(r"^nvjet_\w*?\d+x\d+_\d+x\d+_(\d+)x(\d+)_")
WARM_UP, TIMED, PROFILED = 3, 5, 2


def blocks_at_once(kernel, device):
    """Returns the blocks of this kernel that the GPU runs at once."""
    warps = math.ceil(math.prod(kernel["block"]) / device["warpSize"])
    limits = [BLOCKS_PER_SM_MAX, device["maxThreadsPerMultiprocessor"] // (warps * device["warpSize"])]
    registers = math.ceil(kernel["registers per thread"] * device["warpSize"] / REGISTER_STEP) * REGISTER_STEP
    if registers:
        limits.append(device["regsPerMultiprocessor"] // PARTITIONS // registers * PARTITIONS // warps)
    limits.append(int(device["sharedMemPerMultiprocessor"] // (kernel["shared memory"] + SHARED_RESERVED)))
    return max(1, min(limits)) * device["numSms"]


def is_cluster_by_name(name):
    found = CLUSTER_IN_NAME.match(name)
    return found is not None and int(found[1]) * int(found[2]) > 1


def shares(trace):
    """Returns shares of the GPU's kernel time by kind of kernel, and the total, from a Chrome trace by Kineto."""
    devices = {device["id"]: device for device in trace["deviceProperties"]}
    events = [event for event in trace["traceEvents"] if "dur" in event and "correlation" in event.get("args", {})]
    calls = {event["args"]["correlation"]: event["name"] for event in events if event["cat"] in ("cuda_runtime", "cuda_driver")}
    kernels = [event for event in events if event["cat"] == "kernel"]
    total = sum(kernel["dur"] for kernel in kernels)
    if not total:
        raise ValueError("the trace has no kernel")

    def share(condition):
        return sum(kernel["dur"] for kernel in kernels if condition(kernel)) / total

    def waves(kernel):
        return math.prod(kernel["args"]["grid"]) / blocks_at_once(kernel["args"], devices[kernel["args"]["device"]])

    def is_preemptible(kernel):
        return (waves(kernel) >= WAVES_MIN and kernel["dur"] >= KERNEL_US_MIN and
                kernel["dur"] / math.ceil(waves(kernel)) >= BLOCK_US_MIN)

    def called(pattern):
        return lambda kernel: re.search(pattern, calls.get(kernel["args"]["correlation"], "")) is not None

    longest = max(kernels, key=lambda kernel: kernel["dur"])
    return {
        "kernels": len(kernels), "total_us": total, "longest_us": longest["dur"], "longest": longest["name"],
        "shares": {
            "kernels over 100 us": share(lambda kernel: kernel["dur"] > 100),
            "kernels over 1 ms": share(lambda kernel: kernel["dur"] > 1000),
            f"grids below {WAVES_MIN} waves": share(lambda kernel: waves(kernel) < WAVES_MIN),
            f"kernels that could be preempted: {WAVES_MIN} waves, {KERNEL_US_MIN} us and blocks of {BLOCK_US_MIN} us at least":
                share(is_preemptible),
            "launches with attributes, clusters among them": share(called("LaunchKernelEx")),
            "kernels whose names say a cluster": share(lambda kernel: is_cluster_by_name(kernel["name"])),
            "cooperative launches": share(called("LaunchCooperativeKernel")),
        }}


def make_step(torch, layers, width, tokens, batch, words, device, **options):
    """Returns a function that trains a GPT-like model for one step. `options`: of the optimizer."""
    functional = torch.nn.functional

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.attention_in, self.attention_out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            heads = [part.view(batch, tokens, -1, 64).transpose(1, 2)
                     for part in self.attention_in(self.norm1(x)).split(width, dim=2)]
            attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))

    model = torch.nn.Sequential(torch.nn.Embedding(words, width), *(Block() for _ in range(layers)),
                                torch.nn.LayerNorm(width), torch.nn.Linear(width, words)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    text = torch.randint(words, (batch, tokens + 1), device=device)

    def step():
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def profile(torch, step, directory):
    """Returns the seconds of a step, and the trace of PROFILED steps."""
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(TIMED):
        loss = step()
    torch.cuda.synchronize()
    seconds = (time.monotonic() - begin) / TIMED
    if not math.isfinite(loss.item()):
        raise RuntimeError("the loss is no number")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    path = pathlib.Path(directory) / "trace.json"
    profiler.export_chrome_trace(str(path))
    return seconds, json.loads(path.read_text(encoding="utf-8"))


def write(rows, seconds, found, note):
    rows.add("a training step", seconds * 1000, "ms", note=note)
    rows.add("kernels per step", found["kernels"] / PROFILED)
    rows.add("GPU time in kernels per step", found["total_us"] / 1000 / PROFILED, "ms")
    rows.add("longest kernel", found["longest_us"], "us", note=found["longest"][:100])
    for what, share in found["shares"].items():
        rows.add(f"GPU time in {what}", share)


def measure(rows):
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        rows.add("PyTorch", "not installed", note=str(error))
        return
    step = make_step(torch, layers=12, width=768, tokens=1024, batch=8, words=50304, device="cuda")
    with tempfile.TemporaryDirectory() as directory:
        seconds, trace = profile(torch, step, directory)
    write(rows, seconds, shares(trace),
          f"12 layers of 768, 8 x 1024 tokens, bfloat16; PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")


def give_up(*_):
    raise TimeoutError("not done within its limit")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, help="file to append rows to")
    parser.add_argument("--part", default="torch", help="name of the part in rows")
    parser.add_argument("--seconds", type=int, default=30, help="limit of all")
    options = parser.parse_args(arguments)
    rows = Rows(options.rows, options.part)
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(options.seconds)
    try:
        measure(rows)
    except Exception as error:  # pylint: disable=broad-exception-caught
        # Catches every error, so that the row states why there is no figure.
        rows.add("a training step", None, note=f"{type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    main(sys.argv[1:])
