"""All that can be found wrong with a benchmark file without running a kernel.

Everything is looked at, however much is wrong; only what cannot be judged sensibly any more is left out (the steps of
a variant whose fields are of the wrong kind, the names in a benchmark whose inputs cannot be made).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfsvc.model import Array
from perfsvc.suite.arrays import Arrays, make_expected, make_inputs, seed_of, shapes
from perfsvc.suite.authoring import Benchmark, Output, Variant
from perfsvc.suite.benchfile import BenchFile
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.check_variant import problems_of_output, problems_of_variant
from perfsvc.suite.common import Common
from perfsvc.suite.expansion import Expansion, expand, ladder
from perfsvc.suite.fields import misfits_of_benchmark
from perfsvc.suite.functions import nearest, unknown_names
from perfsvc.suite.points import axes_of, fits_in_an_id, full_points, problems_of_points, smoke_point
from perfsvc.suite.problem import Problem
from perfsvc.suite.resolving import resolve, worth_running


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a benchmark file.

    Attributes:
        variants: those that can be used.
        problems: everything that is wrong.
        inputs: the arrays that the rehearsal made.
        rehearsed: what each variant came to with them at the smoke point, if it is worth running there.
    """

    variants: tuple[Expansion, ...]
    problems: tuple[Problem, ...]
    inputs: Mapping[str, Array]
    rehearsed: Mapping[Expansion, tuple[CaseSpec, ...]]


def check(file: BenchFile) -> Checked:
    """Judges a file and rehearses its inputs and reference at the smoke point.

    A problem of the benchmark makes all of its variants unusable; a problem of a variant that one alone.
    """
    misfits = tuple(misfits_of_benchmark(file.benchmark))
    if misfits:
        return Checked((), misfits, {}, {})
    problems = list(_problems_of_benchmark(file.benchmark, file.name))
    made = None if problems else _rehearse(file, problems)
    inputs = None if made is None else shapes(made)
    points = () if inputs is None else _points(file, inputs)
    rehearsed: dict[Expansion, tuple[CaseSpec, ...]] = {}
    usable = not problems
    variants: dict[str, Expansion] = {}
    for variant in file.benchmark.variants:
        found = tuple(problems_of_variant(file, variant, inputs))
        expansions = () if found else expand(variant)
        found += tuple(_taken(expansions, variants))
        if made is not None and usable and not found:
            found = tuple(_unresolvable(expansions, points, rehearsed)) or tuple(_unreferenced(file, variant, made))
        problems += found
        if not found:
            variants |= {expansion.name: expansion for expansion in expansions}
    claims = {
        expansion.name: problem for expansion in variants.values() for problem in _still_there(expansion, variants)
    }
    return Checked(
        variants=tuple(variants[name] for name in variants if usable and name not in claims),
        problems=_each_once([*problems, *claims.values()]),
        inputs=inputs or {},
        rehearsed=rehearsed,
    )


def _each_once(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Problems in the order of their lines; what is wrong with the work, say, is met in every variant."""
    once = {(problem.line, problem.what): problem for problem in problems}
    return tuple(sorted(once.values(), key=lambda problem: problem.line))


def _problems_of_benchmark(benchmark: Benchmark, name: str) -> Iterator[Problem]:
    line, axes = benchmark.line, axes_of(benchmark)
    if not fits_in_an_id(name):
        yield Problem(
            f"the benchmark is called {name!r}", line, "use letters, digits and _ . + - in its (folder's) name"
        )
    if benchmark.version < 1:
        yield Problem(f"version is {benchmark.version}", line, "count versions from 1")
    if not benchmark.variants:
        yield Problem("no variants", line, "add one: variants=[Variant(...)]")
    if benchmark.outputs and benchmark.reference is None:
        yield Problem("no reference", line, "give a function that computes the outputs in float64: reference=...")
    if benchmark.outputs and benchmark.tolerance is None:
        yield Problem(
            "no tolerance", line, "say how wrong a right result may be: tolerance=Tolerance(max=..., mean=...)"
        )
    if benchmark.reference is not None and not benchmark.outputs:
        yield Problem("no outputs", line, 'declare what the reference computes: outputs={"c": output("float32", ...)}')
    names = [variant_index.name for variant_index in ladder(benchmark)]
    if benchmark.relative_to and benchmark.relative_to not in names:
        yield Problem(
            f"the reference variant {benchmark.relative_to!r} is no variant",
            line,
            nearest(benchmark.relative_to, names),
        )
    yield from problems_of_points(benchmark)
    yield from _problems_of_outputs(benchmark.outputs, axes, line)
    for field in ("work", "tolerance"):
        written = getattr(benchmark, field)
        if callable(written):
            yield from unknown_names(written, axes, field, line)


def _problems_of_outputs(outputs: Mapping[str, Output], axes: Sequence[str], line: int) -> Iterator[Problem]:
    for name, declared in outputs.items():
        if name in axes:
            yield Problem(f"{name!r} is an axis and an output", line, "rename one of them")
        yield from problems_of_output(name, declared, axes, line)


def _rehearse(file: BenchFile, problems: list[Problem]) -> Arrays | None:
    """Makes the arrays of the smoke point; the inputs, or None where they could not be made."""
    benchmark, point = file.benchmark, smoke_point(file.benchmark)
    made = None
    try:
        made = make_inputs(benchmark, point, seed_of(file.name, benchmark.version, point))
        make_expected(benchmark, point, made, benchmark.reference)
    except Problem as problem:
        problems.append(problem)
    if made is None:
        return None
    for name in made.keys() & set(axes_of(benchmark)):
        problems.append(Problem(f"{name!r} is an axis and an input", benchmark.line, "rename one of them"))
    return made


def _points(file: BenchFile, inputs: Mapping[str, Array]) -> tuple[Common, ...]:
    """The smoke point and then every other one, all with the inputs of the rehearsal."""
    points = (smoke_point(file.benchmark), *full_points(file.benchmark))
    once = {str(point): point for point in points}  # as text, for a point of 64 is another one than that of 64.0
    return tuple(Common(file, point, inputs) for point in once.values())


def _unresolvable(
    expansions: Sequence[Expansion], points: Sequence[Common], rehearsed: dict[Expansion, tuple[CaseSpec, ...]]
) -> Iterator[Problem]:
    """The first problem that a variant has at one of its points; ``rehearsed`` takes what it comes to at the first."""
    for expansion in expansions:
        for place, common in enumerate(points):
            try:
                specs = resolve(expansion, common) if worth_running(expansion, common.point) else ()
            except Problem as problem:
                yield problem
                return
            if place == 0:
                rehearsed[expansion] = specs


def _unreferenced(file: BenchFile, variant: Variant, inputs: Arrays) -> Iterator[Problem]:
    """What is wrong with a variant's own reference at the smoke point."""
    try:
        make_expected(file.benchmark, smoke_point(file.benchmark), inputs, variant.reference)
    except Problem as problem:
        yield problem


def _taken(expansions: Sequence[Expansion], variants: Mapping[str, Expansion]) -> Iterator[Problem]:
    """The variants whose name an earlier one has."""
    seen = dict(variants)
    for expansion in expansions:
        first = seen.setdefault(expansion.name, expansion)
        if first is not expansion:
            yield Problem(
                f"variant {expansion.name!r} is there already (line {first.variant.line})",
                expansion.variant.line,
                "give one of them another name",
            )


def _still_there(expansion: Expansion, variants: Mapping[str, Expansion]) -> Iterator[Problem]:
    """Each history that a variant claims while another is still measured under that name."""
    for name in expansion.formerly:
        if name in variants:
            yield Problem(
                f"variant {expansion.name!r} was formerly {name!r}, which is still a variant",
                expansion.variant.line,
                "leave formerly out, or remove the old variant",
            )
