# SPDX-License-Identifier: Apache-2.0
"""The status codes of the library as exceptions. Each carries the message of the library."""

from __future__ import annotations

import enum


class StatusCode(enum.IntEnum):
    """Error category that programs can test. The numbers equal those of the C and C++ interfaces."""

    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    OUT_OF_MEMORY = 3
    LIMIT_EXCEEDED = 4
    PERMISSION_DENIED = 5
    UNAVAILABLE = 6
    VERSION_MISMATCH = 7
    DEVICE_LOST = 8
    DISCONNECTED = 9
    UNSUPPORTED = 10
    WRONG_PROCESS = 11
    KERNEL_FAULT = 12
    CANCELLED = 13
    NOT_READY = 14
    TIMED_OUT = 15
    PROTOCOL_VIOLATION = 16
    INTERNAL = 17


class FaultKind(enum.IntEnum):
    """Reason why a kernel was ended. The numbers are those of CUDA's CUresult."""

    NONE = 0
    ILLEGAL_ADDRESS = 700
    LAUNCH_TIMEOUT = 702
    ASSERT = 710
    HARDWARE_STACK_ERROR = 714
    ILLEGAL_INSTRUCTION = 715
    MISALIGNED_ADDRESS = 716
    INVALID_ADDRESS_SPACE = 717
    INVALID_PC = 718
    LAUNCH_FAILURE = 719


class Error(Exception):
    """Base class of all exceptions of this package.

    An error of the device is sticky: every later call on its stream raises it again.
    """

    code: StatusCode = StatusCode.INTERNAL


class InvalidArgument(Error, ValueError):
    """No server could accept this argument in any state."""

    code = StatusCode.INVALID_ARGUMENT


class NotFound(Error, LookupError):
    """The named kernel, variable, file or device does not exist."""

    code = StatusCode.NOT_FOUND


class OutOfMemory(Error, MemoryError):
    """Device memory, quota or staging memory is exhausted."""

    code = StatusCode.OUT_OF_MEMORY


class LimitExceeded(Error):
    """A limit that the message names has been reached."""

    code = StatusCode.LIMIT_EXCEEDED


class PermissionDenied(Error, PermissionError):
    """The access rules of the server do not allow the request."""

    code = StatusCode.PERMISSION_DENIED


class Unavailable(Error, ConnectionError):
    """No server answers, or the server is draining."""

    code = StatusCode.UNAVAILABLE


class VersionMismatch(Error):
    """Client library and server have different protocol versions."""

    code = StatusCode.VERSION_MISMATCH


class DeviceLost(Error, ConnectionError):
    """The worker process of the device has ended, and the session with it."""

    code = StatusCode.DEVICE_LOST


class Disconnected(Error, ConnectionError):
    """The session has ended; nothing more will run. The message says why."""

    code = StatusCode.DISCONNECTED


class Unsupported(Error):
    """This device does not support the operation."""

    code = StatusCode.UNSUPPORTED


class WrongProcess(Error):
    """A forked child used the client of its parent."""

    code = StatusCode.WRONG_PROCESS


class KernelFault(Error):
    """A kernel trapped, accessed foreign memory or ran too long; ``fault`` has the reason."""

    code = StatusCode.KERNEL_FAULT
    fault: FaultKind = FaultKind.NONE


class Cancelled(Error):
    """The command depends on work that has failed; it did not run."""

    code = StatusCode.CANCELLED


class NotReady(Error):
    """The work has not finished yet; the call did not wait."""

    code = StatusCode.NOT_READY


class TimedOut(Error, TimeoutError):
    """The wait reached its time limit."""

    code = StatusCode.TIMED_OUT


class ProtocolViolation(Error):
    """The server sent bytes that no correct server sends."""

    code = StatusCode.PROTOCOL_VIOLATION


class Internal(Error):
    """The system failed; the message says where."""

    code = StatusCode.INTERNAL


_BY_CODE: dict[StatusCode, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}


def error_of(code: int, message: str, fault: int = 0) -> Error:
    """Returns the exception for a failed status. Called by the extension."""
    error = _BY_CODE[StatusCode(code)](message)
    if isinstance(error, KernelFault):
        error.fault = FaultKind(fault)
    return error
