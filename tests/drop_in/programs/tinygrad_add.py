# SPDX-License-Identifier: Apache-2.0
"""tinygrad generates PTX on its own."""
import numpy as np
from tinygrad import Device, Tensor

assert Device.DEFAULT == "CUDA", Device.DEFAULT
sums = (Tensor(np.arange(1000, dtype=np.float32)) + 2).numpy()
assert np.array_equal(sums, np.arange(1000) + 2)
matrix = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
assert np.allclose((Tensor(matrix) @ Tensor(matrix)).numpy(), matrix @ matrix, atol=1e-3)
