"""A case with everything that building and running it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsvc.model import Buffer, CacheState, Case, Kind, ReplayRecord, Step, Tolerance, Unit, Work, digest


def name_of_arrays(bench_text: str, seed: int, reference: int = 0) -> str:
    """The name of what a benchmark file makes from a seed, which is another one at each point, with a reference."""
    return digest(f"{seed}{f' {reference}' * bool(reference)}\n{bench_text}".encode())


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """A case in one cache state, resolved: no function of the benchmark file is left in it.

    ``units`` are compiled once each; ``Launch.module`` counts through them. ``buffers`` are those that the steps use.
    ``requires`` are the author's words (``sm_90``, ``n % 4 == 0``). ``bench`` is the benchmark file and ``bench_text``
    what it said when it was read: inputs, reference and Python steps come from that, whatever becomes of the file.
    ``reference`` is equal for the variants that are compared with the same one: 0 for the benchmark's own. ``variant_index``
    is the variant's place on its benchmark's ladder, and ``relative_to`` the variant that it is held against there.
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

    @property
    def inputs(self) -> str:
        """The name of its inputs: equal for the cases that have them in common."""
        return name_of_arrays(self.bench_text, self.seed)

    @property
    def arrays(self) -> str:
        """The name of its inputs and expected results: equal for the cases that have both in common."""
        return name_of_arrays(self.bench_text, self.seed, self.reference)

    def record(self, modules: Sequence[str], bench_digest: str) -> ReplayRecord:
        """What is kept so that the case can be run again on a later night.

        Args:
            modules: SHA-256 digests of the binaries, one a unit, in the order of ``units``.
            bench_digest: SHA-256 digest of the benchmark file's text.

        Raises:
            ValueError: there is not one module for each unit.
        """
        if len(modules) != len(self.units):
            raise ValueError(f"{self.case}: {len(self.units)} units, but {len(modules)} modules")
        return ReplayRecord(
            case=self.case,
            kind=self.kind,
            buffers=self.buffers,
            steps=self.steps,
            modules=tuple(modules),
            bench=bench_digest,
            seed=self.seed,
        )
