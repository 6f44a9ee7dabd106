# SPDX-License-Identifier: Apache-2.0
"""Numba: parts of page-locked arrays on four streams, events, and an exit that frees without a context."""
import numpy
from numba import cuda

COUNT, PARTS = 1 << 16, 4


@cuda.jit
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


x = numpy.arange(COUNT, dtype=numpy.float32)
y = numpy.ones_like(x)
out = numpy.zeros_like(x)
part = COUNT // PARTS
begin, end = cuda.event(), cuda.event()
with cuda.pinned(x, y, out), cuda.defer_cleanup():
    streams = [cuda.stream() for _ in range(PARTS)]
    begin.record(streams[0])
    for number, stream in enumerate(streams):
        piece = slice(number * part, (number + 1) * part)
        there = [cuda.to_device(array[piece], stream=stream) for array in (x, y, out)]
        axpy[part // 256, 256, stream](numpy.float32(2), *there)
        there[2].copy_to_host(out[piece], stream=stream)
    end.record(streams[0])
    for stream in streams:
        stream.synchronize()
numpy.testing.assert_array_equal(out, 2 * x + y)
assert cuda.event_elapsed_time(begin, end) > 0
kept = cuda.to_device(x)
del kept  # At exit, Numba frees this memory after it has popped the context.
cuda.close()
