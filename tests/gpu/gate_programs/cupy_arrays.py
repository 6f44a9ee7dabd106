# SPDX-License-Identifier: Apache-2.0
"""CuPy: a sum, a matrix product, and a kernel from source."""
from results import bits, near, need

(cupy,) = need("cupy")
numbers = cupy.asarray((cupy.arange(1 << 16).get() % 1000) / 8, dtype=cupy.float32).reshape(256, 256)
near("sum", numbers.sum())
bits("matmul", (numbers @ numbers.T).get())
twice = cupy.RawKernel(
    'extern "C" __global__ void twice(float* a) { a[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }', "twice")
twice((256,), (256,), (numbers,))
bits("kernel", numbers.get())
