# SPDX-License-Identifier: Apache-2.0
"""Taichi generates PTX on its own; its sparse fields allocate on the device and call through pointers."""
import numpy as np
import taichi as ti

ti.init(arch=ti.cuda, offline_cache=False)
assert ti.cfg.arch == ti.cuda, "Taichi has left the device"

SIZE = 128
grid = ti.field(ti.i32)
blocks = ti.root.pointer(ti.ij, (16, 16))
blocks.bitmasked(ti.ij, (8, 8)).place(grid)
angles = ti.field(ti.f32, 64, needs_grad=True)
loss = ti.field(ti.f32, (), needs_grad=True)


@ti.kernel
def fill():
    for i, j in ti.ndrange(SIZE, SIZE):
        if (i // 8 + j // 8) % 3 == 0 and i % 8 == j % 8:
            grid[i, j] = i + j


@ti.kernel
def total() -> ti.i32:
    found = 0
    for i, j in grid:
        found += grid[i, j]
    return found


@ti.kernel
def judge():
    for i in angles:
        loss[None] += ti.sin(angles[i]) * angles[i]


@ti.kernel
def reverse(numbers: ti.types.ndarray(dtype=ti.i32, ndim=1)):
    ti.loop_config(block_dim=128)
    for i in range(1024):
        shared = ti.simt.block.SharedArray((128,), ti.i32)
        shared[i % 128] = i
        ti.simt.block.sync()
        numbers[i] = shared[127 - i % 128]


@ti.kernel
def greet():
    for i in range(2):
        print("line", i)


i, j = np.ogrid[:SIZE, :SIZE]
expected = int((i + j)[((i // 8 + j // 8) % 3 == 0) & (i % 8 == j % 8)].sum())
for _ in range(2):
    fill()
    assert total() == expected
    blocks.deactivate_all()
    assert total() == 0

values = np.linspace(0, 3, 64, dtype=np.float32)
angles.from_numpy(values)
with ti.ad.Tape(loss=loss):
    judge()
assert np.allclose(angles.grad.to_numpy(), np.cos(values) * values + np.sin(values), atol=1e-4)

numbers = np.zeros(1024, np.int32)
reverse(numbers)
assert np.array_equal(numbers.reshape(8, 128), np.arange(1024).reshape(8, 128)[:, ::-1])

keys = ti.field(ti.i32, 1000)
unsorted = np.random.default_rng(0).integers(0, 100000, 1000).astype(np.int32)
keys.from_numpy(unsorted)
ti.algorithms.parallel_sort(keys)
assert np.array_equal(keys.to_numpy(), np.sort(unsorted))

greet()
ti.sync()
