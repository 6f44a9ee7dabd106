# SPDX-License-Identifier: Apache-2.0
"""Numba links its LTO-IR or its PTX with nvJitLink; a grid-wide barrier uses a function of cudadevrt."""
import numpy as np
from numba import cuda

COUNT = 1000


def add(a, b, total):
    i = cuda.grid(1)
    if i < total.size:
        total[i] = a[i] + b[i]


def rotate(numbers):
    """Each block reads the value that the next block wrote before the grid-wide barrier."""
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    numbers[i] = i
    grid.sync()
    taken = numbers[(i + 1) % numbers.size]
    grid.sync()
    numbers[i] = taken


a, b = np.arange(COUNT, dtype=np.float32), np.full(COUNT, 2, np.float32)
for lto in (True, False):
    total, numbers = np.zeros(COUNT, np.float32), np.zeros(4, np.int32)
    cuda.jit(lto=lto)(add)[8, 128](a, b, total)
    assert np.array_equal(total, a + b)
    cuda.jit("void(int32[::1])", lto=lto)(rotate)[4, 1](numbers)
    assert numbers.tolist() == [1, 2, 3, 0]
