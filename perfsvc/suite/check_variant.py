"""What can be found wrong with one variant before it is resolved at a point."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfsvc.model import AUXILIARY, TIME, Array, Kind
from perfsvc.suite.arrays import NUMBERS
from perfsvc.suite.authoring import (
    BOTH,
    Argument,
    CallStep,
    FinishStep,
    LaunchStep,
    MemsetStep,
    MetricStep,
    Output,
    Scalar,
    StepWritten,
    TensorMap,
    Variant,
    words,
)
from perfsvc.suite.benchfile import BenchFile
from perfsvc.suite.expansion import problems_of_params
from perfsvc.suite.fields import misfits_of_step, misfits_of_variant
from perfsvc.suite.functions import nearest, unknown_names
from perfsvc.suite.points import axes_of, fits_in_an_id
from perfsvc.suite.problem import Problem
from perfsvc.suite.requirements import problems_of_requirement
from perfsvc.suite.steps import buffers_of, problems_of_form, problems_of_source, steps_of
from perfsvc.suite.tensor_maps import functions_of_tensor_maps, problems_of_tensor_maps


@dataclass(frozen=True, slots=True)
class _Names:
    """The names that a variant may use."""

    axes: tuple[str, ...]
    params: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scratch: tuple[str, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """What has a value: what functions may ask for."""
        return self.axes + self.params

    @property
    def buffers(self) -> tuple[str, ...]:
        """What has an address."""
        return tuple(dict.fromkeys(self.inputs + self.outputs + self.scratch))

    @property
    def constant(self) -> tuple[str, ...]:
        """The buffers that nothing may write."""
        return tuple(name for name in self.inputs if name not in self.outputs)


def problems_of_variant(file: BenchFile, variant: Variant, inputs: Mapping[str, Array] | None) -> Iterator[Problem]:
    """What is wrong with a variant; ``inputs`` are None where it is not known which there are."""
    found = misfits_of_variant(variant) or tuple(problems_of_form(variant)) or tuple(_misfits_of_steps(variant))
    yield from found or _problems_of_content(file, variant, inputs)


def problems_of_output(name: str, declared: Output, names: Sequence[str], line: int) -> Iterator[Problem]:
    """What is wrong with the dtype and the shape of an output or scratch array."""
    try:
        known = np.dtype(declared.dtype).kind in NUMBERS
    except TypeError:
        known = False
    if not known:
        yield Problem(f"{name!r} has the dtype {declared.dtype!r}", line, "name a NumPy dtype, such as float32")
    if callable(declared.shape):
        yield from unknown_names(declared.shape, names, f"shape of {name!r}", line)


def _misfits_of_steps(variant: Variant) -> Iterator[Problem]:
    if variant.steps:  # else the one step is made of the variant's own fields, which hold the right things
        for step in steps_of(variant):
            yield from misfits_of_step(step, variant.name)


def _problems_of_content(file: BenchFile, variant: Variant, inputs: Mapping[str, Array] | None) -> Iterator[Problem]:
    yield from _problems_of_names(variant)
    yield from _problems_of_cache(variant)
    yield from _problems_of_reference(variant, file)
    yield from _problems_of_metrics(variant)
    yield from problems_of_params(variant)
    yield from problems_of_source(variant, file.path.parent)
    axes = axes_of(file.benchmark)
    names = _Names(
        axes, tuple(variant.params), tuple(inputs or ()), tuple(file.benchmark.outputs), tuple(variant.scratch)
    )
    yield from _clashes(variant, names)
    for name, declared in variant.scratch.items():
        yield from problems_of_output(name, declared, names.values, variant.line)
    for requirement in words(variant.requires):
        yield from problems_of_requirement(requirement, names.values, variant.line)
    for name, value in variant.params.items():
        if callable(value):
            yield from unknown_names(value, axes, f"parameter {name!r} of variant {variant.name!r}", variant.line)
    if variant.only is not None:
        yield from unknown_names(variant.only, names.values, f"only of variant {variant.name!r}", variant.line)
    for step in steps_of(variant):
        yield from _problems_of_step(step, variant, names, file)
    if inputs is not None:
        yield from _problems_of_buffers(variant, names)


def _problems_of_names(variant: Variant) -> Iterator[Problem]:
    for what, names in (("name", (variant.name,)), ("former name", words(variant.formerly))):
        for name in names:
            if not fits_in_an_id(name):
                yield Problem(
                    f"variant {variant.name!r} has the {what} {name!r}", variant.line, "use letters, digits and _ . + -"
                )


def _problems_of_cache(variant: Variant) -> Iterator[Problem]:
    if Kind(variant.kind) is Kind.HOST and variant.cache == BOTH:
        yield Problem(
            f"variant {variant.name!r} is of the kind host and has the cache state both",
            variant.line,
            "leave cache state out: its functions take their times themselves, so both would be the same",
        )


def _problems_of_reference(variant: Variant, file: BenchFile) -> Iterator[Problem]:
    if variant.reference is not None and not file.benchmark.outputs:
        yield Problem(
            f"variant {variant.name!r} has a reference, and the benchmark has no outputs",
            variant.line,
            'declare what the reference computes: outputs={"c": output("float32", ...)}',
        )


def _problems_of_metrics(variant: Variant) -> Iterator[Problem]:
    taken = dict.fromkeys((TIME, *AUXILIARY), "is measured of every case")
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
        taken[step.name] = "is there already"


def _clashes(variant: Variant, names: _Names) -> Iterator[Problem]:
    others = {*names.axes, *names.inputs, *names.outputs}
    for name in (*names.params, *names.scratch):
        if name in others:
            yield Problem(
                f"variant {variant.name!r}: {name!r} is an axis, input or output already", variant.line, "rename it"
            )


def _problems_of_step(step: StepWritten, variant: Variant, names: _Names, file: BenchFile) -> Iterator[Problem]:
    if isinstance(step, LaunchStep):
        functions = {"grid": step.grid, "block": step.block, "shared_bytes": step.shared_bytes}
        scalars = {f"argument {i}": arg.value for i, arg in enumerate(step.args, 1) if isinstance(arg, Scalar)}
        for field, written in (functions | scalars | functions_of_tensor_maps(step.args)).items():
            if callable(written):
                yield from unknown_names(written, names.values, f"{field} of variant {variant.name!r}", step.line)
        if not step.entry.isidentifier():
            yield Problem(
                f"variant {variant.name!r}: the entry is {step.entry!r}",
                step.line,
                'name an extern "C" __global__ function, which has a plain name',
            )
        yield from problems_of_tensor_maps(step.args, step.line)
    if isinstance(step, CallStep):
        yield from _problems_of_call(step, variant, file)


def _problems_of_call(step: CallStep, variant: Variant, file: BenchFile) -> Iterator[Problem]:
    name = getattr(step.function, "__name__", "")
    if file.names.get(name) is not step.function:
        yield Problem(
            f"variant {variant.name!r} calls {name or step.function!r}, which is no function of this file",
            step.line,
            "define it at the top level with def: a worker process finds it there by its name",
        )


def _problems_of_buffers(variant: Variant, names: _Names) -> Iterator[Problem]:
    steps = steps_of(variant)
    for step in steps:
        for what, name, known in _named(step, names):
            if name not in known:
                yield Problem(
                    f"variant {variant.name!r}: {what} {name!r} is not known", step.line, nearest(name, known)
                )
        if _written(step) in names.constant:
            yield Problem(
                f"variant {variant.name!r} writes the input {_written(step)!r}",
                step.line,
                "write an output or scratch; an input that is changed in place is declared in outputs too",
            )
    working = [step for step in steps if not isinstance(step, MetricStep)]
    used = {name for step in working for name in buffers_of(step, names.buffers)}
    for name in names.outputs:
        if name not in used:
            yield Problem(
                f"variant {variant.name!r} has no step that uses the output {name!r}", variant.line, "pass it in args"
            )


def _named(step: StepWritten, names: _Names) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each name that a step uses: as what, the name, and the names it may be."""
    match step:
        case LaunchStep():
            for arg in step.args:
                yield from _named_by(arg, names)
            for symbol, buffer in step.constants.items():
                yield f"the buffer of the constant {symbol!r},", buffer, names.buffers
        case MemsetStep():
            yield "the buffer of memset,", step.buffer, names.buffers
        case FinishStep():
            yield "the source of finish,", step.source, names.buffers
            yield "the target of finish,", step.target, names.buffers
        case MetricStep():
            yield "the buffer of metric,", step.buffer, names.buffers


def _named_by(arg: Argument, names: _Names) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    if isinstance(arg, str):
        yield "argument", arg, names.buffers + names.values
    elif isinstance(arg, TensorMap):
        yield "the buffer of tensor_map,", arg.buffer, names.buffers
    elif isinstance(arg.value, str):
        yield "argument", arg.value, names.values


def _written(step: StepWritten) -> str:
    match step:
        case MemsetStep():
            return step.buffer
        case FinishStep():
            return step.target
        case _:
            return ""
