"""What every compiler of ours can do: turn a unit into a binary for one target."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from perfsvc.model import Unit


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled unit: its bytes, their SHA-256 digest, and whether the cache had it.

    ``sources`` are the very texts it was compiled from: the unit's source and what it includes of the user's files, by
    their names relative to the source's folder (``../shared/tile.cuh``).
    """

    code: bytes
    digest: str
    cached: bool
    seconds: float
    sources: Mapping[str, bytes] = field(default_factory=dict)


class Toolchain(Protocol):
    """A compiler for one target."""

    @property
    def target(self) -> str:
        """What it builds for: ``sm_90``, ``cpu-x86_64``, ``fake``."""
        ...

    @property
    def version(self) -> str:
        """Name and version of the compiler, as runs record it: ``nvcc 13.0.88``."""
        ...

    @property
    def preprocesses(self) -> bool:
        """Whether ``preimage`` runs the compiler: it is then worth asking for in parallel."""
        ...

    def preimage(self, unit: Unit, files: Mapping[str, bytes]) -> bytes:
        """Everything that decides the binary: the source and its includes, parameters, options, target, version.

        Holds no path of this machine. ``files`` are the unit's ``sources.local_files``. Raises ``CompileError`` where
        the compiler reads them again and they are others by now, or cannot preprocess them; or where options are in a
        file.
        """
        ...

    def compile(self, unit: Unit) -> bytes:
        """Compiles one unit.

        Raises ``CompileError`` with the compiler's message, or ``UnsupportedError`` where the target cannot run it.
        """
        ...
