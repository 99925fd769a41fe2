"""A variant at a point → a case with nothing left to decide."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfsvc.model import (
    Arg,
    Array,
    Buffer,
    BufferArg,
    Call,
    Case,
    HostFinish,
    HostMetric,
    Kind,
    Launch,
    Memset,
    Role,
    ScalarArg,
    Step,
    Unit,
    Value,
)
from perfsvc.suite.authoring import (
    Argument,
    CallStep,
    FinishStep,
    LaunchStep,
    MemsetStep,
    MetricStep,
    StepWritten,
    TensorMap,
    Variant,
    cache_states_of,
    option_words,
    words,
)
from perfsvc.suite.benchfile import BenchFile
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.common import Common
from perfsvc.suite.expansion import Expansion, owner_of_reference
from perfsvc.suite.extents import block_of, grid_of, integer, shape_of
from perfsvc.suite.functions import evaluate
from perfsvc.suite.points import Point, is_value, plain
from perfsvc.suite.problem import Problem
from perfsvc.suite.requirements import exact_architecture
from perfsvc.suite.steps import buffers_of, compiled, steps_of
from perfsvc.suite.tensor_maps import tensor_map_arg

_ARCHITECTURE_OPTIONS = ("-arch", "--gpu-architecture", "-gencode", "--generate-code")


@dataclass(frozen=True, slots=True)
class _Scene:
    """All that the functions and arguments of a variant may ask for at one point."""

    folder: Path
    expansion: Expansion
    values: Mapping[str, Value]  # axes and parameters
    buffers: Mapping[str, Buffer]

    def said(self, field: str) -> str:
        return f"{field} of variant {self.expansion.variant.name!r}"


def case_of(file: BenchFile, expansion: Expansion, point: Point) -> Case:
    """The case of a variant at a point."""
    return Case(file.name, expansion.name, point, file.benchmark.version, expansion.formerly)


def params_at(expansion: Expansion, point: Point) -> dict[str, Value]:
    """The values of a variant's parameters at a point."""
    variant = expansion.variant
    params: dict[str, Value] = {}
    for name, written in expansion.params.items():
        what = f"parameter {name!r} of variant {variant.name!r}"
        value = plain(evaluate(written, dict(point), what, variant.line))
        if not is_value(value):
            raise Problem(f"{what} is {value!r}", variant.line, "make it an integer, a float or text")
        params[name] = value  # type: ignore[assignment] # is_value says so
    return params


def worth_running(expansion: Expansion, point: Point) -> bool:
    """Whether the author wants the variant to run at a point."""
    variant = expansion.variant
    if variant.only is None:
        return True
    values = {**dict(point), **params_at(expansion, point)}
    return bool(evaluate(variant.only, values, f"only of variant {variant.name!r}", variant.line))


def resolve(expansion: Expansion, common: Common) -> tuple[CaseSpec, ...]:
    """A case with its buffers, units, steps and work, once for each of its cache states.

    Raises:
        Problem: one of the author's functions failed at this point, or gave what cannot be launched.
    """
    file, variant, case = common.file, expansion.variant, case_of(common.file, expansion, common.point)
    params = params_at(expansion, common.point)
    values = {**dict(common.point), **params}
    scene = _Scene(common.folder, expansion, values, {**common.buffers, **_scratch(variant, values)})
    written = steps_of(variant)
    units = _units(common.folder, written, params, _options(variant))
    used = {name for step in written for name in buffers_of(step, tuple(scene.buffers))} | set(file.benchmark.outputs)
    cache, *others = cache_states_of(variant)
    spec = CaseSpec(
        case=case,
        kind=Kind(variant.kind),
        cache=cache,
        requires=words(variant.requires),
        units=units,
        buffers=tuple(buffer for name, buffer in scene.buffers.items() if name in used),
        steps=tuple(_step(step, units, scene) for step in written),
        work=common.work,
        tolerance=common.tolerance,
        bench=common.path,
        bench_text=file.text,
        seed=common.seed,
        reference=owner_of_reference(file.benchmark, variant),
        variant_index=common.names.index(expansion.name),
        relative_to=file.benchmark.relative_to,
    )
    return (spec, *(replace(spec, cache=other) for other in others))


def _options(variant: Variant) -> tuple[str, ...]:
    """The author's compile options word by word, with the architecture that ``requires`` names if they name none."""
    written = option_words(variant.options)
    chosen = any(option.startswith(_ARCHITECTURE_OPTIONS) for option in written)
    return written if chosen else (*exact_architecture(words(variant.requires)), *written)


def _scratch(variant: Variant, values: Mapping[str, Value]) -> dict[str, Buffer]:
    own = {
        name: Array(name, np.dtype(made.dtype).name, shape_of(made.shape, values, name, variant.line))
        for name, made in variant.scratch.items()
    }
    return {name: Buffer(array, Role.SCRATCH) for name, array in own.items()}


def _array(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _units(
    folder: Path, steps: tuple[StepWritten, ...], params: Mapping[str, Value], options: tuple[str, ...]
) -> tuple[Unit, ...]:
    entries: dict[str, dict[str, None]] = {}
    for step in compiled(steps):
        entries.setdefault(step.source, {}).update({step.entry: None} if isinstance(step, LaunchStep) else {})
    defines = tuple(sorted(params.items()))
    return tuple(Unit(folder / source, tuple(names), defines, options) for source, names in entries.items())


def _step(step: StepWritten, units: tuple[Unit, ...], scene: _Scene) -> Step:
    match step:
        case LaunchStep():
            return _launch(step, units, scene)
        case MemsetStep():
            return Memset(step.buffer, step.byte)
        case FinishStep():
            target = scene.buffers[step.target].array
            if target.shape != (1,) * len(target.shape):
                raise Problem(
                    f"finish writes {step.target!r}, which is {_array(target)}", step.line, "reduce into one element"
                )
            return HostFinish(step.operation, step.source, step.target)
        case MetricStep():
            return HostMetric(step.name, step.operation, step.buffer)
        case CallStep():
            return Call(step.function.__name__, _module(step.source, units, scene) if step.source else None, step.timed)


def _launch(step: LaunchStep, units: tuple[Unit, ...], scene: _Scene) -> Launch:
    values = scene.values
    what = scene.said("shared_bytes")
    shared = integer(evaluate(step.shared_bytes, values, what, step.line), what, step.line)
    if shared < 0:
        raise Problem(f"{what} is {shared}", step.line, "make it 0 or more")
    return Launch(
        module=_module(step.source, units, scene),
        entry=step.entry,
        grid=grid_of(step.grid, values, scene.said("grid"), step.line),
        block=block_of(step.block, values, scene.said("block"), step.line),
        args=tuple(_argument(arg, step.line, scene) for arg in step.args),
        shared_bytes=shared,
        constants=tuple(step.constants.items()),
    )


def _module(source: str, units: tuple[Unit, ...], scene: _Scene) -> int:
    return [unit.source for unit in units].index(scene.folder / source)


def _argument(arg: Argument, line: int, scene: _Scene) -> Arg:
    if isinstance(arg, str) and arg in scene.buffers:
        return BufferArg(arg)
    if isinstance(arg, TensorMap):
        return tensor_map_arg(arg, scene.buffers[arg.buffer].array, scene.values, line)
    if isinstance(arg, str):
        value = scene.values[arg]
        return _scalar(arg, "float32" if isinstance(value, float) else "int32", value, line)
    name = arg.value if isinstance(arg.value, str) else ""
    value = scene.values[name] if name else evaluate(arg.value, scene.values, scene.said("an argument"), line)
    return _scalar(name, arg.dtype, plain(value), line)


def _scalar(name: str, dtype: str, value: Any, line: int) -> ScalarArg:
    what = f"argument {name!r}" if name else f"an {dtype} argument"
    if not is_value(value) or isinstance(value, str):
        raise Problem(
            f"{what} is {value!r}, which no kernel takes", line, "pass a number; text can be a parameter (-D)"
        )
    if np.dtype(dtype).kind == "f":
        return ScalarArg(name, dtype, float(value))
    number, limits = integer(value, what, line), np.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        cure = (
            f"pass it by i64({repr(name) if name else '...'}) to a long long"
            if dtype == "int32"
            else "pass a smaller number"
        )
        raise Problem(f"{what} is {number}: too large for {dtype}", line, cure)
    return ScalarArg(name, dtype, number)
