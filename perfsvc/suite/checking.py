"""Find all problems of a benchmark file without running a kernel.

Everything is checked, however much is wrong. Only checks that make no sense after an earlier problem are skipped: the
steps of a variant whose fields have wrong types, and names in a benchmark whose inputs cannot be made.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from perfsvc.dtypes import is_number
from perfsvc.model import AUXILIARY, TIME, Kind
from perfsvc.suite.arrays import Arrays, Shapes, make_expected, make_inputs, seed_of, shapes
from perfsvc.suite.authoring import (
    BOTH,
    AllReduceStep,
    Benchmark,
    CallStep,
    FinishStep,
    LaunchStep,
    LibraryStep,
    MemsetStep,
    MetricStep,
    Output,
    PackageStep,
    Peer,
    PeerCopyStep,
    ProgramStep,
    Scalar,
    StepWritten,
    TensorMap,
    Variant,
    parts_of,
    words,
)
from perfsvc.suite.benchfile import BenchFile
from perfsvc.suite.fields import misfits_of_benchmark, misfits_of_step, misfits_of_variant
from perfsvc.suite.points import (
    Expansion,
    axes_of,
    expand,
    expansions_of,
    fits_in_an_id,
    full_points,
    problems_of_params,
    problems_of_points,
    smoke_point,
)
from perfsvc.suite.requirements import problems_of_requirement, problems_of_tensor_maps
from perfsvc.suite.resolving import BenchmarkPoint, resolve, worth_running
from perfsvc.suite.steps import buffers_of, kind_of, problems_of_form, problems_of_sources, steps_of
from perfsvc.suite.steps.graphs import problems_of_graph
from perfsvc.suite.steps.groups import GPU, GPUS, problems_of_group, problems_of_placed_names, uses_several
from perfsvc.suite.steps.packages import arguments_of, problems_of_package_step
from perfsvc.suite.steps.programs import problems_of_library, problems_of_program
from perfsvc.suite.values import Problem, line_of, nearest, unknown_names

_NAME = r"[A-Za-z_]\w*(?:\s*<[^;#\\\"'\n]*>)?"
_ENTRY = re.compile(rf"(?:::)?{_NAME}(?:::{_NAME})*")
"""The name of a kernel in C++; values may be missing: ``tiled::sum<float, {BLOCK}>``."""


@dataclass(frozen=True, slots=True)
class CheckedBenchmark:
    """The usable variants of a benchmark file, and all of its problems."""

    variants: tuple[Expansion, ...]
    problems: tuple[Problem, ...]


def check(file: BenchFile) -> CheckedBenchmark:
    """Check a file, and run its inputs and references at the smoke point (the small point for quick checks).

    A problem of the benchmark makes all variants unusable; a problem of a variant makes only that variant unusable.
    """
    misfits = tuple(misfits_of_benchmark(file.benchmark))
    if misfits:
        return CheckedBenchmark((), misfits)
    problems = list(_problems_of_benchmark(file.benchmark, file.name))
    made = None if problems else _smoke_inputs(file, problems)
    inputs = None if made is None else shapes(made)
    points = () if inputs is None else _points(file, inputs)
    usable = not problems
    variants: dict[str, Expansion] = {}
    for variant in file.benchmark.variants:
        variant_problems = tuple(_problems_of_variant(file, variant, inputs))
        expansions = () if variant_problems else expand(variant)
        variant_problems += tuple(_problems_of_taken_names(expansions, variants))
        if made is not None and usable and not variant_problems:
            variant_problems = tuple(_first_problem_of_resolving(expansions, points)) or tuple(
                _problems_of_own_reference(file, variant, made)
            )
        problems += variant_problems
        if not variant_problems:
            variants |= {expansion.name: expansion for expansion in expansions}
    with_used_former_name = {
        expansion.name: problem
        for expansion in variants.values()
        for problem in _problems_of_former_names(expansion, variants)
    }
    # Some problems, such as a wrong ``work``, are found again in every variant: report them once.
    distinct = {(problem.line, problem.what): problem for problem in [*problems, *with_used_former_name.values()]}
    return CheckedBenchmark(
        variants=tuple(variants[name] for name in variants if usable and name not in with_used_former_name),
        problems=tuple(sorted(distinct.values(), key=lambda problem: problem.line)),
    )


# --- the benchmark ---------------------------------------------------------------------------------------------------


def _problems_of_benchmark(benchmark: Benchmark, name: str) -> Iterator[Problem]:
    """Yield the problems of a benchmark's own fields, except those of its inputs and variants."""
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
            "no tolerance", line, "state the largest error of a correct result: tolerance=Tolerance(max=..., mean=...)"
        )
    if benchmark.reference is not None and not benchmark.outputs:
        yield Problem("no outputs", line, 'declare what the reference computes: outputs={"c": output("float32", ...)}')
    names = [expansion.name for expansion in expansions_of(benchmark)]
    if benchmark.relative_to and benchmark.relative_to not in names:
        yield Problem(
            f"relative_to is {benchmark.relative_to!r}, which is no variant",
            line,
            nearest(benchmark.relative_to, names),
        )
    yield from problems_of_points(benchmark)
    yield from _problems_of_outputs(benchmark, axes)
    for field in ("work", "tolerance"):
        written = getattr(benchmark, field)
        if callable(written):
            yield from unknown_names(written, axes, field, line)


def _problems_of_outputs(benchmark: Benchmark, axes: Sequence[str]) -> Iterator[Problem]:
    """Yield the problems of a benchmark's declared outputs."""
    for name, declared in benchmark.outputs.items():
        if name in axes:
            yield Problem(f"{name!r} is an axis and an output", benchmark.line, "rename one of them")
        yield from _problems_of_output(name, declared, axes, benchmark.line)


def _problems_of_output(name: str, declared: Output, names: Sequence[str], line: int) -> Iterator[Problem]:
    """Yield the problems of the dtype and the shape of an output or scratch array."""
    try:
        usable = is_number(np.dtype(declared.dtype))
    except TypeError:
        usable = False
    if not usable:
        yield Problem(
            f"{name!r} has the dtype {declared.dtype!r}",
            line,
            "name a NumPy dtype, such as float32, or bfloat16, float8_e4m3fn or float8_e5m2",
        )
    if callable(declared.shape):
        yield from unknown_names(declared.shape, names, f"shape of {name!r}", line)


def _smoke_inputs(file: BenchFile, problems: list[Problem]) -> Arrays | None:
    """Return the inputs of the smoke point, or None if they cannot be made; append all problems to ``problems``.

    The inputs are made twice, because inputs that differ each time would make the times of variants and runs differ.
    The reference of the smoke point is computed too, to find its problems.
    """
    benchmark, point = file.benchmark, smoke_point(file.benchmark)
    seed = seed_of(file.name, benchmark.version, point)
    inputs = None
    try:
        inputs = make_inputs(benchmark, point, seed)
        problems += _problems_of_second_call(benchmark, inputs, make_inputs(benchmark, point, seed))
        make_expected(benchmark, point, inputs, benchmark.reference)
    except Problem as problem:
        problems.append(problem)
    for name in (inputs or {}).keys() & set(axes_of(benchmark)):
        problems.append(Problem(f"{name!r} is an axis and an input", benchmark.line, "rename one of them"))
    return inputs


def _problems_of_second_call(benchmark: Benchmark, first: Arrays, second: Arrays) -> Iterator[Problem]:
    """Yield a problem if two calls of ``inputs`` with the same arguments made different arrays; NaN equals NaN."""
    for name in {**first, **second}:
        one, other = first.get(name), second.get(name)
        if one is None or other is None or one.dtype != other.dtype or not np.array_equal(one, other, equal_nan=True):
            yield Problem(
                f"inputs made another {name!r} when it was called a second time",
                line_of(benchmark.inputs, benchmark.line) if benchmark.inputs else benchmark.line,
                "draw random numbers from rng alone, initialise every element, and keep no state between two calls",
            )


def _points(file: BenchFile, inputs: Shapes) -> tuple[BenchmarkPoint, ...]:
    """Return the smoke point and then all other points, each with the input shapes of the smoke point.

    Points are distinct if their texts differ: 64 and 64.0 are equal numbers, but only 64 can be the size of a grid.
    """
    smoke = smoke_point(file.benchmark)
    distinct = {str(point): point for point in (smoke, *full_points(file.benchmark))}
    return tuple(BenchmarkPoint(file, point, inputs, point == smoke) for point in distinct.values())


# --- a variant -------------------------------------------------------------------------------------------------------


def _problems_of_variant(file: BenchFile, variant: Variant, inputs: Shapes | None) -> Iterator[Problem]:
    """Yield the problems of a variant; ``inputs`` is None if the inputs are unknown."""
    problems = tuple(misfits_of_variant(variant)) or tuple(problems_of_form(variant))
    if not problems and (variant.steps or isinstance(variant.run, PackageStep | LibraryStep | ProgramStep)):
        problems = tuple(problem for step in steps_of(variant) for problem in misfits_of_step(step, variant.name))
    yield from problems or _problems_of_content(file, variant, inputs)


def _problems_of_taken_names(expansions: Sequence[Expansion], variants: Mapping[str, Expansion]) -> Iterator[Problem]:
    """Yield a problem for each expansion with the name of an earlier expansion."""
    seen = dict(variants)
    for expansion in expansions:
        first = seen.setdefault(expansion.name, expansion)
        if first is not expansion:
            yield Problem(
                f"variant {expansion.name!r} exists already (line {first.variant.line})",
                expansion.variant.line,
                "give one of them another name",
            )


def _first_problem_of_resolving(expansions: Sequence[Expansion], points: Sequence[BenchmarkPoint]) -> Iterator[Problem]:
    """Yield the first problem of resolving a variant's expansions at the points, if there is any."""
    for expansion in expansions:
        for at in points:
            try:
                if worth_running(expansion, at.point):
                    resolve(expansion, at)
            except Problem as problem:
                yield problem
                return


def _problems_of_own_reference(file: BenchFile, variant: Variant, inputs: Arrays) -> Iterator[Problem]:
    """Yield the problem that a variant's own reference has at the smoke point, if any."""
    try:
        make_expected(file.benchmark, smoke_point(file.benchmark), inputs, variant.reference)
    except Problem as problem:
        yield problem


def _problems_of_former_names(expansion: Expansion, variants: Mapping[str, Expansion]) -> Iterator[Problem]:
    """Yield a problem for each former name that is still the name of a variant."""
    for name in expansion.formerly:
        if name in variants:
            yield Problem(
                f"variant {expansion.name!r} was formerly {name!r}, which is still a variant",
                expansion.variant.line,
                "leave formerly out, or remove the old variant",
            )


@dataclass(frozen=True, slots=True)
class _VariantNames:
    """The names that a variant may use."""

    axes: tuple[str, ...]
    params: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scratch: tuple[str, ...]
    of_group: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """Names with a value, which the functions of steps may ask for."""
        return self.axes + self.params + self.of_group

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names with an address."""
        return tuple(dict.fromkeys(self.inputs + self.outputs + self.scratch))


def _problems_of_content(file: BenchFile, variant: Variant, inputs: Shapes | None) -> Iterator[Problem]:
    """Yield the problems of a variant whose fields have the right types."""
    if kind_of(variant) is Kind.HOST and variant.cache == BOTH:
        yield Problem(
            f"variant {variant.name!r} is of the kind host and has the cache state both",
            variant.line,
            "remove cache=: host functions measure their own times, which are the same in both cache states",
        )
    if variant.reference is not None and not file.benchmark.outputs:
        yield Problem(
            f"variant {variant.name!r} has a reference, and the benchmark has no outputs",
            variant.line,
            'declare what the reference computes: outputs={"c": output("float32", ...)}',
        )
    yield from _problems_of_metrics(variant)
    yield from problems_of_graph(variant)
    yield from problems_of_params(variant)
    yield from problems_of_sources(variant, file.path.parent)
    names = _VariantNames(
        axes=axes_of(file.benchmark),
        params=tuple(variant.params),
        inputs=tuple(inputs or ()),
        outputs=tuple(file.benchmark.outputs),
        scratch=tuple(variant.scratch),
        of_group=(GPU, GPUS) if uses_several(variant) else (),
    )
    yield from problems_of_group(variant, kind_of(variant), steps_of(variant), names.axes + names.params)
    yield from _problems_of_own_names(variant, names)
    yield from _problems_of_functions(variant, names)
    yield from _problems_of_order(variant)
    for step in steps_of(variant):
        if isinstance(step, LaunchStep):
            yield from _problems_of_launch(step, variant, names)
        if isinstance(step, CallStep):
            yield from _problems_of_call(step, variant, file)
        if isinstance(step, PackageStep):
            known = None if inputs is None else names.buffers + names.values
            yield from problems_of_package_step(step, variant.name, file.path.parent, file.names, known)
        if isinstance(step, LibraryStep):
            yield from problems_of_library(step, variant)
        if isinstance(step, ProgramStep):
            yield from problems_of_program(step, variant)
    if inputs is not None:
        yield from _problems_of_buffers(variant, names)


def _problems_of_own_names(variant: Variant, names: _VariantNames) -> Iterator[Problem]:
    """Yield the problems of the names that a variant defines."""
    for what, given_names in (("name", (variant.name,)), ("former name", words(variant.formerly))):
        for name in given_names:
            if not fits_in_an_id(name):
                yield Problem(
                    f"variant {variant.name!r} has the {what} {name!r}", variant.line, "use letters, digits and _ . + -"
                )
    for name in (*names.params, *names.scratch):
        if name in {*names.axes, *names.inputs, *names.outputs}:
            yield Problem(
                f"variant {variant.name!r}: {name!r} is an axis, input or output already", variant.line, "rename it"
            )


def _problems_of_functions(variant: Variant, names: _VariantNames) -> Iterator[Problem]:
    """Yield the problems of scratch arrays, of requirements, and of functions of axes and parameters."""
    for name, declared in variant.scratch.items():
        yield from _problems_of_output(name, declared, names.values, variant.line)
    for requirement in words(variant.requires):
        yield from problems_of_requirement(requirement, names.values, variant.line)
    for name, value in variant.params.items():
        if callable(value):
            what = f"parameter {name!r} of variant {variant.name!r}"
            yield from unknown_names(value, names.axes, what, variant.line)
    if variant.only is not None:
        yield from unknown_names(
            variant.only, names.axes + names.params, f"only of variant {variant.name!r}", variant.line
        )


def _problems_of_metrics(variant: Variant) -> Iterator[Problem]:
    """Yield a problem for each metric whose name is malformed or taken."""
    taken = dict.fromkeys((TIME, *AUXILIARY), "is a metric of perfsvc itself")
    for step in steps_of(variant):
        if not isinstance(step, MetricStep):
            continue
        if not fits_in_an_id(step.name):
            yield Problem(
                f"variant {variant.name!r} has the metric {step.name!r}", step.line, "use letters, digits and _ . + -"
            )
        if step.name in taken:
            yield Problem(
                f"variant {variant.name!r}: the metric {step.name!r} {taken[step.name]}", step.line, "rename it"
            )
        taken[step.name] = "exists already"


def _problems_of_launch(step: LaunchStep, variant: Variant, names: _VariantNames) -> Iterator[Problem]:
    """Yield the problems of a launch: functions that ask for unknown names, its entry, and its tensor maps."""
    fields: dict[str, object] = {
        "grid": step.grid,
        "block": step.block,
        "shared_bytes": step.shared_bytes,
        "cluster": step.cluster,
    }
    for position, arg in enumerate(step.args, 1):
        for part in parts_of([arg]):
            if isinstance(part, Scalar) and callable(part.value):
                fields[f"argument {position}"] = part.value
            if isinstance(part, TensorMap):
                fields[f"box of the tensor map of {part.buffer!r},"] = part.box
                fields[f"swizzle of the tensor map of {part.buffer!r},"] = part.swizzle
    for field, value in fields.items():
        if callable(value):
            yield from unknown_names(value, names.values, f"{field} of variant {variant.name!r}", step.line)
    if not _ENTRY.fullmatch(step.entry):
        yield Problem(
            f"variant {variant.name!r}: the entry is {step.entry!r}",
            step.line,
            'name a __global__ function as C++ does: "scale", or "tiled::sum<float, {BLOCK}>"',
        )
    yield from problems_of_tensor_maps(step.args, step.line)


def _problems_of_order(variant: Variant) -> Iterator[Problem]:
    """Yield a problem for each programmatic launch that does not follow a launch."""
    for before, step in pairwise((None, *steps_of(variant))):
        if isinstance(step, LaunchStep) and step.programmatic and not isinstance(before, LaunchStep):
            yield Problem(
                f"variant {variant.name!r}: the launch of {step.entry} is programmatic, and no launch comes before it",
                step.line,
                "put it right after the launch that it depends on, or remove programmatic",
            )


def _problems_of_call(step: CallStep, variant: Variant, file: BenchFile) -> Iterator[Problem]:
    """Yield a problem if the called function is not defined at the top level of the benchmark file."""
    name = getattr(step.function, "__name__", "")
    if file.names.get(name) is not step.function:
        yield Problem(
            f"variant {variant.name!r} calls {name or step.function!r}, which is no function of this file",
            step.line,
            "define it at the top level with def: a worker process finds it there by its name",
        )


def _problems_of_buffers(variant: Variant, names: _VariantNames) -> Iterator[Problem]:
    """Yield the problems of the buffers in a variant's steps: unknown names, written inputs, unused outputs."""
    steps = steps_of(variant)
    yield from problems_of_placed_names(variant, names.buffers)
    for step in steps:
        for use, name, known in _uses(step, names):
            if name not in known:
                yield Problem(f"variant {variant.name!r}: {use} {name!r} is not known", step.line, nearest(name, known))
        written = step.buffer if isinstance(step, MemsetStep) else ""
        if isinstance(step, FinishStep | PeerCopyStep | AllReduceStep):
            written = step.target
        if written in names.inputs and written not in names.outputs:
            yield Problem(
                f"variant {variant.name!r} writes the input {written!r}",
                step.line,
                "write an output or scratch; declare an input that is changed in place in outputs too",
            )
    used = {name for step in steps if not isinstance(step, MetricStep) for name in buffers_of(step, names.buffers)}
    for name in names.outputs if kind_of(variant) is not Kind.PROGRAM else ():  # a program checks its own results
        if name not in used:
            yield Problem(
                f"variant {variant.name!r} has no step that uses the output {name!r}", variant.line, "pass it in args"
            )


def _uses(step: StepWritten, names: _VariantNames) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield for each name that a step uses: words for its use, the name, and the names that would be valid.

    For example ``("the memset buffer", "y", ("x", "y"))``.
    """
    match step:
        case LaunchStep():
            for arg in parts_of(step.args):
                yield from _uses_of_argument(arg, names)
            for symbol, buffer in step.constants.items():
                yield f"constant {symbol!r}: the buffer", buffer, names.buffers
        case PackageStep():
            for arg in parts_of(arguments_of(step)) if step.args is not None else ():
                yield from _uses_of_argument(arg, names)
        case MemsetStep():
            yield "the memset buffer", step.buffer, names.buffers
        case FinishStep():
            yield "the finish source", step.source, names.buffers
            yield "the finish target", step.target, names.buffers
        case MetricStep():
            yield "the metric buffer", step.buffer, names.buffers
        case PeerCopyStep() | AllReduceStep():
            yield "the source", step.source, names.buffers
            yield "the target", step.target, names.buffers


def _uses_of_argument(
    arg: str | Scalar | TensorMap | Peer, names: _VariantNames
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (use, name, known names) if a kernel argument refers to a name."""
    if isinstance(arg, str):
        yield "argument", arg, names.buffers + names.values
    elif isinstance(arg, TensorMap):
        yield "the tensor_map buffer", arg.buffer, names.buffers
    elif isinstance(arg, Peer):
        yield "the peer buffer", arg.buffer, names.buffers
    elif isinstance(arg.value, str):
        yield "argument", arg.value, names.values
