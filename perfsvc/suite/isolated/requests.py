"""What perfsvc asks of the processes that run benchmark files, and what they answer, as JSON in frames."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfsvc.model import CacheState, Case, GraphTiming, Kind, Parts, Tolerance
from perfsvc.process.shared_memory import ArrayLayout
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.points import Point

Points = Literal["smoke", "full"]


@dataclass(frozen=True, slots=True)
class ListedCase:
    """A case of the suite that is not resolved yet.

    Attributes:
        points: whether the case is measured at a full point or at the smoke point.
        kind: the kind of its variant, which decides how the case is timed.
        caches: the cache states that it is measured in.
        requires: what its variant requires, in the author's words.
        bench: the path of its benchmark file.
        graph: how it uses a CUDA graph; empty if it uses none.
    """

    case: Case
    points: Points
    kind: Kind
    caches: tuple[CacheState, ...]
    requires: tuple[str, ...]
    bench: Path
    graph: GraphTiming = ""


@dataclass(frozen=True, slots=True)
class StoredBench:
    """A benchmark file of an earlier run, as the store has it.

    Attributes:
        name: the name of the benchmark.
        modules: names and texts of modules that the text imports; any other module is imported as it is today.
    """

    text: str
    name: str
    modules: tuple[tuple[str, str], ...] = ()


# --- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadBench:
    """Read and check a benchmark file, and list its cases."""

    path: Path
    message: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class ResolveCases:
    """Resolve cases of a benchmark file's text.

    Attributes:
        known_shapes: a folder that keeps the shapes of inputs, so that the inputs need not be made; None without one.
        all_gpus: how many GPUs ``gpus="all"`` means.
    """

    path: Path
    text: str
    cases: tuple[Case, ...]
    known_shapes: Path | None
    all_gpus: int
    message: Literal["resolve"] = "resolve"


@dataclass(frozen=True, slots=True)
class MakeArrays:
    """Make the inputs and the expected results of a case."""

    spec: CaseSpec
    known_shapes: Path | None
    message: Literal["arrays"] = "arrays"


@dataclass(frozen=True, slots=True)
class MakeFresh:
    """Make the fresh inputs of a case, and their expected results; a descriptor of the first arrays comes with it."""

    spec: CaseSpec
    first: ArrayLayout
    message: Literal["fresh"] = "fresh"


@dataclass(frozen=True, slots=True)
class ReplayArrays:
    """Make the inputs of a case of an earlier run, and unless ``inputs_only`` the expected results of its variant."""

    bench: StoredBench
    point: Point
    seed: int
    variant: str = ""
    inputs_only: bool = False
    message: Literal["replay"] = "replay"


@dataclass(frozen=True, slots=True)
class ReplayTolerance:
    """Return the tolerance of a benchmark of an earlier run at a point."""

    bench: StoredBench
    point: Point
    message: Literal["tolerance"] = "tolerance"


Body = ReadBench | ResolveCases | MakeArrays | MakeFresh | ReplayArrays | ReplayTolerance


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """A request of any kind, with what the process that runs the benchmark file takes over from perfsvc's own process.

    Attributes:
        folder: the working directory, in the form that ``frames.as_text`` returns; None if the directory was deleted.
        environment: the environment variables, in the same form.
        import_path: where Python looks for modules (``sys.path``), in the same form.
    """

    body: Body
    folder: str | None
    environment: Mapping[str, str]
    import_path: tuple[str, ...]


# --- replies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failed:
    """A ``SuiteError`` as its fields."""

    what: str
    path: str
    line: int
    cure: str
    message: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class BenchRead:
    """A benchmark file that was read: its text, its benchmark's name and line, its usable cases, and its problems."""

    path: Path
    text: str
    name: str
    line: int
    cases: tuple[ListedCase, ...]
    problems: tuple[Failed, ...]
    message: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class Specs:
    """The resolved cases, once for each cache state."""

    specs: tuple[CaseSpec, ...]
    message: Literal["specs"] = "specs"


@dataclass(frozen=True, slots=True)
class Made:
    """The layout of arrays; the descriptor of their memory comes with the message.

    ``made_from`` has the files and variables from which they were made, with digests or values.
    """

    layout: ArrayLayout
    made_from: Parts = ()
    message: Literal["made"] = "made"


@dataclass(frozen=True, slots=True)
class ToleranceFound:
    """A tolerance."""

    tolerance: Tolerance
    message: Literal["tolerance"] = "tolerance"


@dataclass(frozen=True, slots=True)
class BenchReply:
    """Any reply."""

    body: BenchRead | Specs | Made | ToleranceFound | Failed
