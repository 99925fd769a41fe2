"""Read a benchmark file and resolve its cases, in this process (``child``)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsvc.errors import SuiteError
from perfsvc.model import Case
from perfsvc.suite.arrays import Inputs
from perfsvc.suite.authoring import Variant, cache_states_of
from perfsvc.suite.benchfile import BenchFile, load, load_again
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.checking import CheckedBenchmark, check
from perfsvc.suite.isolated.requests import BenchRead, Failed, ListedCase, Points
from perfsvc.suite.points import Expansion, Point, expansions_of, full_points, smoke_point
from perfsvc.suite.resolving import BenchmarkPoint, case_of, resolve, worth_running
from perfsvc.suite.steps import groups, kind_of, requirements
from perfsvc.suite.steps.graphs import graph_of
from perfsvc.suite.values import Problem


def read(path: Path) -> BenchRead:
    """Return the cases of a benchmark file, and its problems; raises ``SuiteError`` if it is no benchmark file."""
    file = load(path)
    checked = check(file)
    return BenchRead(
        path=path,
        text=file.text,
        name=file.name,
        line=file.benchmark.line,
        cases=tuple(_cases(file, checked)),
        problems=tuple(failed(problem.at(path)) for problem in checked.problems),
    )


def failed(error: SuiteError) -> Failed:
    """Return an error as its fields."""
    return Failed(error.what, error.path, error.line, error.cure)


def _gpus(variant: Variant, point: Point) -> tuple[str, ...]:
    """Return how many GPUs a variant on several GPUs needs: ``2 GPUs`` or ``all GPUs``; empty for any other variant."""
    if not groups.uses_several(variant):
        return ()
    return (f"{groups.ALL if variant.gpus == groups.ALL else groups.gpus_of(variant, dict(point))} GPUs",)


def resolve_cases(path: Path, text: str, cases: Sequence[Case], inputs: Inputs, all_gpus: int) -> tuple[CaseSpec, ...]:
    """Return a spec for each case in each of its cache states: everything that building and running it needs.

    Args:
        path: the benchmark file.
        text: the text of the file, from which the cases were listed.
        cases: the cases.
        inputs: makes the inputs of the cases' points, to know their shapes.
        all_gpus: how many GPUs ``gpus="all"`` means.

    Raises:
        SuiteError: one of the author's functions failed at a point, or returned something that cannot be launched.
    """
    file = load_again(path, text)
    expansions = {expansion.name: expansion for expansion in expansions_of(file.benchmark)}
    try:
        shapes = inputs.shapes((file, case.point) for case in cases)
        return tuple(
            spec
            for case in cases
            for spec in resolve(
                expansions[case.variant], BenchmarkPoint(file, case.point, shapes[file, case.point]), all_gpus
            )
        )
    except Problem as problem:
        raise problem.at(path) from problem


def _cases(file: BenchFile, checked: CheckedBenchmark) -> Iterator[ListedCase]:
    """Yield the cases of a file's usable variants at the smoke point and at the full points."""
    if not checked.variants:  # then the points may be unusable, too
        return
    smoke, full = smoke_point(file.benchmark), full_points(file.benchmark)
    for expansion in checked.variants:
        if worth_running(expansion, smoke):
            yield _listed(file, expansion, smoke, "smoke")
        for point in full:
            if worth_running(expansion, point):
                yield _listed(file, expansion, point, "full")


def _listed(file: BenchFile, expansion: Expansion, point: Point, points: Points) -> ListedCase:
    """Return the case of a variant at a point, as ``perfsvc list`` shows it."""
    variant = expansion.variant
    return ListedCase(
        case=case_of(file, expansion, point),
        points=points,
        kind=kind_of(variant),
        caches=cache_states_of(variant),
        requires=(*_gpus(variant, point), *requirements(variant)),
        bench=file.path,
        graph=graph_of(variant),
    )
