"""What is timed: cases, the work they do, and the arrays and sources they need."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

Value = int | float | str
"""The value of an axis or of a ``-D`` parameter."""


class Kind(StrEnum):
    """How a variant is timed."""

    KERNEL = "kernel"  # one stream, timed launch by launch on the device
    PIPELINE = "pipeline"  # its own streams, timed end to end on the host
    HOST = "host"  # measures itself and returns its own metrics
    PROGRAM = "program"  # an executable that measures itself and prints its times


class Role(StrEnum):
    """How a case uses a buffer."""

    INPUT = "input"  # uploaded; must not change
    OUTPUT = "output"  # poisoned before the check, then compared with the reference
    INOUT = "inout"  # uploaded and compared
    SCRATCH = "scratch"  # poisoned, never compared


class CacheState(StrEnum):
    """The state of the L2 cache before each sample."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A variant of a benchmark at one point of its axes: the unit that is timed.

    Raising ``version`` breaks the history on purpose; the version is not part of the id. ``formerly`` lists the
    variant's earlier names.
    """

    benchmark: str
    variant: str
    point: tuple[tuple[str, Value], ...] = ()
    version: int = 1
    formerly: tuple[str, ...] = field(default=(), compare=False)

    @property
    def id(self) -> str:
        """The id that people read and type: ``transpose/tiled-TILE32-PAD1[n=4096]``."""
        return f"{self.benchmark}/{self.variant}" + (f"[{self.point_text}]" if self.point else "")

    @property
    def point_text(self) -> str:
        """The point as text: ``n=4096,dtype=f32``."""
        return ",".join([f"{axis}={value}" for axis, value in self.point])

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one launch as the problem defines it, independent of the implementation.

    Attributes:
        precision: of the operations: ``fp64``, ``fp32``, ``tf32``, ``bf16``, ``fp16`` or ``fp8``. An author may leave
            it out; then it is that of the inputs. Empty if the inputs have no floats.
        link_bytes: bytes that the problem moves over the busiest link between two GPUs, in one direction.
    """

    read_bytes: int = 0
    written_bytes: int = 0
    flops: int = 0
    precision: str = ""
    link_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest error that a correct result may have, as maximum and mean of |out - ref| / max(|ref|, rms(ref))."""

    max: float
    mean: float


@dataclass(frozen=True, slots=True)
class Error:
    """The error of a result: maximum and mean of |out - ref| / max(|ref|, rms(ref))."""

    max: float
    mean: float


@dataclass(frozen=True, slots=True)
class Array:
    """An array: its name, NumPy dtype name and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What the buffer of one GPU holds of an array of the benchmark: all of it, or the rows ``start`` to ``stop``.

    The first axis counts the rows; ``stop`` is 0 for the whole array.
    """

    array: str
    start: int = 0
    stop: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory that a case needs.

    Attributes:
        gpu: the position of the GPU that has the memory, in a case on several GPUs.
        part: what the buffer holds in a case on several GPUs; its array is then called ``x@1`` on GPU 1. None if it is
            the array of the benchmark itself.
    """

    array: Array
    role: Role
    gpu: int = 0
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One compilation: a source file with its ``-D`` parameters and compiler options.

    Cases with equal units share one binary.

    Attributes:
        entries: the kernels that cases launch, as their authors name them (``perfsvc.entries``).
        libraries: None unless the unit becomes a shared object that runs on the host; then the libraries that the
            shared object uses, such as ``cublas``.
        others: further source files, which are linked to the same binary.
    """

    source: Path
    entries: tuple[str, ...]
    defines: tuple[tuple[str, Value], ...] = ()
    options: tuple[str, ...] = ()
    libraries: tuple[str, ...] | None = None
    others: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A file that a program needs: its executable, or another file that it reads.

    Attributes:
        path: the absolute path of the file.
        folder: the folder of the benchmark file, in which ``build`` runs.
        build: the shell command that makes the file; empty if the file is there already.
        executable: whether the file is the program itself.
    """

    path: Path
    folder: Path
    build: str = ""
    executable: bool = False
