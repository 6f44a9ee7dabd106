# SPDX-License-Identifier: Apache-2.0
"""Computes pi from random points: a program for Numba on CUDA that is unaware of gpushared.

Run it with `gpusharedctl run -- python samples/numba_pi.py` (pip install "numba-cuda[cu13]").
"""
import math

import numpy as np
from numba import cuda

THREADS, POINTS = 16384, 64


@cuda.jit
def count_inside(inside):
    state = np.uint32(2654435761 * (cuda.grid(1) + 1))
    hits = 0
    for _ in range(POINTS):
        x, y = 0.0, 0.0
        for axis in range(2):
            state ^= np.uint32(state << np.uint32(13))
            state ^= state >> np.uint32(17)
            state ^= np.uint32(state << np.uint32(5))
            x, y = y, state / 4294967296.0
        hits += x * x + y * y < 1.0
    cuda.atomic.add(inside, 0, hits)


inside = cuda.to_device(np.zeros(1, np.int64))
count_inside[THREADS // 128, 128](inside)
pi = 4 * inside.copy_to_host()[0] / (THREADS * POINTS)
print(f"{cuda.get_current_device().name}: pi is about {pi:.4f}, {abs(pi - math.pi):.4f} from the truth")
