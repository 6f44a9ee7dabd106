# SPDX-License-Identifier: Apache-2.0
"""Kernels of about 50 us back to back, by the driver's own calls, until this process is killed.

Needs no package, so that it starts soon. Prints a line of JSON when its first kernel has ended.
"""
import ctypes
import time

import phases

BLOCKS, THREADS = 50, 32  # On the stand-in of tests/gate, a kernel takes as many microseconds as it has blocks.
BATCH = 20
KERNEL = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry wait_50_us()
{
  .reg .u64 %begin, %now;
  .reg .pred %is_early;
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %is_early, %now, 50000;
  @%is_early bra again;
  ret;
}
"""


def main():
    limit = phases.parse_arguments(__doc__).limit
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(f"missing libcuda.so.1: {error}")
        return

    def call(function, *arguments):
        code = getattr(driver, function)(*arguments)
        if code:
            raise RuntimeError(f"{function}: error {code}")

    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    device = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    # The name that every driver exports; CUDA 13's header has another one.
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    call("cuModuleLoadData", ctypes.byref(module), KERNEL)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"wait_50_us")
    until = time.monotonic() + limit
    is_first = True
    while time.monotonic() < until:
        for _ in range(1 if is_first else BATCH):
            call("cuLaunchKernel", kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, None, None)
        call("cuCtxSynchronize")
        if is_first:
            phases.tell({"launched": 1})
        is_first = False


if __name__ == "__main__":
    main()
