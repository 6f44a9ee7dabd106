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

_CLASSES = ("high", "normal", "low")  # The index is the number of the class.
_CONTROL_TIMEOUT_S = 30.0


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """Properties and limits of a device."""

    name: str
    id: str  #: Such as ``cpu:0``; valid as ``device`` of ``connect``.
    kind: str  #: ``cpu`` or ``cuda``.
    memory_bytes: int  #: Memory of the whole device; see MemoryInfo for this client's quota.
    multiprocessors: int
    threads_per_block_max: int
    block_max: tuple[int, int, int]  #: Threads along x, y, z.
    grid_max: tuple[int, int, int]  #: Blocks along x, y, z.
    shared_bytes_per_block_max: int
    uuid: bytes  #: 16 bytes; all zero if the device has none.
    attributes: dict[int, int]  #: Keys are the numbers of CUDA's CUdevice_attribute.


@dataclasses.dataclass(frozen=True)
class MemoryInfo:
    """This client's device memory, in bytes."""

    total_bytes: int  #: Quota of this client.
    mapped_bytes: int  #: Mapped for this client so far.
    used_bytes: int  #: Bytes in live buffers, and in freed buffers that commands still use.
    guaranteed_bytes: int  #: The part of the quota that is always available; memory beyond it may be swapped out.
    resident_bytes: int  #: The part of mapped_bytes that is on the device.
    wanted_bytes: int  #: The part of resident_bytes that other clients wait for.


class Client:
    """Session of one program with the server, on one device.

    Created by ``connect``. As a context manager it is closed at the end of the block. Objects that a
    client has created keep its session alive; after ``close`` they raise Disconnected.

    Thread-safe. Calls that may wait release the GIL. A forked child must open a session of its own,
    because calls on the client of its parent raise WrongProcess.
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
        """Ends the session now: queued commands are dropped, and its device memory is lost.

        Wakes waiting threads. Arrays of ``allocate_host`` can still be accessed but lose their contents.
        """
        self._core.close()

    def check(self) -> None:
        """Raises the reason if the session has ended. Does not wait."""
        self._core.check()

    @property
    def device(self) -> DeviceProperties:
        """The device of this session."""
        return DeviceProperties(**self._core.device)

    @property
    def session_id(self) -> int:
        """The number of the session, as ``gpusharedctl`` shows it."""
        return self._core.session_id

    @property
    def memory_info(self) -> MemoryInfo:
        """Quota and use of device memory."""
        return MemoryInfo(*self._core.memory_info())

    def trim_device(self) -> int:
        """Releases unused memory at the end of the mapped range to the device. Returns how many bytes were released."""
        return self._core.trim_device()

    def load_module(self, image: str | Any) -> Module:
        """Loads PTX text, or the bytes of PTX or of a fatbin.

        A round trip in which the server compiles the module, which can take seconds. Raises
        InvalidArgument, with line and column, if the PTX does not parse.
        """
        return Module(self._core.load_module(image.encode() if isinstance(image, str) else image))

    def load_module_file(self, path: str | os.PathLike[str]) -> Module:
        """Reads the file and loads it. Raises NotFound if it cannot be read."""
        return Module(self._core.load_module_file(os.fspath(path)))

    def allocate(self, shape: Shape, dtype: npt.DTypeLike = np.uint8) -> DeviceBuffer:
        """Allocates device memory for an array of this shape and type, at least one byte.

        Raises OutOfMemory if the quota or the device is exhausted; the message has both sizes.
        """
        extents, element = shape_of(shape), type_of(dtype)
        nbytes = nbytes_of(extents, element)
        if nbytes >= 2**64:
            raise InvalidArgument(f"allocation rejected: an array of shape {extents} and {element} has {nbytes} bytes")
        return DeviceBuffer(self._core.allocate_device(nbytes), self._core, extents, element)

    def to_device(self, source: Any, stream: Stream | None = None) -> DeviceBuffer:
        """Allocates device memory and copies an array of host memory there, on the default stream if none is given.

        Accepts the same sources as ``Stream.copy_to_device``, and waits in the same way.
        """
        array = source_array(source)
        made = self.allocate(array.shape, array.dtype)
        (stream or self.default_stream).copy_to_device(made, array)
        return made

    def allocate_host(self, shape: Shape, dtype: npt.DTypeLike = np.uint8) -> HostArray:
        """Allocates a NumPy array in memory shared with the server, so that copies need no staging and do not wait.

        The initial contents are undefined. The array must not be accessed while an unfinished copy uses it.
        The memory is freed with the last reference to the array or to a view of it. A forked child must not
        access the array, because the memory is not mapped there.
        """
        extents, element = shape_of(shape), type_of(dtype)
        nbytes = nbytes_of(extents, element)
        if nbytes >= 2**64:
            raise InvalidArgument(f"allocation rejected: an array of shape {extents} and {element} has {nbytes} bytes")
        array: HostArray = self._core.allocate_host(nbytes).array()
        return array.view(element).reshape(extents)

    def create_stream(self) -> Stream:
        """Creates a stream. Raises LimitExceeded if 255 streams exist besides the default one."""
        return Stream(self._core.create_stream(), self._core)

    @property
    def default_stream(self) -> Stream:
        """The default stream, which exists from the beginning. It does not synchronize with other streams."""
        return Stream(self._core.default_stream(), self._core)

    def create_event(self, timing: bool = False) -> Event:
        """Creates an event to record in streams. ``Event.elapsed_s`` requires ``timing``."""
        return Event(self._core.create_event(timing))

    def expect_request_in(self, in_s: float) -> None:
        """Announces that the next request will begin in about this many seconds, at most one hour."""
        self._core.expect_request_in(nanoseconds(in_s, "in_s"))

    def synchronize(self) -> None:
        """Waits until everything queued so far on all streams has finished. Raises the error of a failed stream."""
        self._core.synchronize()

    def take_printed(self) -> str:
        """Returns the text that kernels have printed since the last call, oldest first.

        Raises InvalidArgument unless ``takes_printed`` was set. Includes the text of all commands whose end a call has
        observed. The server keeps at most 1 MiB between two calls; a last line states how much was lost. Bytes that
        are not valid UTF-8 are escaped.
        """
        return self._core.take_printed().decode(errors="backslashreplace")

    def __repr__(self) -> str:
        return f"<gpushared.Client {self.session_id} on {self._core.device['id']}>"


def connect(*, name: str = "", scheduling_class: Literal["high", "normal", "low"] | None = None,
            weight: int | None = None, memory_bytes: int | None = None, latency_target_s: float | None = None,
            device: str = "", socket: str | os.PathLike[str] = "", takes_printed: bool = False,
            spin_s: float | None = None, control_timeout_s: float = _CONTROL_TIMEOUT_S) -> Client:
    """Opens a session on a device.

    Options that are not given come from the environment: GPUSHARED_NAME, _CLASS, _WEIGHT, _MAX_SHARE, _LATENCY_TARGET,
    _MEMORY, _DEVICE, _SOCKET and _INTERRUPT, then variables of CUDA and MPS. If an option is set nowhere, the server
    chooses.

    name: Human-readable name, at most 63 bytes. Default: the name of the program.
    scheduling_class: ``high`` is served first; ``low`` uses the device time that the others leave idle.
    weight: Weight within the class, 1 to 1000.
    memory_bytes: Upper limit on the device memory of this client.
    latency_target_s: Latency target of a request, in seconds. A request is the block of ``Stream.request``. If a
        client marks no requests, each burst of work counts as one: it begins when the client, having no unfinished
        commands, submits one, and ends when all its commands have finished.
    device: Such as ``cpu:0``.
    socket: Path of the server's Unix socket.
    takes_printed: Keeps the text that kernels print until ``Client.take_printed`` fetches it.
    spin_s: How long a waiting call spins before it sleeps.
    control_timeout_s: How long this and other round trips wait for an answer.

    Raises Unavailable if no server answers, VersionMismatch, PermissionDenied, NotFound (device), LimitExceeded,
    OutOfMemory, InvalidArgument or TimedOut.
    """
    if scheduling_class is not None and scheduling_class not in _CLASSES:
        raise InvalidArgument(f"scheduling_class is {scheduling_class!r}, allowed: high, normal and low")
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
    """Returns the devices of the server, in its order, without a session. Waits if the server is still starting.

    Raises Unavailable, VersionMismatch, InvalidArgument or TimedOut.
    """
    found = _core.list_devices(os.fspath(socket), nanoseconds(control_timeout_s, "control_timeout_s"))
    return [DeviceProperties(**device) for device in found]
