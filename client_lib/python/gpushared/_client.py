# SPDX-License-Identifier: Apache-2.0
"""Sessions with the server."""

from __future__ import annotations

import dataclasses
import os
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _core
from ._errors import InvalidArgument
from ._host import HostArray, Shape, nanoseconds, nbytes_of, shape_of, source_array, type_of
from ._memory import DeviceBuffer
from ._module import Module
from ._stream import Event, Stream

_CLASSES = ("high", "normal", "low")  # By their number.
_CONTROL_TIMEOUT_S = 30.0


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """What a device is and allows."""

    name: str
    id: str  #: ``cpu:0``, as ``connect`` takes it.
    kind: str  #: ``cpu`` or ``cuda``.
    memory_bytes: int  #: Of the whole device; see MemoryInfo for this client's quota.
    multiprocessors: int
    threads_per_block_max: int
    block_max: tuple[int, int, int]  #: Threads along x, y, z.
    grid_max: tuple[int, int, int]  #: Blocks along x, y, z.
    shared_bytes_per_block_max: int
    uuid: bytes  #: 16 bytes; all zero where the device has none.
    attributes: dict[int, int]  #: By their number in CUDA's CUdevice_attribute.


@dataclasses.dataclass(frozen=True)
class MemoryInfo:
    """This client's device memory, in bytes."""

    total_bytes: int  #: Its quota.
    mapped_bytes: int  #: Taken from the device for it so far.
    used_bytes: int  #: In live buffers, and freed ones that commands still use.
    guaranteed_bytes: int  #: Of the quota: there at any time. What is beyond may be moved to host memory.
    resident_bytes: int  #: Of what is mapped: on the device.
    wanted_bytes: int  #: Of what is resident: others wait for it.


class Client:
    """One program's session with the server, on one device.

    ``connect`` makes them. As a context manager it is closed at the end of the block. What it made
    keeps the session alive, and after ``close`` answers with Disconnected.

    Any thread may use it. Calls that may wait let other threads of Python run. A forked child must
    connect anew: calls on its parent's client raise WrongProcess.
    """

    __slots__ = ("_core", "__weakref__")

    def __init__(self, core: _core.Client) -> None:
        self._core = core

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 where: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session now: queued commands are dropped, and its device memory is gone.

        It also wakes threads that wait. Arrays of ``allocate_host`` can still be used, but lose their contents.
        """
        self._core.close()

    def check(self) -> None:
        """Raises why the session ended, if it has. Does not wait."""
        self._core.check()

    @property
    def device(self) -> DeviceProperties:
        """The device of this session."""
        return DeviceProperties(**self._core.device)

    @property
    def session_id(self) -> int:
        """Its number in ``gpusharedctl``."""
        return self._core.session_id

    @property
    def memory_info(self) -> MemoryInfo:
        """Quota and use of device memory."""
        return MemoryInfo(*self._core.memory_info())

    def trim_device(self) -> int:
        """Gives unused memory at the end of what is mapped back to the device; how many bytes."""
        return self._core.trim_device()

    def load_module(self, image: str | Any) -> Module:
        """Loads PTX text, or the bytes of PTX or of a fatbin.

        A round trip with compilation on the server's side, at worst seconds. Raises
        InvalidArgument, with line and column, when it does not parse.
        """
        return Module(self._core.load_module(image.encode() if isinstance(image, str) else image))

    def load_module_file(self, path: str | os.PathLike[str]) -> Module:
        """Reads the file and loads it; NotFound when it cannot be read."""
        return Module(self._core.load_module_file(os.fspath(path)))

    def allocate(self, shape: Shape, dtype: npt.DTypeLike = np.uint8) -> DeviceBuffer:
        """Device memory for an array of this shape and type: at least one byte.

        Raises OutOfMemory when quota or device are used up; the message has both sizes.
        """
        extents, element = shape_of(shape), type_of(dtype)
        nbytes = nbytes_of(extents, element)
        if nbytes >= 2**64:
            raise InvalidArgument(f"allocation rejected: an array of shape {extents} and {element} has {nbytes} bytes")
        return DeviceBuffer(self._core.allocate_device(nbytes), self._core, extents, element)

    def to_device(self, source: Any, stream: Stream | None = None) -> DeviceBuffer:
        """Allocates device memory and copies an array of host memory there, on the default stream if none is given.

        ``source`` and waiting are those of ``Stream.copy_to_device``.
        """
        array = source_array(source)
        made = self.allocate(array.shape, array.dtype)
        (stream or self.default_stream).copy_to_device(made, array)
        return made

    def allocate_host(self, shape: Shape, dtype: npt.DTypeLike = np.uint8) -> HostArray:
        """A NumPy array in memory that the server shares: copies from and to it need no further copy, and do not wait.

        Its contents are undefined at first. It must not be touched while an unfinished copy uses it.
        The memory is given back with the last reference to it or to a view of it. A forked child
        does not have this memory, and must not touch the array.
        """
        extents, element = shape_of(shape), type_of(dtype)
        nbytes = nbytes_of(extents, element)
        if nbytes >= 2**64:
            raise InvalidArgument(f"allocation rejected: an array of shape {extents} and {element} has {nbytes} bytes")
        array: HostArray = self._core.allocate_host(nbytes).array()
        return array.view(element).reshape(extents)

    def create_stream(self) -> Stream:
        """A further stream. LimitExceeded when 255 exist besides the default one."""
        return Stream(self._core.create_stream(), self._core)

    @property
    def default_stream(self) -> Stream:
        """The stream that exists from the start. It does not wait for others, nor they for it."""
        return Stream(self._core.default_stream(), self._core)

    def create_event(self, timing: bool = False) -> Event:
        """A point to record in streams; with ``timing``, for ``Event.elapsed_s``."""
        return Event(self._core.create_event(timing))

    def expect_request_in(self, in_s: float) -> None:
        """A hint: the next request will begin in about this many seconds, at most an hour."""
        self._core.expect_request_in(nanoseconds(in_s, "in_s"))

    def synchronize(self) -> None:
        """Waits until everything queued so far on all streams has finished. Raises the first error found."""
        self._core.synchronize()

    def take_printed(self) -> str:
        """What kernels printed and no call has taken, oldest first.

        Needs ``takes_printed`` (else InvalidArgument). Holds the text of all commands whose end some call has seen.
        At most 1 MiB is kept between two calls; a last line says how much was lost. Bytes that are no UTF-8 are
        escaped.
        """
        return self._core.take_printed().decode(errors="backslashreplace")

    def __repr__(self) -> str:
        return f"<gpushared.Client {self.session_id} on {self._core.device['id']}>"


def connect(*, name: str = "", scheduling_class: Literal["high", "normal", "low"] | None = None,
            weight: int | None = None, memory_bytes: int | None = None, latency_target_s: float | None = None,
            device: str = "", socket: str | os.PathLike[str] = "", takes_printed: bool = False,
            spin_s: float | None = None, control_timeout_s: float = _CONTROL_TIMEOUT_S) -> Client:
    """Connects to the server and joins a device.

    What is not given is what the environment says: GPUSHARED_NAME, _CLASS, _WEIGHT, _PROMISE, _MEMORY, _DEVICE and
    _SOCKET, then variables of CUDA and MPS. What nobody says, the server decides.

    name: For people; at most 63 bytes. Else the name of the program.
    scheduling_class: ``high`` is served first, ``low`` fills the gaps.
    weight: Share inside the class, 1 to 1000.
    memory_bytes: Device memory that this client may hold at most.
    latency_target_s: Seconds in which this client wants a request served: what lies in the block of
        ``Stream.request``, or, while it has marked none, what it submits between two moments at which everything is
        finished.
    device: ``cpu:0``, ...
    socket: Path of the server's Unix socket.
    takes_printed: Keep what kernels print for ``Client.take_printed``.
    spin_s: How long a call that waits spins before it sleeps.
    control_timeout_s: How long this and other round trips wait for an answer.

    Raises Unavailable when no server answers, VersionMismatch, PermissionDenied, NotFound (device), LimitExceeded,
    OutOfMemory, InvalidArgument or TimedOut.
    """
    if scheduling_class is not None and scheduling_class not in _CLASSES:
        raise InvalidArgument(f"scheduling_class is {scheduling_class!r}, allowed are high, normal and low")
    for number, called, below in ((weight, "weight", 2**32), (memory_bytes, "memory_bytes", 2**64)):
        if number is not None and not 0 <= number < below:
            raise InvalidArgument(f"{called} is {number}, which no server allows")
    return Client(_core.connect(
        name=name, scheduling_class=None if scheduling_class is None else _CLASSES.index(scheduling_class),
        weight=weight, memory_bytes=memory_bytes,
        latency_target_ns=None if latency_target_s is None else nanoseconds(latency_target_s, "latency_target_s"),
        device=device, socket=os.fspath(socket), takes_printed=takes_printed,
        spin_ns=None if spin_s is None else nanoseconds(spin_s, "spin_s"),
        control_timeout_ns=nanoseconds(control_timeout_s, "control_timeout_s")))


def list_devices(*, socket: str | os.PathLike[str] = "",
                 control_timeout_s: float = _CONTROL_TIMEOUT_S) -> list[DeviceProperties]:
    """The server's devices, in its order, without joining any. Waits while the server starts.

    Raises Unavailable, VersionMismatch, InvalidArgument or TimedOut.
    """
    found = _core.list_devices(os.fspath(socket), nanoseconds(control_timeout_s, "control_timeout_s"))
    return [DeviceProperties(**device) for device in found]
