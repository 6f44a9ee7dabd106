# SPDX-License-Identifier: Apache-2.0
"""Numba: a kernel that adds, on a stream, and a reduction."""
from results import bits, near, need

(numpy, numba, cuda) = need("numpy", "numba", "numba.cuda")


@cuda.jit
def add(a, b, out):
    place = cuda.grid(1)
    if place < out.size:
        out[place] = a[place] + b[place]


@cuda.reduce
def total(a, b):
    return a + b


first = numpy.arange(100_000, dtype=numpy.float32)
stream = cuda.stream()
given, added = cuda.to_device(first, stream), cuda.device_array_like(first, stream)
add[(100_000 + 255) // 256, 256, stream](given, given, added)
stream.synchronize()
bits("sum", added.copy_to_host())
near("reduction", total(added))
