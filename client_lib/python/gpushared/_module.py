# SPDX-License-Identifier: Apache-2.0
"""Loaded modules, their kernels and variables."""

from __future__ import annotations

import dataclasses

from . import _core


@dataclasses.dataclass(frozen=True)
class KernelAttributes:
    """Facts about a kernel that no launch depends on."""

    registers: int  #: Per thread, of 32 bits each.
    local_bytes: int  #: Per thread.
    constant_bytes: int  #: Of constant variables of its module.
    dynamic_shared_bytes_max: int  #: Per block, of a launch.
    ptx_version: int  #: Architecture of its text: 80 for sm_80; 0: unknown.
    binary_version: int  #: Architecture of the code that runs.


@dataclasses.dataclass(frozen=True)
class ModuleVariable:
    """A variable of a module in device memory. It begins as the module says, and ends with it."""

    name: str
    address: int
    nbytes: int
    is_constant: bool


class Kernel:
    """A kernel of a loaded module, which it keeps loaded. Any thread may use it."""

    __slots__ = ("_core",)

    def __init__(self, core: _core.Kernel) -> None:
        self._core = core

    @property
    def name(self) -> str:
        """Its name in the PTX."""
        return self._core.name

    @property
    def parameters(self) -> list[tuple[int, int]]:
        """Offset in the argument buffer and size of each parameter, in bytes."""
        return self._core.parameters

    @property
    def parameter_bytes(self) -> int:
        """Size of the argument buffer."""
        return self._core.parameter_bytes

    @property
    def static_shared_bytes(self) -> int:
        """Shared memory of its own, per block."""
        return self._core.static_shared_bytes

    @property
    def threads_per_block_max(self) -> int:
        """Threads that a block of this kernel may have."""
        return self._core.threads_per_block_max

    @property
    def attributes(self) -> KernelAttributes:
        """Registers, bytes and versions."""
        return KernelAttributes(**self._core.attributes)

    @property
    def unsupported(self) -> str:
        """Why this device rejects to launch it, with PTX lines; empty when it runs."""
        return self._core.unsupported

    def __repr__(self) -> str:
        return f"<gpushared.Kernel {self.name}>"


class Module:
    """A loaded PTX module or fatbin.

    ``Client.load_module`` makes them. It is unloaded when the last Module and Kernel is gone and
    every command submitted before that has finished. Any thread may use it.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Module) -> None:
        self._core = core

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of this name. Raises NotFound, naming the kernels that exist."""
        return Kernel(self._core.kernel(name))

    @property
    def kernels(self) -> list[Kernel]:
        """All kernels, in the order of the module."""
        return [Kernel(core) for core in self._core.kernels()]

    @property
    def variables(self) -> list[ModuleVariable]:
        """The variables that the module's PTX declares, in its order."""
        return [ModuleVariable(**variable) for variable in self._core.variables()]

    def variable(self, name: str) -> ModuleVariable:
        """The variable of this name. Raises NotFound."""
        return ModuleVariable(**self._core.variable(name))
