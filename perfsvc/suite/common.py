"""What the variants of a benchmark have in common at one point."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from perfsvc.model import Array, Buffer, Role, Tolerance, Work
from perfsvc.suite.arrays import seed_of
from perfsvc.suite.benchfile import BenchFile
from perfsvc.suite.expansion import ladder
from perfsvc.suite.extents import integer, shape_of
from perfsvc.suite.functions import evaluate
from perfsvc.suite.points import Point
from perfsvc.suite.problem import Problem


@dataclass(frozen=True, eq=False)
class Common:
    """A benchmark at one point; what is equal for all of its variants there is worked out for the first that needs it.

    Each attribute raises ``Problem`` where one of the author's functions failed, or gave what cannot be used.

    Attributes:
        inputs: the arrays that the point has.
    """

    file: BenchFile
    point: Point
    inputs: Mapping[str, Array]

    @cached_property
    def path(self) -> Path:
        """The benchmark file's, from the root."""
        return self.file.path.absolute()

    @cached_property
    def folder(self) -> Path:
        """Where the benchmark's sources lie."""
        return self.path.parent

    @cached_property
    def seed(self) -> int:
        """Of the inputs."""
        return seed_of(self.file.name, self.file.benchmark.version, self.point)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The full names of the variants, in the order of the ladder."""
        return tuple(variant_index.name for variant_index in ladder(self.file.benchmark))

    @cached_property
    def buffers(self) -> Mapping[str, Buffer]:
        """The inputs, and then the outputs that are not among them."""
        benchmark, axes = self.file.benchmark, dict(self.point)
        outputs = {
            name: Array(name, np.dtype(made.dtype).name, shape_of(made.shape, axes, name, benchmark.line))
            for name, made in benchmark.outputs.items()
        }
        return {
            name: Buffer(array, Role.INOUT if name in outputs else Role.INPUT) for name, array in self.inputs.items()
        } | {name: Buffer(array, Role.OUTPUT) for name, array in outputs.items() if name not in self.inputs}

    @cached_property
    def work(self) -> Work:
        """What one run of a variant has to do."""
        line = self.file.benchmark.line
        work = evaluate(self.file.benchmark.work, dict(self.point), "work", line)
        if not isinstance(work, Work):
            raise Problem(f"work is {work!r}", line, "return Work(read_bytes=..., written_bytes=..., flops=...)")
        counts = (integer(getattr(work, field), field, line) for field in ("read_bytes", "written_bytes", "flops"))
        return Work(*counts)

    @cached_property
    def tolerance(self) -> Tolerance:
        """The largest error of a right result; none where there is no result."""
        benchmark = self.file.benchmark
        if not benchmark.outputs:
            return Tolerance(max=0.0, mean=0.0)
        tolerance = evaluate(benchmark.tolerance, dict(self.point), "tolerance", benchmark.line)
        if not isinstance(tolerance, Tolerance) or not (tolerance.max >= 0 and tolerance.mean >= 0):
            raise Problem(
                f"tolerance is {tolerance!r}", benchmark.line, "return Tolerance(max=..., mean=...), none negative"
            )
        return tolerance


def replay_tolerance(file: BenchFile, point: Point) -> Tolerance:
    """The tolerance of any benchmark file at any point, as for a record of an earlier night; raises ``SuiteError``."""
    try:
        return Common(file, point, {}).tolerance
    except Problem as problem:
        raise problem.at(file.path) from problem
