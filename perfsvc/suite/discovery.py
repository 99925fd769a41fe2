"""A folder of benchmark files → the suite: its cases, and what is wrong with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perfsvc.errors import SuiteError, UsageError
from perfsvc.model import Array, CacheState, Case, Kind
from perfsvc.suite.authoring import cache_states_of, words
from perfsvc.suite.benchfile import FILE_NAME, BenchFile, load
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.checking import Checked, check
from perfsvc.suite.common import Common
from perfsvc.suite.expansion import Expansion
from perfsvc.suite.inputs import Inputs
from perfsvc.suite.points import full_points, smoke_point
from perfsvc.suite.problem import Problem
from perfsvc.suite.resolving import case_of, resolve, worth_running
from perfsvc.suite.selection import Selection, choose

Points = Literal["smoke", "full"]


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A case that the suite has.

    ``rehearsed`` is what checking its benchmark made of it already, with the arrays of ``inputs``.
    """

    case: Case
    points: Points
    file: BenchFile
    expansion: Expansion
    inputs: Mapping[str, Array] = field(default_factory=dict)
    rehearsed: tuple[CaseSpec, ...] = ()

    @property
    def kind(self) -> Kind:
        """How its variant is timed."""
        return Kind(self.expansion.variant.kind)

    @property
    def caches(self) -> tuple[CacheState, ...]:
        """The cache states that it is measured in, each by itself."""
        return cache_states_of(self.expansion.variant)

    @property
    def requires(self) -> tuple[str, ...]:
        """What its variant requires, in the author's words."""
        return words(self.expansion.variant.requires)

    def resolve(self, inputs: Mapping[str, Array]) -> tuple[CaseSpec, ...]:
        """The case with everything that building and running it needs, in each of its cache states."""
        if self.rehearsed and list(self.inputs.items()) == list(inputs.items()):  # their order is that of buffers
            return self.rehearsed
        return resolve(self.expansion, Common(self.file, self.case.point, inputs))


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """A folder's benchmarks, their cases, and the problems of those that cannot be used."""

    folder: Path
    benchmarks: tuple[BenchFile, ...]
    cases: tuple[Listed, ...]
    problems: tuple[SuiteError, ...]

    def select(self, selection: Selection, points: Points) -> tuple[Listed, ...]:
        """The selected cases at the full or smoke points; cheap, for nothing is resolved.

        Raises:
            UsageError: a glob cannot be understood or takes nothing, or nothing is left.
        """
        here = {listed.case: listed for listed in self.cases if listed.points == points}
        others = [listed.case for listed in self.cases if listed.points != points]
        broken = [self._benchmark_of(problem) for problem in self.problems]
        return tuple(here[case] for case in choose(selection, tuple(here), others, broken))

    def split_problems(self, selection: Selection) -> tuple[tuple[SuiteError, ...], tuple[SuiteError, ...]]:
        """The problems of benchmarks that a selection reaches, and the others, which are not its business.

        Raises:
            UsageError: a glob cannot be understood.
        """
        reached = tuple(problem for problem in self.problems if selection.reaches(self._benchmark_of(problem)))
        return reached, tuple(problem for problem in self.problems if problem not in reached)

    def _benchmark_of(self, problem: SuiteError) -> str:
        """The name of the benchmark that a problem is in: its folder's, where its file could not even be read."""
        names = {str(file.path): file.name for file in self.benchmarks}
        return names.get(problem.path, Path(problem.path).absolute().parent.name)

    def resolve(self, selection: Selection, points: Points, inputs: Inputs | None = None) -> tuple[CaseSpec, ...]:
        """The selected cases with everything that building and running them needs, in each of their cache states.

        Args:
            selection: which cases.
            points: at which points.
            inputs: makes the inputs of each point, for their shapes are needed here, and may keep them for
                ``make_arrays``.

        Raises:
            UsageError: a glob cannot be understood or takes nothing, or nothing is left.
        """
        selected = self.select(selection, points)
        shapes = (inputs or Inputs()).shapes((listed.file, listed.case.point) for listed in selected)
        return tuple(spec for listed in selected for spec in listed.resolve(shapes[listed.file, listed.case.point]))

    def benchmark(self, name: str) -> BenchFile:
        """The file of a benchmark by its name; raises ``KeyError`` where there is none."""
        return {file.name: file for file in self.benchmarks}[name]


def discover(folder: Path) -> Suite:
    """Reads every bench.py of a folder and its folders; one that is broken stops none of the others.

    Raises:
        UsageError: there is no such folder, or no bench.py in it.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}", cure="name the folder of your benchmarks: --suite FOLDER")
    paths = [path for path in folder.rglob(FILE_NAME) if not _hidden(path.relative_to(folder))]
    if not paths:
        raise UsageError(
            f"no {FILE_NAME} in {folder}", cure=f"write one: {folder}/NAME/{FILE_NAME} (docs/authoring.md)"
        )
    files: dict[str, BenchFile] = {}
    cases: list[Listed] = []
    problems: list[SuiteError] = []
    for path in sorted(paths):
        try:
            file = load(path)
            _require_new(file, files)
        except SuiteError as error:
            problems.append(error)
            continue
        checked = check(file)
        problems += [problem.at(path) for problem in checked.problems]
        files[file.name] = file
        cases += _cases(file, checked)
    ordered = tuple(sorted(files.values(), key=lambda file: file.name))
    return Suite(folder, ordered, tuple(sorted(cases, key=lambda listed: listed.case.benchmark)), tuple(problems))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _require_new(file: BenchFile, files: Mapping[str, BenchFile]) -> None:
    if file.name in files:
        raise Problem(
            f"benchmark {file.name!r} is there already: {files[file.name].path}",
            file.benchmark.line,
            "rename the folder, or give one of them a name: Benchmark(name=...)",
        ).at(file.path)


def _cases(file: BenchFile, checked: Checked) -> Iterator[Listed]:
    if not checked.variants:  # then the points may be as broken as the rest
        return
    smoke, full = smoke_point(file.benchmark), full_points(file.benchmark)
    for expansion in checked.variants:
        if rehearsed := checked.rehearsed[expansion]:
            yield Listed(case_of(file, expansion, smoke), "smoke", file, expansion, checked.inputs, rehearsed)
        for point in full:
            if worth_running(expansion, point):
                yield Listed(case_of(file, expansion, point), "full", file, expansion)
