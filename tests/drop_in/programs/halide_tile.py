# SPDX-License-Identifier: Apache-2.0
"""Halide's just-in-time compiler generates PTX on its own."""
import halide as hl
import numpy as np

x, y, xi, yi = (hl.Var(name) for name in ("x", "y", "xi", "yi"))
values = np.random.default_rng(0).random((64, 64), dtype=np.float32)
pipeline = hl.Func("pipeline")
pipeline[x, y] = hl.sqrt(hl.Buffer(values)[x, y]) * 2 + x
pipeline.gpu_tile(x, y, xi, yi, 16, 16)
target = hl.Target("x86-64-linux-sse41-cuda-cuda_capability_80")
pipeline.compile_jit(target)
result = np.array(pipeline.realize([64, 64], target))
assert np.allclose(result, np.sqrt(values) * 2 + np.arange(64)[None, :], atol=1e-5)
