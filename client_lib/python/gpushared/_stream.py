# SPDX-License-Identifier: Apache-2.0
"""Streams, events and requests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeAlias, Union

import numpy as np

from . import _core
from ._errors import Error, InvalidArgument
from ._host import HostArray, bytes_of, destination_bytes, nanoseconds, source_array
from ._memory import DeviceBuffer, DeviceMemory, span_of
from ._module import Kernel

Extents: TypeAlias = Union[int, Sequence[int]]

_FILLED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_UINT32_MAX = 2**32 - 1


def _extents(extents: Extents, what: str) -> tuple[int, int, int]:
    """Returns three extents, from one to three given ones; omitted ones are 1."""
    given = (extents,) if isinstance(extents, (int, np.integer)) else tuple(extents)
    if not 1 <= len(given) <= 3 or any(not 0 <= extent <= _UINT32_MAX for extent in given):
        raise InvalidArgument(f"the {what} is {extents}: one to three extents below 2**32 are allowed")
    x, y, z = (*map(int, given), 1, 1)[:3]
    return x, y, z


def _argument(position: int, value: Any, client: _core.Client) -> int | bytes:
    """Converts an argument for the extension: an address, or the bytes of a value."""
    if isinstance(value, DeviceBuffer):
        return span_of(value, client)[0]
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, (ctypes._SimpleCData, ctypes.Structure, ctypes.Union)):
        return bytes(value)
    if hasattr(value, "__cuda_array_interface__"):
        return span_of(value, client)[0]
    if isinstance(value, np.ndarray):
        raise TypeError(f"argument {position} is a NumPy array, which is in host memory: copy it with to_device")
    raise TypeError(f"argument {position} is of type {type(value).__name__}, which has no fixed size: pass a "
                    "NumPy scalar such as numpy.uint32(n), a ctypes value, or device memory")


class Event:
    """Point in the work of a stream, set by ``Stream.record``; recording again moves it.

    Created by ``Client.create_event``. Thread-safe.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Event) -> None:
        self._core = core

    def query(self) -> bool:
        """Returns whether everything before the point has finished; True if never recorded. Does not wait.

        Raises the stream's error if it failed before the point.
        """
        return self._core.query()

    def synchronize(self) -> None:
        """Waits until everything before the point has finished."""
        self._core.synchronize()

    def elapsed_s(self, end: Event) -> float:
        """Returns the device time in seconds from this point to ``end``, negative if ``end`` came first.

        Raises InvalidArgument unless both events have ``timing=True`` and were recorded, and NotReady
        unless both have finished.
        """
        return _core.Event.elapsed_ns(self._core, end._core) / 1e9


class Request:
    """Request of this program, marked by a ``with`` block.

    Created by ``Stream.request``. The request ends when everything that the block queued on the stream
    has finished; the block does not wait for that.
    """

    __slots__ = ("_stream", "_age_ns")

    def __init__(self, stream: _core.Stream, age_ns: int) -> None:
        self._stream = stream
        self._age_ns = age_ns

    def __enter__(self) -> Request:
        self._stream.begin_request(self._age_ns)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 where: TracebackType | None) -> None:
        try:
            self._stream.end_request()
        except Error:
            if error is None:
                raise


class Stream:
    """Ordered queue of commands: they start and end in the order of submission.

    Created by ``Client.create_stream``; ``Client.default_stream`` always exists. Commands of different streams are
    unordered unless ``wait`` orders them. The stream is destroyed with its last reference, after the commands that
    are queued on it.

    Calls that submit a command return as soon as the command is queued, unless their description
    says otherwise. Once the stream has an error, these calls raise it. The device checks device addresses, so a
    range outside the memory of this client is an error of the stream, not of the call.

    Thread-safe. Calls that may wait release the GIL.
    """

    __slots__ = ("_core", "_client", "__weakref__")

    def __init__(self, core: _core.Stream, client: _core.Client) -> None:
        self._core = core
        self._client = client

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, *arguments: Any,
               dynamic_shared_bytes: int = 0, cluster: Extents | None = None, cooperative: bool = False) -> None:
        """Launches ``kernel`` with ``grid`` blocks of ``block`` threads, along one to three axes.

        ``arguments`` are in the order of the kernel's parameters, and each must have the size of its
        parameter: NumPy scalars, ctypes values, and device memory (DeviceBuffer or
        ``__cuda_array_interface__``), which is passed as its address. Python numbers raise TypeError,
        because the PTX does not say whether a parameter is a float.

        ``dynamic_shared_bytes`` is per block. ``cluster`` is the number of blocks per cluster. With
        ``cooperative`` all blocks run at the same time, or the launch is rejected.

        Raises InvalidArgument if the number or the sizes of the arguments differ from the parameters,
        or if the shape exceeds a limit of the device or the kernel; Unsupported if the device cannot
        run the kernel.
        """
        self._core.launch(kernel._core, *self._shape(grid, block, dynamic_shared_bytes, cluster, cooperative),
                          [_argument(i, value, self._client) for i, value in enumerate(arguments)])

    def launch_packed(self, kernel: Kernel, grid: Extents, block: Extents, parameters: Any, *,
                      dynamic_shared_bytes: int = 0, cluster: Extents | None = None,
                      cooperative: bool = False) -> None:
        """As ``launch``, with an argument buffer that the caller has laid out.

        ``parameters`` is an object with the buffer protocol, of exactly ``kernel.parameter_bytes`` bytes.
        """
        self._core.launch_packed(kernel._core, *self._shape(grid, block, dynamic_shared_bytes, cluster, cooperative),
                                 bytes_of(source_array(parameters)))

    @staticmethod
    def _shape(grid: Extents, block: Extents, dynamic_shared_bytes: int, cluster: Extents | None,
               cooperative: bool) -> tuple[tuple[int, int, int], tuple[int, int, int], int, tuple[int, int, int], bool]:
        if not 0 <= dynamic_shared_bytes <= _UINT32_MAX:
            raise InvalidArgument(f"dynamic_shared_bytes is {dynamic_shared_bytes}, allowed: 0 to {_UINT32_MAX}")
        return (_extents(grid, "grid"), _extents(block, "block"), int(dynamic_shared_bytes),
                (0, 0, 0) if cluster is None else _extents(cluster, "cluster"), cooperative)

    def copy_to_device(self, destination: DeviceMemory, source: Any) -> None:
        """Copies an array of host memory to the device.

        ``source`` is a NumPy array or scalar, an object with the buffer protocol, or an array of
        another library in host memory (DLPack). Ordinary memory is staged: the call returns when
        ``source`` may be changed again. Memory of ``Client.allocate_host`` is read in place: the call returns
        immediately, and the array must not change until the copy has finished.
        """
        address, nbytes = span_of(destination, self._client)
        array = source_array(source)
        _require_room(array.nbytes, nbytes)
        self._core.copy_to_device(address, bytes_of(array))

    def copy_to_host(self, source: DeviceMemory, destination: HostArray | None = None) -> HostArray:
        """Copies device memory into ``destination``, and returns ``destination``.

        ``destination`` is a writable C-contiguous array whose size determines how much is copied. Without
        it, the call creates an array of the size of ``source``, which must then have a shape.

        Returns when the bytes have arrived. For memory of ``Client.allocate_host`` it returns
        immediately, and the bytes are valid once the stream has passed the copy.
        """
        address, nbytes = span_of(source, self._client)
        if destination is None:
            destination = _empty_like(source)
        into = destination_bytes(destination)
        _require_room(into.nbytes, nbytes)
        self._core.copy_to_host(into, address)
        return destination

    def copy_on_device(self, destination: DeviceMemory, source: DeviceMemory, nbytes: int | None = None) -> None:
        """Copies within device memory: ``nbytes`` bytes, or all of ``source``. The ranges must not overlap."""
        to, room = span_of(destination, self._client)
        address, known = span_of(source, self._client)
        count = known if nbytes is None else _size(nbytes, "nbytes")
        if count is None:
            raise InvalidArgument("copy rejected: an address does not say how much to copy: pass nbytes")
        _require_room(count, room)
        _require_room(count, known)
        self._core.copy_on_device(to, address, count)

    def copy_to_device_2d(self, destination: DeviceMemory, source: Any, *, width_bytes: int, height: int,
                          destination_pitch_bytes: int, source_pitch_bytes: int) -> None:
        """Copies ``height`` rows of ``width_bytes`` to the device; each side has a pitch between the starts of rows."""
        self._core.copy_to_device_2d(span_of(destination, self._client)[0], bytes_of(source_array(source)),
                                     *_rows(width_bytes, height, destination_pitch_bytes, source_pitch_bytes))

    def copy_to_host_2d(self, source: DeviceMemory, destination: HostArray, *, width_bytes: int, height: int,
                        destination_pitch_bytes: int, source_pitch_bytes: int) -> HostArray:
        """Copies ``height`` rows of ``width_bytes`` to the host, and returns ``destination``.

        On either side, one pitch separates the starts of consecutive rows. Waits like ``copy_to_host``.
        """
        self._core.copy_to_host_2d(destination_bytes(destination), span_of(source, self._client)[0],
                                   *_rows(width_bytes, height, destination_pitch_bytes, source_pitch_bytes))
        return destination

    def copy_on_device_2d(self, destination: DeviceMemory, source: DeviceMemory, *, width_bytes: int, height: int,
                          destination_pitch_bytes: int, source_pitch_bytes: int) -> None:
        """Copies ``height`` rows of ``width_bytes`` in device memory; each side has a pitch between starts of rows."""
        self._core.copy_on_device_2d(span_of(destination, self._client)[0], span_of(source, self._client)[0],
                                     *_rows(width_bytes, height, destination_pitch_bytes, source_pitch_bytes))

    def fill(self, destination: DeviceMemory, value: Any, count: int | None = None) -> None:
        """Writes ``value`` ``count`` times, or to all of ``destination``.

        ``value`` is a NumPy scalar of 1, 2 or 4 bytes, or any number if ``destination`` is a
        DeviceBuffer of such elements.
        """
        address, nbytes = span_of(destination, self._client)
        bits, element_bytes = _element(value, destination)
        if count is None:
            if nbytes is None:
                raise InvalidArgument("fill rejected: an address does not say how much to fill: pass count")
            count = nbytes // element_bytes
        count = _size(count, "count")
        _require_room(count * element_bytes, nbytes)
        self._core.fill(address, bits, element_bytes, count)

    def fill_2d(self, destination: DeviceMemory, value: Any, *, width_elements: int, height: int,
                pitch_bytes: int) -> None:
        """As ``fill``, for ``height`` rows of ``width_elements``, with ``pitch_bytes`` between their starts."""
        bits, element_bytes = _element(value, destination)
        self._core.fill_2d(span_of(destination, self._client)[0], bits, element_bytes,
                           _size(width_elements, "width_elements"), _size(height, "height"),
                           _size(pitch_bytes, "pitch_bytes"))

    def record(self, event: Event) -> None:
        """Sets ``event`` to the end of the work that is queued on this stream now."""
        self._core.record(event._core)

    def wait(self, event: Event) -> None:
        """Makes later commands of this stream wait for the point at which ``event`` is set now."""
        self._core.wait(event._core)

    def request(self, age_s: float = 0.0) -> Request:
        """Marks a request of this program: ``with stream.request(): ...``.

        The client's ``latency_target_s`` applies to requests, and ``gpusharedctl explain`` explains them.
        ``age_s`` (at most one hour) is the time in seconds since the request arrived. The request ends
        when everything that the block queued on this stream has finished. Requests of one stream do
        not nest. At most 16 per client are open at a time. If 16 are open, beginning another one waits for
        one whose block has ended, and raises LimitExceeded if there is none.
        """
        return Request(self._core, nanoseconds(age_s, "age_s"))

    def synchronize(self) -> None:
        """Waits until everything queued so far has finished."""
        self._core.synchronize()

    def query(self) -> bool:
        """Returns whether everything queued so far has finished. Does not wait."""
        return self._core.query()


def _require_room(nbytes: int, room: int | None) -> None:
    if room is not None and nbytes > room:
        raise InvalidArgument(f"rejected: {nbytes} bytes are asked for, the device memory has {room}")


def _size(number: int, name: str) -> int:
    if not 0 <= number < 2**64:
        raise InvalidArgument(f"{name} is {number}, allowed: 0 to 2**64 - 1")
    return int(number)


def _rows(*sizes: int) -> tuple[int, int, int, int]:
    names = ("width_bytes", "height", "destination_pitch_bytes", "source_pitch_bytes")
    width, height, to, of = (_size(size, name) for size, name in zip(sizes, names))
    return width, height, to, of


def _empty_like(source: DeviceMemory) -> HostArray:
    if isinstance(source, DeviceBuffer):
        return np.empty(source.shape, source.dtype)
    interface = getattr(source, "__cuda_array_interface__", None)
    if interface is None:
        raise InvalidArgument("copy rejected: an address does not say how much to copy: pass a destination")
    return np.empty(tuple(interface["shape"]), np.dtype(interface["typestr"]))


def _element(value: Any, destination: DeviceMemory) -> tuple[int, int]:
    """Returns the bits of a fill value and its size in bytes."""
    if isinstance(value, np.generic):
        element = np.asarray(value)
    elif isinstance(destination, DeviceBuffer):
        element = np.asarray(value, destination.dtype)
    else:
        raise TypeError("fill takes a NumPy scalar such as numpy.float32(0) where the destination has no dtype")
    if element.ndim != 0 or element.nbytes not in _FILLED:
        raise InvalidArgument(f"fill rejected: a value of {element.nbytes} bytes, allowed: 1, 2 and 4")
    return int(element.reshape(1).view(_FILLED[element.nbytes])[0]), element.nbytes
