# SPDX-License-Identifier: Apache-2.0
"""Simulates for SECONDS how heat spreads along a ring, and checks that the total heat does not change.

Usage: numba_heat.py [SECONDS]
"""
import sys
import time

import numpy as np
from numba import config, cuda

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
POINTS = 16384


@cuda.jit
def spread(old, new):
    i = cuda.grid(1)
    new[i] = old[i] + np.float32(0.25) * (old[(i + 1) % POINTS] - 2 * old[i] + old[(i + POINTS - 1) % POINTS])


def main(seconds="1"):
    first = np.zeros(POINTS, np.float32)
    first[POINTS // 2] = POINTS
    old, new = cuda.to_device(first), cuda.device_array_like(first)
    spread[POINTS // 128, 128](old, new)  # Compiles the kernel before the steps are counted.
    old, new = new, old
    cuda.synchronize()
    begin = now = time.monotonic()
    steps = 0
    while now < begin + float(seconds):
        for _ in range(20):
            spread[POINTS // 128, 128](old, new)
            old, new = new, old
        steps += 20
        cuda.synchronize()
        now = time.monotonic()
    heat = old.copy_to_host()
    assert abs(heat.sum() / POINTS - 1) < 1e-3 and heat.max() < POINTS, (heat.sum(), heat.max())
    print(f"{steps} steps in {now - begin:.3f} s, the warmest point has {heat.max():.1f} of {POINTS}")


if __name__ == "__main__":
    main(*sys.argv[1:])
