"""The steps of a variant, resolved for one case, and the record that replays them."""

from dataclasses import dataclass
from typing import Literal

from perfsvc.model.cases import Buffer, Case, Kind

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class BufferArg:
    """A kernel argument: the address of a buffer."""

    buffer: str
    kind: Literal["buffer"] = "buffer"


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A kernel argument by value; ``dtype`` is a NumPy dtype name (``int32``, ``float32``)."""

    name: str
    dtype: str
    value: int | float
    kind: Literal["scalar"] = "scalar"


@dataclass(frozen=True, slots=True)
class TensorMapArg:
    """A kernel argument: a ``CUtensorMap`` by value, by which the kernel fetches boxes of a buffer.

    The buffer is a row-major matrix of ``shape``, in elements of the type ``element``: the name of a NumPy dtype,
    ``bfloat16`` or ``tfloat32``. ``box`` is in elements too, rows before columns. ``swizzle`` is the span in bytes
    within which a box's pieces of 16 bytes change places in shared memory; 0 where they do not.
    """

    buffer: str
    element: str
    shape: tuple[int, int]
    box: tuple[int, int]
    swizzle: int = 0
    kind: Literal["tensor_map"] = "tensor_map"


Arg = BufferArg | ScalarArg | TensorMapArg


@dataclass(frozen=True, slots=True)
class Memset:
    """Fill a buffer with one byte value."""

    buffer: str
    byte: int = 0
    step: Literal["memset"] = "memset"


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch an entry of one of the case's modules; ``constants`` fill ``__constant__`` symbols from buffers."""

    module: int
    entry: str
    grid: Dim3
    block: Dim3
    args: tuple[Arg, ...]
    shared_bytes: int = 0
    constants: tuple[tuple[str, str], ...] = ()
    step: Literal["launch"] = "launch"


@dataclass(frozen=True, slots=True)
class HostFinish:
    """Reduce a buffer into a one-element buffer on the host, in float64 (exact integers for integer dtypes)."""

    operation: Literal["sum", "min", "max"]
    source: str
    target: str
    step: Literal["finish"] = "finish"


@dataclass(frozen=True, slots=True)
class Call:
    """Call a Python function of the benchmark file with the case's device arrays and a stream.

    It is given the binary of one of the case's modules as well where ``module`` counts to one. Where it is not
    ``timed`` it is run for the checks alone.
    """

    function: str
    module: int | None = None
    timed: bool = True
    step: Literal["call"] = "call"


@dataclass(frozen=True, slots=True)
class HostMetric:
    """Reduce a buffer to a metric of the measurement, on the host, in float64, and after the last sample."""

    name: str
    operation: Literal["sum", "min", "max", "mean"]
    buffer: str
    step: Literal["metric"] = "metric"


Step = Memset | Launch | HostFinish | HostMetric | Call


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """All that is needed, beside its modules and its benchmark file's text, to run a case again on a later night.

    ``modules`` and ``bench`` are SHA-256 hex digests: of the compiled binaries that ``Launch.module`` counts through,
    and of the benchmark file that made inputs and reference from ``seed`` (and holds the functions of ``Call``).
    """

    case: Case
    kind: Kind
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    modules: tuple[str, ...]
    bench: str
    seed: int
    format: int = 1
