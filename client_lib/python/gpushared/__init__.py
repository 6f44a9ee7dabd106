# SPDX-License-Identifier: Apache-2.0
"""Runs kernels and copies, through a gpushared server, on a device that is shared with other processes.

    import gpushared
    import numpy as np

    with gpushared.connect(scheduling_class="high", latency_target_s=0.025) as client:
        add = client.load_module_file("vector_add.ptx")["vector_add"]
        a = client.to_device(np.arange(1000, dtype=np.float32))
        total = client.allocate(1000, np.float32)
        stream = client.default_stream
        with stream.request():
            stream.launch(add, 4, 256, a, a, total, np.uint32(1000))
            print(stream.copy_to_host(total))

``connect`` is the entry point. Every failure that the library reports is an ``Error`` with a code and a message.
"""

from . import _core
from ._client import Client, DeviceProperties, MemoryInfo, connect, list_devices
from ._errors import (
    Cancelled,
    DeviceLost,
    Disconnected,
    Error,
    FaultKind,
    Internal,
    InvalidArgument,
    KernelFault,
    LimitExceeded,
    NotFound,
    NotReady,
    OutOfMemory,
    PermissionDenied,
    ProtocolViolation,
    StatusCode,
    TimedOut,
    Unavailable,
    Unsupported,
    VersionMismatch,
    WrongProcess,
)
from ._memory import DeviceBuffer
from ._module import Kernel, KernelAttributes, Module, ModuleVariable
from ._stream import Event, Request, Stream

__version__: str = _core.library_version()

__all__ = [
    "Cancelled", "Client", "DeviceBuffer", "DeviceLost", "DeviceProperties", "Disconnected", "Error", "Event",
    "FaultKind", "Internal", "InvalidArgument", "Kernel", "KernelAttributes", "KernelFault", "LimitExceeded",
    "MemoryInfo", "Module", "ModuleVariable", "NotFound", "NotReady", "OutOfMemory", "PermissionDenied",
    "ProtocolViolation", "Request", "StatusCode", "Stream", "TimedOut", "Unavailable", "Unsupported", "VersionMismatch",
    "WrongProcess", "connect", "list_devices",
]

# Set so that messages and help show gpushared.Unavailable instead of the module that defines it.
for _name in __all__:
    globals()[_name].__module__ = __name__
