# SPDX-License-Identifier: Apache-2.0
"""Dr.Jit generates PTX on its own. Its kernels count in page-locked memory, and it uses textures."""
import drjit as dr
import numpy as np
from drjit.cuda import Array2f, Float, TensorXf, Texture2f

values = dr.sin(dr.arange(Float, 1000)) + 2
total = dr.sum(values)
dr.eval(values, total)
expected = np.sin(np.arange(1000, dtype=np.float32)) + 2
assert np.allclose(values.numpy(), expected, atol=1e-5)
assert abs(total[0] - expected.sum()) < 0.1

assert dr.compress(dr.arange(Float, 1000) > 990).numpy().tolist() == list(range(991, 1000))

texels = np.random.default_rng(0).random((8, 8, 1), dtype=np.float32)
texture = Texture2f([8, 8], 1)
texture.set_tensor(TensorXf(texels))
seen = texture.eval(Array2f(Float([0.5 / 8, 1.5 / 8, 2 / 8]), Float([0.5 / 8, 0.5 / 8, 0.5 / 8])))[0]
between = (texels[0, 1, 0] + texels[0, 2, 0]) / 2
assert np.allclose(seen.numpy(), [texels[0, 0, 0], texels[0, 1, 0], between], atol=1e-2)
