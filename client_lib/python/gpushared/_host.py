# SPDX-License-Identifier: Apache-2.0
"""Conversion of host arrays, shapes and dtypes of callers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from ._errors import InvalidArgument

Shape: TypeAlias = Union[int, Sequence[int]]
HostArray: TypeAlias = npt.NDArray[Any]

# Values of DLPack's DLDeviceType.
DLPACK_CPU = 1
DLPACK_EXTENSION = 12


def shape_of(shape: Shape) -> tuple[int, ...]:
    """Returns the shape as a tuple of non-negative ints."""
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    made = tuple(int(extent) for extent in extents)
    if any(extent < 0 for extent in made):
        raise InvalidArgument(f"the shape {made} has a negative extent")
    return made


def type_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Returns the dtype, whose elements must be plain bytes."""
    made = np.dtype(dtype)
    if made.hasobject:
        raise InvalidArgument(f"dtype {made} holds references to Python objects, which no device can follow")
    return made


def nbytes_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Returns the size in bytes of an array of this shape and dtype, without a limit."""
    return math.prod(shape) * dtype.itemsize


def source_array(source: Any) -> HostArray:
    """Returns the source of a copy as a C-contiguous NumPy array, copying it only if necessary.

    Accepts NumPy arrays and scalars, objects with the buffer protocol or ``__array_interface__``, and
    arrays of other libraries in host memory (DLPack).
    """
    if isinstance(source, (np.ndarray, np.generic)):
        array = np.asarray(source)
    elif hasattr(source, "__cuda_array_interface__"):
        raise TypeError(f"{type(source).__name__} lies in device memory: use copy_on_device or copy_to_host")
    elif hasattr(source, "__dlpack__"):
        array = np.from_dlpack(source)
    elif hasattr(source, "__array_interface__"):
        array = np.asarray(source)
    else:
        try:
            array = np.asarray(memoryview(source))
        except TypeError:
            raise TypeError(f"{type(source).__name__} is no array in host memory; numpy.array(...) makes one "
                            "with a type that you choose") from None
    type_of(array.dtype)
    return np.ascontiguousarray(array).reshape(array.shape)


def bytes_of(array: HostArray) -> HostArray:
    """Returns a view of a C-contiguous array as bytes, even for dtypes that the buffer protocol does not support."""
    return array.reshape(-1).view(np.uint8)


def destination_bytes(destination: Any) -> HostArray:
    """Returns a view of the destination of a copy, a writable C-contiguous array in host memory, as bytes."""
    array = destination if isinstance(destination, np.ndarray) else np.asarray(memoryview(destination))
    type_of(array.dtype)
    if not array.flags.c_contiguous:
        raise InvalidArgument(f"the destination, an array of shape {array.shape}, is not C-contiguous: "
                              "copy into a contiguous one, or use copy_to_host_2d")
    if not array.flags.writeable:
        raise InvalidArgument(f"the destination, an array of shape {array.shape}, is read-only")
    return bytes_of(array)


def nanoseconds(seconds: float, name: str) -> int:
    """Returns seconds as whole nanoseconds; ``name`` is the name of the option."""
    if not math.isfinite(seconds) or not -(2**63) <= seconds * 1e9 < 2**63:
        raise InvalidArgument(f"{name} is {seconds} s, which is no length of time")
    return round(seconds * 1e9)
