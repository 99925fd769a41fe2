"""Read a folder of benchmark files into a suite: its cases and its problems."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfsvc.errors import SuiteError, UsageError
from perfsvc.model import CacheState, Case, Kind
from perfsvc.suite.arrays import Inputs, Shapes
from perfsvc.suite.authoring import cache_states_of, words
from perfsvc.suite.benchfile import FILE_NAME, BenchFile, load
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.checking import CheckedBenchmark, check
from perfsvc.suite.points import Expansion, full_points, smoke_point
from perfsvc.suite.resolving import BenchmarkPoint, case_of, resolve, worth_running
from perfsvc.suite.selection import Selection, choose
from perfsvc.suite.values import Problem

Points = Literal["smoke", "full"]


@dataclass(frozen=True, slots=True, eq=False)
class ListedCase:
    """A case of the suite that is not resolved yet."""

    case: Case
    points: Points
    file: BenchFile
    expansion: Expansion

    @property
    def kind(self) -> Kind:
        """The kind of the case's variant, which decides how the case is timed."""
        return Kind(self.expansion.variant.kind)

    @property
    def caches(self) -> tuple[CacheState, ...]:
        """The cache states that the case is measured in."""
        return cache_states_of(self.expansion.variant)

    @property
    def requires(self) -> tuple[str, ...]:
        """What the case's variant requires, in the author's words."""
        return words(self.expansion.variant.requires)

    def resolve(self, inputs: Shapes) -> tuple[CaseSpec, ...]:
        """Return the case with everything that building and running it needs, once for each cache state."""
        return resolve(self.expansion, BenchmarkPoint(self.file, self.case.point, inputs))


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """A folder's benchmarks, their cases, and the problems of unusable benchmarks."""

    folder: Path
    benchmarks: tuple[BenchFile, ...]
    cases: tuple[ListedCase, ...]
    problems: tuple[SuiteError, ...]

    def select(self, selection: Selection, points: Points) -> tuple[ListedCase, ...]:
        """Return the selected cases at the full or smoke points, without resolving them.

        Raises:
            UsageError: a glob cannot be parsed or selects nothing, or every selected case is excluded.
        """
        candidates = {listed.case: listed for listed in self.cases if listed.points == points}
        cases_of_other_points = [listed.case for listed in self.cases if listed.points != points]
        broken = [self._benchmark_of(problem) for problem in self.problems]
        chosen = choose(selection, tuple(candidates), cases_of_other_points, broken)
        return tuple(candidates[case] for case in chosen)

    def split_problems(self, selection: Selection) -> tuple[tuple[SuiteError, ...], tuple[SuiteError, ...]]:
        """Return two tuples: the problems of benchmarks that the selection could include, and all other problems.

        Raises:
            UsageError: a glob cannot be parsed.
        """
        included = tuple(problem for problem in self.problems if selection.reaches(self._benchmark_of(problem)))
        return included, tuple(problem for problem in self.problems if problem not in included)

    def _benchmark_of(self, problem: SuiteError) -> str:
        """Return the name of the benchmark with a problem; the folder's name if its file cannot be read."""
        names = {str(file.path): file.name for file in self.benchmarks}
        return names.get(problem.path, Path(problem.path).absolute().parent.name)

    def resolve(self, selection: Selection, points: Points, inputs: Inputs | None = None) -> tuple[CaseSpec, ...]:
        """Return the selected cases with everything that building and running them needs, in each cache state.

        Args:
            selection: the globs of the cases.
            points: whether to take the full or the smoke points.
            inputs: makes the inputs of each point, whose shapes are needed here; it may keep the inputs for
                ``make_arrays``.

        Raises:
            UsageError: a glob cannot be parsed or selects nothing, or every selected case is excluded.
        """
        selected = self.select(selection, points)
        shapes = (inputs or Inputs()).shapes((listed.file, listed.case.point) for listed in selected)
        return tuple(spec for listed in selected for spec in listed.resolve(shapes[listed.file, listed.case.point]))

    def benchmark(self, name: str) -> BenchFile:
        """Return the file of a benchmark by its name; raises ``KeyError`` if no benchmark has this name."""
        return {file.name: file for file in self.benchmarks}[name]


def discover(folder: Path) -> Suite:
    """Read every bench.py in a folder and its subfolders; a broken file does not stop the others.

    Raises:
        UsageError: the folder does not exist, or has no bench.py.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}", cure="name the folder of your benchmarks: --suite FOLDER")
    paths = [path for path in folder.rglob(FILE_NAME) if not _is_hidden(path.relative_to(folder))]
    if not paths:
        raise UsageError(
            f"no {FILE_NAME} in {folder}",
            cure=f"write one: {folder}/NAME/{FILE_NAME} (docs/how-to/write-a-benchmark.md)",
        )
    files: dict[str, BenchFile] = {}
    cases: list[ListedCase] = []
    problems: list[SuiteError] = []
    for path in sorted(paths):
        try:
            file = load(path)
        except SuiteError as error:
            problems.append(error)
            continue
        if file.name in files:
            problem = f"benchmark {file.name!r} exists already: {files[file.name].path}"
            cure = "rename the folder, or give one of the two benchmarks a name: Benchmark(name=...)"
            problems.append(Problem(problem, file.benchmark.line, cure).at(path))
            continue
        checked = check(file)
        problems += [problem.at(path) for problem in checked.problems]
        files[file.name] = file
        cases += _cases(file, checked)
    ordered = tuple(sorted(files.values(), key=lambda file: file.name))
    return Suite(folder, ordered, tuple(sorted(cases, key=lambda listed: listed.case.benchmark)), tuple(problems))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _cases(file: BenchFile, checked: CheckedBenchmark) -> Iterator[ListedCase]:
    """Yield the cases of a file's usable variants at the smoke point and at the full points."""
    if not checked.variants:  # then the points may be unusable, too
        return
    smoke, full = smoke_point(file.benchmark), full_points(file.benchmark)
    for expansion in checked.variants:
        if worth_running(expansion, smoke):
            yield ListedCase(case_of(file, expansion, smoke), "smoke", file, expansion)
        for point in full:
            if worth_running(expansion, point):
                yield ListedCase(case_of(file, expansion, point), "full", file, expansion)
