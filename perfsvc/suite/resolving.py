"""Resolve a variant at a point into a case, in which every function of the author is evaluated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from perfsvc.model import (
    PRECISIONS,
    Arg,
    Array,
    Buffer,
    BufferArg,
    Call,
    Case,
    HostFinish,
    HostMetric,
    Launch,
    LibraryCall,
    Memset,
    Role,
    ScalarArg,
    Step,
    Tolerance,
    Unit,
    Value,
    Work,
)
from perfsvc.suite.arrays import Shapes, seed_of
from perfsvc.suite.authoring import (
    AllReduceStep,
    Argument,
    CallStep,
    FinishStep,
    LaunchStep,
    LibraryStep,
    MemsetStep,
    MetricStep,
    PackageStep,
    Peer,
    PeerCopyStep,
    ProgramStep,
    Scalar,
    StepWritten,
    Struct,
    TensorMap,
    Variant,
    Words,
    cache_states_of,
    option_words,
    words,
)
from perfsvc.suite.benchfile import BenchFile
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.points import Expansion, Point, expansions_of, is_value, plain, reference_index
from perfsvc.suite.requirements import exact_architecture, tensor_map_arg
from perfsvc.suite.signatures import array_dtypes, differs, struct_arg
from perfsvc.suite.steps import buffers_of, compiled_steps, groups, kind_of, requirements, steps_of
from perfsvc.suite.steps.graphs import graph_of
from perfsvc.suite.steps.packages import PYTHON, arguments_of, resolved
from perfsvc.suite.steps.programs import files_of, libraries_of, resolve_program
from perfsvc.suite.values import Problem, block_of, cluster_of, evaluate, filled_in, grid_of, integer, shape_of

_PRECISION_OF: Mapping[str, str] = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
"""The precision of operations on arrays of a dtype, unless the author says that they are rounded."""
_ARCHITECTURE_OPTIONS = ("-arch", "--gpu-architecture", "-gencode", "--generate-code")


def case_of(file: BenchFile, expansion: Expansion, point: Point) -> Case:
    """Return the case of a variant at a point."""
    return Case(file.name, expansion.name, point, file.benchmark.version, expansion.formerly)


def params_at(expansion: Expansion, point: Point) -> dict[str, Value]:
    """Return the values of a variant's parameters at a point."""
    variant = expansion.variant
    params: dict[str, Value] = {}
    for name, written in expansion.params.items():
        what = f"parameter {name!r} of variant {variant.name!r}"
        value = plain(evaluate(written, dict(point), what, variant.line))
        if not is_value(value):
            raise Problem(f"{what} is {value!r}", variant.line, "make it an integer of 64 bits, a float or text")
        params[name] = value  # type: ignore[assignment] # is_value has checked it
    return params


def worth_running(expansion: Expansion, point: Point) -> bool:
    """Return whether a variant runs at a point; its condition ``only`` decides, if it has one."""
    variant = expansion.variant
    if variant.only is None:
        return True
    values = {**dict(point), **params_at(expansion, point)}
    return bool(evaluate(variant.only, values, f"only of variant {variant.name!r}", variant.line))


@dataclass(frozen=True, eq=False)
class BenchmarkPoint:
    """A benchmark at one point. Values that are equal for all variants are computed when the first variant needs them.

    Each attribute raises ``Problem`` if one of the author's functions fails or returns an unusable value.

    Attributes:
        inputs: the shapes of the input arrays.
        has_own_inputs: whether the inputs were made at this point. When a file is checked, they are made at the smoke
            point only, and sizes of other points are not compared.
    """

    file: BenchFile
    point: Point
    inputs: Shapes
    has_own_inputs: bool = True

    @cached_property
    def path(self) -> Path:
        """The absolute path of the benchmark file."""
        return self.file.path.absolute()

    @cached_property
    def buffers(self) -> Mapping[str, Buffer]:
        """The buffers of the inputs, then the buffers of the outputs that are not also inputs."""
        outputs = _arrays(self.file.benchmark.outputs, dict(self.point), self.file.benchmark.line)
        return {
            name: Buffer(array, Role.INOUT if name in outputs else Role.INPUT) for name, array in self.inputs.items()
        } | {name: Buffer(array, Role.OUTPUT) for name, array in outputs.items() if name not in self.inputs}

    @cached_property
    def work(self) -> Work:
        """The work of one run of a variant."""
        line = self.file.benchmark.line
        work = evaluate(self.file.benchmark.work, dict(self.point), "work", line)
        if not isinstance(work, Work):
            raise Problem(f"work is {work!r}", line, "return Work(read_bytes=..., written_bytes=..., flops=...)")
        if work.precision and work.precision not in PRECISIONS:
            raise Problem(f"precision is {work.precision!r}", line, f"name one of {', '.join(PRECISIONS)}")
        read_bytes, written_bytes, flops, link_bytes = (
            integer(getattr(work, field), field, line)
            for field in ("read_bytes", "written_bytes", "flops", "link_bytes")
        )
        return Work(read_bytes, written_bytes, flops, work.precision or self._precision, link_bytes)

    @property
    def _precision(self) -> str:
        """The fastest precision in which the inputs can be computed with; that of the outputs if there are no inputs.

        Empty if none of these arrays has floats.
        """
        arrays = self.inputs.values() or [buffer.array for buffer in self.buffers.values()]
        precisions = {_PRECISION_OF.get(array.dtype, "") for array in arrays}
        return max(precisions & PRECISIONS.keys(), key=list(PRECISIONS).index, default="")

    @cached_property
    def tolerance(self) -> Tolerance:
        """The largest error of a correct result; zero if the benchmark has no outputs."""
        benchmark = self.file.benchmark
        if not benchmark.outputs:
            return Tolerance(max=0.0, mean=0.0)
        tolerance = evaluate(benchmark.tolerance, dict(self.point), "tolerance", benchmark.line)
        if not isinstance(tolerance, Tolerance) or not (tolerance.max >= 0 and tolerance.mean >= 0):
            raise Problem(
                f"tolerance is {tolerance!r}", benchmark.line, "return Tolerance(max=..., mean=...), neither negative"
            )
        return tolerance


def replay_tolerance(file: BenchFile, point: Point) -> Tolerance:
    """Return a benchmark's tolerance at a point of an earlier run; raises ``SuiteError`` if it is unusable."""
    try:
        return BenchmarkPoint(file, point, {}).tolerance
    except Problem as problem:
        raise problem.at(file.path) from problem


def resolve(expansion: Expansion, at: BenchmarkPoint, all_gpus: int = groups.LEAST_GPUS) -> tuple[CaseSpec, ...]:
    """Return the case of a variant with its buffers, units, steps and work, once for each of its cache states.

    Args:
        expansion: the variant.
        at: the point.
        all_gpus: how many GPUs ``gpus="all"`` means.

    Raises:
        Problem: one of the author's functions failed at this point, or returned something that cannot be launched.
    """
    benchmark, variant = at.file.benchmark, expansion.variant
    params = params_at(expansion, at.point)
    values = {**dict(at.point), **params}
    gpus = groups.gpus_of(variant, dict(at.point), all_gpus)
    if groups.uses_several(variant):
        values[groups.GPUS] = gpus
    scratch = _arrays(variant.scratch, values, variant.line)
    buffers = {**at.buffers, **{name: Buffer(array, Role.SCRATCH) for name, array in scratch.items()}}
    steps = tuple(_with_entry(step, variant, values) for step in steps_of(variant))
    units = _units(at.path.parent, steps, params, _options(variant))
    resolver = _StepResolver(at.path.parent, variant, values, buffers, units, at.file.names)
    used = {name for step in steps for name in buffers_of(step, tuple(buffers))}
    if not isinstance(variant.run, ProgramStep):
        used |= set(benchmark.outputs)
    if groups.uses_several(variant):
        needed = {name: buffer for name, buffer in buffers.items() if name in used}
        placed = groups.place(needed, variant, gpus, sized=at.has_own_inputs)
        resolved = groups.spread(steps, variant, placed, lambda step, gpu: resolver.on(gpu, placed).step(step))
        if at.has_own_inputs:
            groups.require_sizes(steps, variant, placed)
        kept = tuple(buffer for of_gpu in placed for buffer in of_gpu.values())
    else:
        resolved = tuple(resolver.step(step) for step in steps)
        kept = tuple(buffer for name, buffer in buffers.items() if name in used)
    cache, *other_caches = cache_states_of(variant)
    spec = CaseSpec(
        case=case_of(at.file, expansion, at.point),
        kind=kind_of(variant),
        cache=cache,
        requires=requirements(variant),
        units=units,
        buffers=kept,
        steps=resolved,
        work=at.work,
        tolerance=at.tolerance,
        bench=at.path,
        bench_text=at.file.text,
        seed=seed_of(at.file.name, benchmark.version, at.point),
        reference=reference_index(benchmark, variant),
        variant_index=[other.name for other in expansions_of(benchmark)].index(expansion.name),
        relative_to=benchmark.relative_to,
        files=files_of(variant, resolved, at.path.parent),
        graph=graph_of(variant),
        gpus=gpus,
        all_gpus=variant.gpus == groups.ALL,
    )
    return (spec, *(replace(spec, cache=other) for other in other_caches))


def _with_entry(step: StepWritten, variant: Variant, values: Mapping[str, Value]) -> StepWritten:
    """Return a launch with the values of axes and parameters in the name of its kernel; other steps as they are."""
    if not isinstance(step, LaunchStep):
        return step
    entry = filled_in(step.entry, values, variant.name, step.line)
    return replace(step, entry=" ".join(entry.split()))


def _options(variant: Variant) -> tuple[str, ...]:
    """Return the author's compile options; if they name no architecture, add one that ``requires`` names exactly."""
    options = option_words(variant.options)
    if any(option.startswith(_ARCHITECTURE_OPTIONS) for option in options):
        return options
    return (*exact_architecture(words(variant.requires)), *options)


def _arrays(declared: Mapping[str, Any], values: Mapping[str, Value], line: int) -> dict[str, Array]:
    """Return the name, dtype and shape of each declared array, for these values of axes and parameters."""
    return {
        name: Array(name, np.dtype(output.dtype).name, shape_of(output.shape, values, name, line))
        for name, output in declared.items()
    }


def _units(
    folder: Path, steps: tuple[StepWritten, ...], params: Mapping[str, Value], options: tuple[str, ...]
) -> tuple[Unit, ...]:
    """Return one unit, with all its kernels, for each source file or group of linked files, and for each library."""
    entries: dict[tuple[tuple[str, ...], tuple[str, ...] | None], dict[str, None]] = {}
    for step in compiled_steps(steps):
        names = {step.entry: None} if isinstance(step, LaunchStep | LibraryStep) else {}
        entries.setdefault((words(step.source), libraries_of(step)), {}).update(names)
    defines = tuple(sorted(params.items()))
    return tuple(
        Unit(
            folder / source,
            tuple(names),
            defines,
            () if source.endswith(PYTHON) else options,
            libraries,
            tuple(folder / other for other in others),
        )
        for ((source, *others), libraries), names in entries.items()
    )


@dataclass(frozen=True, slots=True)
class _StepResolver:
    """Resolves the steps of a variant at one point.

    ``values`` holds the values of axes and parameters, and ``names`` what the benchmark file defines.
    """

    folder: Path
    variant: Variant
    values: Mapping[str, Value]
    buffers: Mapping[str, Buffer]
    units: tuple[Unit, ...]
    names: Mapping[str, Any]

    def on(self, gpu: int, placed: Sequence[Mapping[str, Buffer]]) -> "_StepResolver":
        """Return a resolver of the steps of one GPU; ``placed`` has the buffers of each GPU."""
        return replace(self, values={**self.values, groups.GPU: gpu}, buffers=groups.seen_from(placed, gpu))

    def step(self, step: StepWritten) -> Step:  # noqa: PLR0911 - one for each kind of step
        """Return a step with all its functions evaluated; raise ``Problem`` if it cannot run."""
        match step:
            case LaunchStep():
                return self._launch(step)
            case MemsetStep():
                return Memset(self.buffers[step.buffer].array.name, step.byte)
            case FinishStep():
                return self._finish(step)
            case MetricStep():
                return HostMetric(step.name, step.operation, step.buffer)
            case CallStep():
                module = self._module(step.source) if step.source else None
                return Call(step.function.__name__, module, step.timed)
            case PackageStep():
                return resolved(
                    step,
                    variant=self.variant.name,
                    names=self.names,
                    values=self.values,
                    args=tuple(self._argument(arg, step.line, _types_by_name(step)) for arg in arguments_of(step)),
                    buffers=self.buffers,
                    module=self._module(step.source) if step.source else None,
                )
            case LibraryStep():
                values = tuple(sorted(self.values.items()))
                return LibraryCall(self._module(step.source, libraries_of(step)), step.entry, values)
            case ProgramStep():
                return resolve_program(step, self.variant, self.values)
            case PeerCopyStep() | AllReduceStep():
                raise Problem(f"variant {self.variant.name!r} uses one GPU", step.line, "say gpus=2")

    def _finish(self, step: FinishStep) -> HostFinish:
        """Return a reduction on the host; raise ``Problem`` if its target has more than one element."""
        target = self.buffers[step.target].array
        if target.shape != (1,) * len(target.shape):
            raise Problem(
                f"finish writes {step.target!r}, which is {target.dtype}{list(target.shape)}",
                step.line,
                "reduce into one element",
            )
        return HostFinish(step.operation, step.source, step.target)

    def _launch(self, step: LaunchStep) -> Launch:
        """Return a launch with its grid, block, arguments and shared memory as numbers."""
        what = self._field("shared_bytes")
        shared_bytes = integer(evaluate(step.shared_bytes, self.values, what, step.line), what, step.line)
        if shared_bytes < 0:
            raise Problem(f"{what} is {shared_bytes}", step.line, "make it 0 or more")
        self._require_types(step)
        grid = grid_of(step.grid, self.values, self._field("grid"), step.line)
        return Launch(
            module=self._module(step.source),
            entry=step.entry,
            grid=grid,
            block=block_of(step.block, self.values, self._field("block"), step.line),
            args=tuple(self._argument(arg, step.line) for arg in step.args),
            shared_bytes=shared_bytes,
            constants=tuple((symbol, self.buffers[name].array.name) for symbol, name in step.constants.items()),
            cluster=cluster_of(step.cluster, grid, self.values, self._field("cluster"), step.line),
            cooperative=step.cooperative,
            programmatic=step.programmatic,
        )

    def _require_types(self, step: LaunchStep) -> None:
        """Raise ``Problem`` if the kernel's source declares an array with another precision than the suite gives it."""
        source = words(step.source)[0]
        for argument, declared in zip(step.args, array_dtypes(self.folder / source, step.entry), strict=False):
            buffer = self.buffers.get(argument) if isinstance(argument, str) else None
            given = buffer.array.dtype if buffer else ""
            if differs(declared, given):
                raise Problem(
                    f"{argument!r} is {given}, but the kernel {step.entry!r} takes it as {declared}",
                    step.line,
                    f"make the array {declared} (astype(np.{declared})), or change the parameter in {source}",
                )

    def _field(self, name: str) -> str:
        return f"{name} of variant {self.variant.name!r}"

    def _module(self, source: Words, libraries: tuple[str, ...] | None = None) -> int:
        paths = [self.folder / name for name in words(source)]
        return [([unit.source, *unit.others], unit.libraries) for unit in self.units].index((paths, libraries))

    def _argument(self, arg: Argument, line: int, types: tuple[str, str] = ("int32", "float32")) -> Arg:
        """Return a kernel argument: a buffer, a tensor map, a struct, or a scalar with its value.

        ``types`` has the types of the values that are passed by the name of an axis or parameter: integers and floats.
        """
        if isinstance(arg, Peer):
            return BufferArg(self._peer(arg, line))
        if isinstance(arg, TensorMap):
            return tensor_map_arg(arg, self.buffers[arg.buffer].array, self.values, line)
        if isinstance(arg, Struct):
            return struct_arg(arg, lambda field: self._plain_argument(field, line, types))
        return self._plain_argument(arg, line, types)

    def _plain_argument(self, arg: str | Scalar, line: int, types: tuple[str, str]) -> BufferArg | ScalarArg:
        """Return a kernel argument that is the address of a buffer, or a number."""
        if isinstance(arg, str) and arg in self.buffers:
            return BufferArg(self.buffers[arg].array.name)
        if isinstance(arg, str):
            value = self.values[arg]
            return _scalar(arg, types[isinstance(value, float)], value, line)
        if isinstance(arg.value, str):
            return _scalar(arg.value, arg.dtype, self.values[arg.value], line)
        return _scalar("", arg.dtype, plain(evaluate(arg.value, self.values, self._field("an argument"), line)), line)

    def _peer(self, arg: Peer, line: int) -> str:
        """Return the name of the buffer on another GPU that an argument means."""
        if arg.buffer in self.variant.on:
            raise Problem(
                f"peer({arg.buffer!r}) names an array that only GPU {self.variant.on[arg.buffer]} has",
                line,
                f"pass {arg.buffer!r} itself: it means the array on that GPU",
            )
        gpu, gpus = (integer(self.values[name], name, line) for name in (groups.GPU, groups.GPUS))
        return groups.name_on(arg.buffer, (gpu + arg.offset) % gpus)


def _types_by_name(step: PackageStep) -> tuple[str, str]:
    """Return the types of integers and floats that a step passes by name.

    A kernel of CuPy gets the types of a kernel in C++. All others get Python's numbers.
    """
    return ("int32", "float32") if step.package == "cupy" and step.is_kernel else ("int64", "float64")


def _scalar(name: str, dtype: str, value: Any, line: int) -> ScalarArg:
    """Return a scalar argument; raise ``Problem`` if the value is no number or too large for the dtype."""
    what = f"argument {name!r}" if name else f"an {dtype} argument"
    if not is_value(value) or isinstance(value, str):
        raise Problem(
            f"{what} is {value!r}, which no kernel takes", line, "pass a number; text can be a parameter (-D)"
        )
    if np.dtype(dtype).kind == "f":
        return ScalarArg(name, dtype, float(value))
    number, limits = integer(value, what, line), np.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        long_long = f"pass it by i64({repr(name) if name else '...'}) to a long long"
        raise Problem(
            f"{what} is {number}: too large for {dtype}",
            line,
            long_long if dtype == "int32" else "pass a smaller number",
        )
    return ScalarArg(name, dtype, number)
