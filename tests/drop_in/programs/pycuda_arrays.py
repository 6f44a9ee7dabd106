# SPDX-License-Identifier: Apache-2.0
"""PyCUDA compiles C++ with nvcc, and generates kernels for array arithmetic."""
import numpy as np
import pycuda.autoinit
import pycuda.driver as driver
from pycuda import gpuarray
from pycuda.compiler import SourceModule

SOURCE = """
__global__ void add(float* total, const float* a, const float* b, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) total[i] = a[i] + b[i];
}"""
COUNT = 1000

a, b, total = np.arange(COUNT, dtype=np.float32), np.full(COUNT, 2, np.float32), np.zeros(COUNT, np.float32)
add = SourceModule(SOURCE).get_function("add")
add(driver.Out(total), driver.In(a), driver.In(b), np.int32(COUNT), block=(128, 1, 1), grid=(8, 1))
assert np.array_equal(total, a + b)
on_device = gpuarray.to_gpu(a)
assert np.allclose((2 * on_device + 1).get(), 2 * a + 1)
assert gpuarray.sum(on_device).get() == a.sum()
