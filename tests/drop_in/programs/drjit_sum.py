# SPDX-License-Identifier: Apache-2.0
"""Dr.Jit compiles to PTX by itself."""
import drjit as dr
import numpy as np
from drjit.cuda import Float

values = dr.sin(dr.arange(Float, 1000)) + 2
total = dr.sum(values)
dr.eval(values, total)
expected = np.sin(np.arange(1000, dtype=np.float32)) + 2
assert np.allclose(values.numpy(), expected, atol=1e-5)
assert abs(total[0] - expected.sum()) < 0.1
