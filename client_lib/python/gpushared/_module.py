# SPDX-License-Identifier: Apache-2.0
"""Loaded modules, their kernels and variables."""

from __future__ import annotations

import dataclasses

from . import _core


@dataclasses.dataclass(frozen=True)
class KernelAttributes:
    """Properties of a kernel that launches need not consider."""

    registers: int  #: 32-bit registers per thread.
    local_bytes: int  #: Per thread.
    constant_bytes: int  #: In constant variables of its module.
    dynamic_shared_bytes_max: int  #: Per block, in one launch.
    ptx_version: int  #: Target of the PTX: 80 for sm_80; 0 if unknown.
    binary_version: int  #: Architecture of the machine code that runs.


@dataclasses.dataclass(frozen=True)
class ModuleVariable:
    """Variable of a module in device memory. Initialized by the module; lives as long as the module."""

    name: str
    address: int
    nbytes: int
    is_constant: bool


class Kernel:
    """Kernel of a loaded module. Keeps the module loaded. Thread-safe."""

    __slots__ = ("_core",)

    def __init__(self, core: _core.Kernel) -> None:
        self._core = core

    @property
    def name(self) -> str:
        """The name in the PTX."""
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
        """Static shared memory per block, in bytes."""
        return self._core.static_shared_bytes

    @property
    def threads_per_block_max(self) -> int:
        """The largest number of threads per block."""
        return self._core.threads_per_block_max

    @property
    def attributes(self) -> KernelAttributes:
        """Registers, memory and versions."""
        return KernelAttributes(**self._core.attributes)

    @property
    def unsupported(self) -> str:
        """Why this device rejects launches, with lines of the PTX; empty if the kernel can run."""
        return self._core.unsupported

    def __repr__(self) -> str:
        return f"<gpushared.Kernel {self.name}>"


class Module:
    """Loaded PTX module or fatbin.

    Created by ``Client.load_module``. Unloaded once its last Module and Kernel object has been destroyed
    and every command submitted before has finished. Thread-safe.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Module) -> None:
        self._core = core

    def __getitem__(self, name: str) -> Kernel:
        """Returns the kernel with this name. Raises NotFound with the names of the kernels that exist."""
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
        """Returns the variable with this name. Raises NotFound."""
        return ModuleVariable(**self._core.variable(name))
