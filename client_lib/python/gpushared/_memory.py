# SPDX-License-Identifier: Apache-2.0
"""Device memory as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from . import _core
from ._errors import InvalidArgument
from ._host import DLPACK_CPU, DLPACK_EXTENSION, HostArray, nbytes_of

if TYPE_CHECKING:
    from typing_extensions import CapsuleType


class DeviceBuffer:
    """Device memory of one client as a C-contiguous array with a shape and a dtype.

    Created by ``Client.allocate`` and ``Client.to_device``. The memory is freed by ``free`` or with its
    last reference, once all commands submitted before have finished. It is aligned to 256 bytes. Memory
    that this client has not used before is zero.

    Slices along the first axis (``buffer[2:5]``) are views of the same memory.

    Thread-safe.
    """

    __slots__ = ("_core", "_client", "_offset", "_freed", "shape", "dtype", "nbytes", "__weakref__")

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int

    def __init__(self, core: _core.DeviceBuffer, client: _core.Client, shape: tuple[int, ...],
                 dtype: np.dtype[Any], offset: int = 0) -> None:
        self._core = core
        self._client = client
        self._offset = offset
        self.shape = shape
        self.dtype = dtype
        self.nbytes = nbytes_of(shape, dtype)

    @property
    def address(self) -> int:
        """The address of the first element in this client's device memory."""
        base = self._core.address
        if base == 0:
            raise InvalidArgument(f"{self!r} has been freed")
        return base + self._offset

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.nbytes // self.dtype.itemsize if self.dtype.itemsize else 0

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def free(self) -> None:
        """Frees the memory now, including all views of it. Freeing twice has no effect."""
        self._core.free()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a DeviceBuffer of no axes has no length")
        return self.shape[0]

    def __getitem__(self, rows: slice) -> DeviceBuffer:
        if not isinstance(rows, slice) or not self.shape:
            raise TypeError("a DeviceBuffer takes a slice of its first axis, such as buffer[2:5]")
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            raise InvalidArgument(f"a view of a DeviceBuffer is contiguous, and steps by 1, not by {step}")
        row_bytes = nbytes_of(self.shape[1:], self.dtype)
        return DeviceBuffer(self._core, self._client, (max(stop - start, 0), *self.shape[1:]), self.dtype,
                            self._offset + start * row_bytes)

    def to_host(self) -> HostArray:
        """Returns the contents as a NumPy array, after everything queued so far on all streams has finished."""
        self._client.synchronize()
        made = np.empty(self.shape, self.dtype)
        self._client.default_stream().copy_to_host(made.reshape(-1).view(np.uint8), self.address)
        return made

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> HostArray:
        """Returns a copy on the host, like ``to_host``, for ``numpy.asarray(buffer)``."""
        if copy is False:
            raise ValueError("device memory is seen by NumPy only as a copy")
        made = self.to_host()
        return made if dtype is None else made.astype(dtype, copy=False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA's array interface, version 3, without a stream, so the caller must order its own work.

        The address is valid only in this session. A library with another context cannot access it, even
        in this process.
        """
        return {"shape": self.shape, "typestr": self.dtype.str, "descr": self.dtype.descr,
                "data": (self.address, False), "strides": None, "stream": None, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's extension device, because no other library can access the memory of this session."""
        return DLPACK_EXTENSION, 0

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> CapsuleType:
        """Returns a copy on the host if requested, as by ``numpy.from_dlpack(buffer, device="cpu")``.

        Raises BufferError for requests for the device memory itself.
        """
        if dl_device is None or tuple(dl_device) != (DLPACK_CPU, 0) or copy is False:
            raise BufferError("this device memory is reachable through its own session only; ask for a copy on the "
                              "host: numpy.from_dlpack(buffer, device='cpu')")
        return self.to_host().__dlpack__(max_version=max_version)

    def __repr__(self) -> str:
        return f"<gpushared.DeviceBuffer of shape {self.shape}, {self.dtype}, {self.nbytes} bytes>"


# A DeviceBuffer, an address, or an object with __cuda_array_interface__ in this session's memory.
DeviceMemory: TypeAlias = Union[DeviceBuffer, int, Any]


def span_of(memory: DeviceMemory, client: _core.Client) -> tuple[int, int | None]:
    """Returns the address, and the size in bytes if it is known. Rejects a buffer of another client."""
    if isinstance(memory, DeviceBuffer):
        if memory._client is not client:
            raise InvalidArgument(f"{memory!r} belongs to another client")
        return memory.address, memory.nbytes
    if isinstance(memory, (int, np.integer)) and not isinstance(memory, bool):
        if not 0 <= memory < 2**64:
            raise InvalidArgument(f"{memory} is no address of device memory")
        return int(memory), None
    interface = getattr(memory, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError(f"{type(memory).__name__} is no device memory: a DeviceBuffer, an address or an object with "
                        "__cuda_array_interface__ is")
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    strides = interface.get("strides")
    contiguous = tuple(nbytes_of(shape[axis + 1:], dtype) for axis in range(len(shape)))
    if strides is not None and tuple(strides) != contiguous and nbytes_of(shape, dtype) != 0:
        raise InvalidArgument(f"the {type(memory).__name__} of shape {shape} is not C-contiguous")
    return int(interface["data"][0]), nbytes_of(shape, dtype)
