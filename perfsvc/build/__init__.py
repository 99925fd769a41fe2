"""Compile units into binaries, for a GPU, the CPU device or the fake device."""

from pathlib import Path

from perfsvc.build.cache import Cache, default_folder, private_folder
from perfsvc.build.compile import compile_all
from perfsvc.build.program_files import MOST_PROGRAM_BYTES, read_programs
from perfsvc.build.toolchain import Binary, Toolchain
from perfsvc.errors import UsageError


def known_shapes() -> Path:
    """Return the folder in the build cache for the known shapes of input arrays, after making it if it is missing.

    Raises:
        InfrastructureError: the folder cannot be made, or a user other than root and the current user may change it.
    """
    return private_folder(private_folder(default_folder()) / "shapes")


def toolchain_for(target: str) -> Toolchain:
    """Return the compiler for a device's target: ``sm_*``, ``cpu-*`` or ``fake``.

    Raises ``UsageError`` for any other target, and ``NoCompilerError`` if this machine has no such compiler.
    """
    if target.startswith("sm_"):
        from perfsvc.build.nvcc import NvccToolchain

        return NvccToolchain(target)
    if target.startswith("cpu-"):
        from perfsvc.build.cpu.host import HostToolchain

        return HostToolchain()
    if target == "fake":
        from perfsvc.build.toolchain import FakeToolchain

        return FakeToolchain()
    raise UsageError(f"nothing can be built for {target!r}", cure="use a target such as sm_90, cpu-x86_64 or fake")
