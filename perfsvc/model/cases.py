"""What is timed: cases, the work they do, the arrays and sources they are made of."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

Value = int | float | str


class Kind(StrEnum):
    """How a variant is timed."""

    KERNEL = "kernel"  # one stream, timed launch by launch by the device
    PIPELINE = "pipeline"  # its own streams, timed end to end by the host
    HOST = "host"  # returns its own metrics


class Role(StrEnum):
    """What a buffer is to a case."""

    INPUT = "input"  # uploaded, must not change
    OUTPUT = "output"  # poisoned before the check, compared with the reference after it
    INOUT = "inout"  # uploaded and compared
    SCRATCH = "scratch"  # poisoned, never compared


class CacheState(StrEnum):
    """The state of the L2 cache before each sample."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A benchmark's variant at one point of its axes: the thing timed.

    ``version`` breaks history on purpose and is no part of the id; ``formerly`` are the variant's earlier names.
    """

    benchmark: str
    variant: str
    point: tuple[tuple[str, Value], ...] = ()
    version: int = 1
    formerly: tuple[str, ...] = field(default=(), compare=False)

    @property
    def id(self) -> str:
        """``transpose/tiled-TILE32-PAD1[n=4096]``."""
        return f"{self.benchmark}/{self.variant}" + (f"[{self.point_text}]" if self.point else "")

    @property
    def point_text(self) -> str:
        """``n=4096,dtype=f32``."""
        return ",".join(f"{axis}={value}" for axis, value in self.point)

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class Work:
    """What one launch has to do, by the problem and not by the implementation."""

    read_bytes: int = 0
    written_bytes: int = 0
    flops: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest error a right result may have: |out - ref| / max(|ref|, rms(ref)), maximum and mean."""

    max: float
    mean: float


@dataclass(frozen=True, slots=True)
class Error:
    """The error of a result: |out - ref| / max(|ref|, rms(ref)), its maximum and its mean."""

    max: float
    mean: float


@dataclass(frozen=True, slots=True)
class Array:
    """An array by its name, NumPy dtype name and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory that a case needs."""

    array: Array
    role: Role


@dataclass(frozen=True, slots=True)
class Unit:
    """One compilation: a source file with the ``-D`` parameters and options it is compiled with.

    Two cases with equal units share one binary file.
    """

    source: Path
    entries: tuple[str, ...]
    defines: tuple[tuple[str, Value], ...] = ()
    options: tuple[str, ...] = ()
