# SPDX-License-Identifier: Apache-2.0
"""cuda-core compiles C++ with NVRTC to PTX and to machine code, launches with pinned memory, also from a pool, and lets
memory grow."""
import numpy as np
from cuda.core import (Device, LaunchConfig, LegacyPinnedMemoryResource, PinnedMemoryResource, Program, ProgramOptions,
                       VirtualMemoryResource, launch)

SOURCE = r"""
extern "C" __global__ void add(const float* a, const float* b, float* sum, unsigned long count) {
  for (unsigned long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    sum[i] = a[i] + b[i];
}"""
COUNT = 1000
STEP = 2 << 20  # Granularity in bytes with which memory grows.

device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
on_device = [device.memory_resource.allocate(4 * COUNT, stream=stream) for _ in range(3)]
on_host = [LegacyPinnedMemoryResource().allocate(4 * COUNT) for _ in range(3)]
a, b, total = (np.from_dlpack(buffer).view(np.float32) for buffer in on_host)
for target in ("ptx", "cubin"):
    kernel = Program(SOURCE, code_type="c++", options=options).compile(target).get_kernel("add")
    a[:], b[:], total[:] = np.arange(COUNT), 2, 0
    for i in range(2):
        on_device[i].copy_from(on_host[i], stream=stream)
    launch(stream, LaunchConfig(grid=8, block=128), kernel, *on_device, np.uint64(COUNT))
    on_device[2].copy_to(on_host[2], stream=stream)
    stream.sync()
    assert np.array_equal(total, a + b)

# Kernels access memory of a host pool at its own address.
from_pool = [PinnedMemoryResource().allocate(4 * COUNT, stream=stream) for _ in range(3)]
stream.sync()
a, b, total = (np.from_dlpack(buffer).view(np.float32) for buffer in from_pool)
a[:], b[:], total[:] = np.arange(COUNT), 3, 0
launch(stream, LaunchConfig(grid=8, block=128), kernel, *from_pool, np.uint64(COUNT))
stream.sync()
assert np.array_equal(total, a + b)

# cuda-core 1.2 moves growing memory to other addresses with its contents, and warns when it frees the old addresses
# again.
grows = VirtualMemoryResource(device)
small, large = (LegacyPinnedMemoryResource().allocate(steps * STEP) for steps in (1, 2))
memory = grows.allocate(STEP)
np.from_dlpack(small).view(np.uint32)[:] = np.arange(STEP // 4)
memory.copy_from(small, stream=stream)
stream.sync()
grown = grows.modify_allocation(memory, 2 * STEP)
grown.copy_to(large, stream=stream)
stream.sync()
assert np.array_equal(np.from_dlpack(large).view(np.uint32)[:STEP // 4], np.arange(STEP // 4))
