"""A case with everything that building and running it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsvc.model import (
    Buffer,
    CacheState,
    Case,
    GraphTiming,
    Kind,
    ProgramFile,
    ReplayRecord,
    Step,
    Tolerance,
    Unit,
    Work,
    digest,
)


def arrays_key(bench_text: str, seed: int, reference: int = 0) -> str:
    """Return a key of the arrays that a benchmark file makes from a point's seed with one of its references."""
    return digest(f"{seed}{f' {reference}' * bool(reference)}\n{bench_text}".encode())


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """A case in one cache state, with every function of the benchmark file evaluated.

    Attributes:
        requires: the author's words (``sm_90``, ``n % 4 == 0``).
        units: the units to compile, each once; ``Launch.module`` is an index into them.
        buffers: the buffers that the steps use.
        bench: the path of the benchmark file.
        bench_text: the text of the file when it was read. Inputs, reference and Python steps come from this text, even
            if the file changes later.
        seed: the seed of the inputs.
        reference: a number that is equal for variants with the same reference; 0 for the benchmark's own reference.
        variant_index: the variant's position in its benchmark.
        relative_to: the full name of the variant with which this variant is compared; empty if there is none.
        files: the files of a program, in the order of ``RunProgram.files``.
        graph: how the case uses a CUDA graph; empty if it uses none.
        gpus: how many GPUs of one model the case needs.
        all_gpus: whether it uses all GPUs of a model, so that ``gpus`` depends on the machine.
    """

    case: Case
    kind: Kind
    cache: CacheState
    requires: tuple[str, ...]
    units: tuple[Unit, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    work: Work
    tolerance: Tolerance
    bench: Path
    bench_text: str
    seed: int
    reference: int = 0
    variant_index: int = 0
    relative_to: str = ""
    files: tuple[ProgramFile, ...] = ()
    graph: GraphTiming = ""
    gpus: int = 1
    all_gpus: bool = False

    @property
    def parts(self) -> tuple[Unit | ProgramFile, ...]:
        """Everything that becomes a module of the case, in the order of the modules."""
        return (*self.units, *self.files)

    @property
    def inputs(self) -> str:
        """A key that is equal for cases with the same inputs."""
        return arrays_key(self.bench_text, self.seed)

    @property
    def arrays(self) -> str:
        """A key that is equal for cases with the same inputs and the same expected results."""
        return arrays_key(self.bench_text, self.seed, self.reference)

    def record(self, modules: Sequence[str], bench_digest: str) -> ReplayRecord:
        """Return what is stored so that the case can be run again later.

        Args:
            modules: SHA-256 digests of the binaries and files, in the order of ``parts``.
            bench_digest: SHA-256 digest of the benchmark file's text.

        Raises:
            ValueError: the number of modules differs from the number of parts.
        """
        if len(modules) != len(self.parts):
            raise ValueError(f"{self.case}: {len(self.parts)} parts, but {len(modules)} modules")
        return ReplayRecord(
            case=self.case,
            kind=self.kind,
            buffers=self.buffers,
            steps=self.steps,
            modules=tuple(modules),
            bench=bench_digest,
            seed=self.seed,
            graph=self.graph,
            gpus=self.gpus,
        )
