# SPDX-License-Identifier: Apache-2.0
"""Slang compiles with NVRTC, and its kernels read all of their arguments from constant memory."""
import pathlib
import tempfile

import numpy as np
import slangpy as spy

COUNT = 1024
SOURCE = """
RWStructuredBuffer<float> numbers;
RWStructuredBuffer<float> results;
uniform float scale;

[shader("compute")]
[numthreads(64, 1, 1)]
void scale_and_add(uint3 thread: SV_DispatchThreadID)
{
    results[thread.x] = scale * numbers[thread.x] + sin(numbers[thread.x]);
}
"""

with tempfile.TemporaryDirectory() as directory:
    pathlib.Path(directory, "kernel.slang").write_text(SOURCE)
    device = spy.create_device(type=spy.DeviceType.cuda, include_paths=[directory])
    kernel = device.create_compute_kernel(device.load_program("kernel.slang", ["scale_and_add"]))
    usage = spy.BufferUsage.shader_resource | spy.BufferUsage.unordered_access
    values = np.arange(COUNT, dtype=np.float32) / 10
    numbers = device.create_buffer(element_count=COUNT, struct_size=4, usage=usage, data=values)
    results = device.create_buffer(element_count=COUNT, struct_size=4, usage=usage)
    kernel.dispatch(thread_count=[COUNT, 1, 1], vars={"numbers": numbers, "results": results, "scale": 2.0})
    assert np.allclose(results.to_numpy().view(np.float32), 2 * values + np.sin(values), atol=1e-5)
    device.close()
