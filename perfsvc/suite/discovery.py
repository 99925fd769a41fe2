"""Read a folder of benchmark files into a suite: its cases and its problems."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perfsvc.errors import SuiteError, UsageError
from perfsvc.model import Case
from perfsvc.selection import Selection, choose
from perfsvc.suite import isolated
from perfsvc.suite.benchfile import FILE_NAME
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.isolated.requests import BenchRead, ListedCase, Points
from perfsvc.suite.steps.groups import LEAST_GPUS

Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """A folder's benchmarks, their cases, and the problems of unusable benchmarks."""

    folder: Path
    benchmarks: tuple[BenchRead, ...]
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

    def resolve(
        self, selection: Selection, points: Points, known_shapes: Path | None = None, all_gpus: int = LEAST_GPUS
    ) -> tuple[tuple[CaseSpec, ...], tuple[SuiteError, ...]]:
        """Return the selected cases, each with everything that building and running it needs.

        Args:
            selection: the globs of the cases.
            points: whether to take the full or the smoke points.
            known_shapes: a folder that keeps the shapes of inputs, so that inputs of known shapes need not be made.
            all_gpus: how many GPUs ``gpus="all"`` means.

        Returns:
            Each case once for each cache state, and the problems of benchmarks that cannot be resolved.

        Raises:
            UsageError: a glob cannot be parsed or selects nothing, or every selected case is excluded.
        """
        selected: dict[str, list[Case]] = {}
        for listed in self.select(selection, points):
            selected.setdefault(listed.case.benchmark, []).append(listed.case)
        files = {file.name: file for file in self.benchmarks}
        resolved = _each(
            lambda name: isolated.resolve_cases(
                files[name].path, files[name].text, selected[name], known_shapes, all_gpus
            ),
            selected,
        )
        problems = tuple(specs for specs in resolved if isinstance(specs, SuiteError))
        return tuple(spec for specs in resolved if not isinstance(specs, SuiteError) for spec in specs), problems

    def benchmark(self, name: str) -> BenchRead:
        """Return the file of a benchmark by its name; raises ``KeyError`` if no benchmark has this name."""
        return {file.name: file for file in self.benchmarks}[name]


def discover(folder: Path) -> Suite:
    """Read every bench.py in a folder and its subfolders; a broken file does not stop the others.

    Raises:
        UsageError: the folder does not exist, or has no bench.py.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}", cure="name the folder of your benchmarks: --suite FOLDER")
    paths, problems = _find(folder)
    if not paths and not problems:
        raise UsageError(
            f"no {FILE_NAME} in {folder}",
            cure=f"write one: {folder}/NAME/{FILE_NAME} (docs/how-to/write-a-benchmark.md)",
        )
    files: dict[str, BenchRead] = {}
    isolated.start()
    for file in _each(isolated.read, sorted(paths)):
        if isinstance(file, SuiteError):
            problems.append(file)
        elif file.name in files:
            problem = f"benchmark {file.name!r} exists already: {files[file.name].path}"
            cure = "rename the folder, or give one of the two benchmarks a name: Benchmark(name=...)"
            problems.append(SuiteError(problem, path=str(file.path), line=file.line, cure=cure))
        else:
            problems += map(isolated.error, file.problems)
            files[file.name] = file
    ordered = tuple(sorted(files.values(), key=lambda file: file.name))
    return Suite(folder, ordered, tuple(case for file in ordered for case in file.cases), tuple(problems))


def _find(folder: Path) -> tuple[list[Path], list[SuiteError]]:
    """Return every bench.py in a folder and its subfolders, and a problem for each folder that cannot be searched.

    Hidden folders, and links to folders, are not searched. A bench.py may be a link; a link to a missing file is
    returned too, because its benchmark must not disappear in silence.
    """
    paths: list[Path] = []
    problems: list[SuiteError] = []

    def note(error: OSError) -> None:
        what, cure = f"the folder cannot be searched: {error.strerror}", "make it readable, or remove it from the suite"
        problems.append(SuiteError(what, path=str(Path(error.filename) / FILE_NAME), cure=cure))

    for parent, folders, names in os.walk(folder, onerror=note):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if FILE_NAME in {*folders, *names}:
            paths.append(Path(parent) / FILE_NAME)
    return paths, problems


def _each(function: Callable[[Input], Result], inputs: Iterable[Input]) -> list[Result | SuiteError]:
    """Return the result of each call, or the problem that it raised; as many calls run at once as there are cores."""

    def result(argument: Input) -> Result | SuiteError:
        try:
            return function(argument)
        except SuiteError as error:
            return error

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="perfsvc-suite") as threads:
        try:
            return list(threads.map(result, inputs))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            isolated.stop()
            raise
