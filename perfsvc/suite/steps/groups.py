"""Variants on several GPUs: where their arrays are, and which step runs on which GPU."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfsvc.model import (
    AllReduce,
    Array,
    Barrier,
    Buffer,
    BufferArg,
    Kind,
    Launch,
    Part,
    PeerCopy,
    Step,
    StructArg,
    TensorMapArg,
)
from perfsvc.suite.authoring import (
    AllReduceStep,
    LaunchStep,
    MemsetStep,
    Peer,
    PeerCopyStep,
    StepWritten,
    Variant,
    words,
)
from perfsvc.suite.values import Problem, evaluate, integer, nearest

ALL = "all"
LEAST_GPUS = 2
"""How many GPUs ``gpus="all"`` means where the machine is not known, and at least."""
MOST_GPUS = 256
"""No machine has more GPUs. The CPU device stands in for any number of them, and each takes memory and time."""
GPU, GPUS = "gpu", "gpus"
"""The names that the functions of a variant on several GPUs may ask for: the position of a GPU, and their number."""
NCCL_DTYPES = frozenset(
    {"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"}
)
"""The types that NCCL can reduce, and that the CPU device can reduce too."""

_Placed = Sequence[Mapping[str, Buffer]]
"""For each GPU, the buffers that it has, by the name of the array."""


def uses_several(variant: Variant) -> bool:
    """Return whether a variant is written for several GPUs."""
    return variant.gpus != 1


def gpus_of(variant: Variant, point: Mapping[str, object], all_gpus: int = LEAST_GPUS) -> int:
    """Return how many GPUs a variant uses at a point; ``all_gpus`` is what ``"all"`` means.

    Raises:
        Problem: the number is no integer, is below 1 or too large, or differs from the axis ``gpus``.
    """
    if variant.gpus == ALL:
        return all_gpus
    what = f"gpus of variant {variant.name!r}"
    gpus = integer(evaluate(variant.gpus, dict(point), what, variant.line), what, variant.line)
    if not 1 <= gpus <= MOST_GPUS:
        raise Problem(f"{what} is {gpus}", variant.line, f'make it 1 to {MOST_GPUS}, or "all"')
    if uses_several(variant) and point.get(GPUS, gpus) != gpus:
        raise Problem(
            f"{what} is {gpus}, and the axis 'gpus' is {point[GPUS]}",
            variant.line,
            "let the variant follow the axis: gpus=lambda gpus: gpus",
        )
    return gpus


# --- problems of how a variant is written ----------------------------------------------------------------------------


def problems_of_group(
    variant: Variant, kind: Kind, steps: Sequence[StepWritten], names: Sequence[str]
) -> Iterator[Problem]:
    """Yield the problems of what a variant says about several GPUs.

    Args:
        variant: the variant, whose fields have the right types.
        kind: how it is timed.
        steps: its steps.
        names: the names of its axes and parameters.
    """
    what = f"variant {variant.name!r}"
    if not uses_several(variant):
        yield from _problems_of_one_gpu(variant, steps)
        return
    if kind is not Kind.KERNEL:
        yield Problem(f"{what} is of the kind {kind} and has gpus", variant.line, "only kernels run on several GPUs")
    if variant.graph:
        yield Problem(f"{what} has gpus and graph", variant.line, "keep one of them: a graph has one GPU")
    for step in steps:
        if not isinstance(step, LaunchStep | MemsetStep | PeerCopyStep | AllReduceStep):
            yield Problem(
                f"{what} has gpus and a step that works on one GPU only",
                step.line,
                "on several GPUs, use launch, memset, peer_copy and all_reduce",
            )
    for name in {GPU} & set(names):
        yield Problem(f"{what} has gpus, and {name!r} is an axis or parameter", variant.line, "rename it")
    for name in words(variant.split):
        if name in variant.on:
            yield Problem(f"{what}: {name!r} is in split and in on", variant.line, "keep one of them")


def _problems_of_one_gpu(variant: Variant, steps: Sequence[StepWritten]) -> Iterator[Problem]:
    """Yield a problem for everything that makes sense on several GPUs only."""
    what, cure = f"variant {variant.name!r}", "say how many GPUs it uses: gpus=2"
    for field in ("split", "on"):
        if getattr(variant, field):
            yield Problem(f"{what} has {field} and uses one GPU", variant.line, cure)
    for step in steps:
        others = isinstance(step, PeerCopyStep | AllReduceStep)
        if isinstance(step, LaunchStep):
            others = step.gpu is not None or any(isinstance(arg, Peer) for arg in step.args)
        if others:
            yield Problem(f"{what} names another GPU and uses one GPU", step.line, cure)


def problems_of_placed_names(variant: Variant, names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each name in ``split`` and ``on`` that is no array; ``names`` are the arrays."""
    for name in (*words(variant.split), *variant.on):
        if name not in names:
            yield Problem(
                f"variant {variant.name!r} places {name!r}, which is no array", variant.line, nearest(name, names)
            )


# --- resolving -------------------------------------------------------------------------------------------------------


def place(buffers: Mapping[str, Buffer], variant: Variant, gpus: int, *, sized: bool = True) -> _Placed:
    """Return the buffers of each GPU by the names of their arrays.

    Args:
        buffers: the arrays.
        variant: the variant.
        gpus: how many GPUs it uses.
        sized: whether the arrays have the sizes of their point, so that their rows can be counted.

    Raises:
        Problem: the rows of an array cannot be shared equally, or an array is on a GPU that the variant does not use.
    """
    split = words(variant.split)
    for name, gpu in variant.on.items():
        if not 0 <= gpu < gpus:
            raise Problem(
                f"variant {variant.name!r} has {name!r} on GPU {gpu}, and uses {gpus} GPUs",
                variant.line,
                f"count GPUs from 0 to {gpus - 1}",
            )
    return tuple(
        {
            name: _on_gpu(buffer, gpu, _rows(buffer, variant, gpus, sized=sized) if name in split else None)
            for name, buffer in buffers.items()
            if variant.on.get(name, gpu) == gpu
        }
        for gpu in range(gpus)
    )


def _rows(buffer: Buffer, variant: Variant, gpus: int, *, sized: bool) -> int:
    """Return how many rows of an array each GPU has; raise ``Problem`` if they cannot be shared equally."""
    array = buffer.array
    if sized and array.shape[0] % gpus:
        raise Problem(
            f"variant {variant.name!r} splits {array.name!r}, and its {array.shape[0]} rows are no multiple of {gpus}",
            variant.line,
            "choose sizes that are a multiple of the number of GPUs",
        )
    return max(array.shape[0] // gpus, 1)


def _on_gpu(buffer: Buffer, gpu: int, rows: int | None) -> Buffer:
    """Return the buffer that a GPU has of an array: ``rows`` rows of it, or all of it."""
    array = buffer.array
    part = Part(array.name) if rows is None else Part(array.name, gpu * rows, (gpu + 1) * rows)
    shape = array.shape if rows is None else (rows, *array.shape[1:])
    return Buffer(Array(name_on(array.name, gpu), array.dtype, shape), buffer.role, gpu, part)


def name_on(array: str, gpu: int) -> str:
    """Return the name of the buffer that a GPU has of an array: ``x@1``."""
    return f"{array}@{gpu}"


def seen_from(placed: _Placed, gpu: int) -> dict[str, Buffer]:
    """Return the buffer that each array's name means in a step of a GPU: its own, else that of the only GPU with it."""
    everywhere = {name: buffer for buffers in placed for name, buffer in buffers.items()}
    return everywhere | dict(placed[gpu])


def spread(
    steps: Sequence[StepWritten], variant: Variant, placed: _Placed, resolved: Callable[[StepWritten, int], Step]
) -> tuple[Step, ...]:
    """Return the steps of all GPUs, with barriers before and after the steps that use memory of other GPUs.

    Args:
        steps: what the author wrote.
        variant: the variant.
        placed: the buffers of each GPU.
        resolved: returns a launch or memset as one GPU runs it.
    """
    everything: list[Step] = []
    crossed = False
    for step in steps:
        on_gpus = tuple(_on_each(step, variant, placed, resolved))
        crosses = any(_crosses(each, placed) for each in on_gpus)
        if everything and (crosses or crossed):
            everything.append(Barrier())
        everything += on_gpus
        crossed = crosses
    return tuple(everything)


def _on_each(
    step: StepWritten, variant: Variant, placed: _Placed, resolved: Callable[[StepWritten, int], Step]
) -> Iterator[Step]:
    """Yield what each GPU does in a step."""
    gpus = range(len(placed))
    match step:
        case PeerCopyStep():
            yield from _copies(step, variant, placed)
        case AllReduceStep():
            yield _all_reduce(step, variant, placed)
        case MemsetStep():
            yield from (resolved(step, gpu) for gpu in gpus if step.buffer in placed[gpu])
        case LaunchStep():
            if step.gpu is not None and step.gpu not in gpus:
                raise Problem(
                    f"variant {variant.name!r} launches {step.entry!r} on GPU {step.gpu}, and uses {len(gpus)} GPUs",
                    step.line,
                    f"count GPUs from 0 to {len(gpus) - 1}",
                )
            for gpu in gpus if step.gpu is None else (step.gpu,):
                launch = resolved(step, gpu)
                if isinstance(launch, Launch):
                    yield replace(launch, gpu=gpu)


def _crosses(step: Step, placed: _Placed) -> bool:
    """Return whether a step uses memory of another GPU than its own, so that it must wait for that GPU."""
    if isinstance(step, Launch):
        own = {buffer.array.name for buffer in placed[step.gpu].values()}
        fields = [field for arg in step.args if isinstance(arg, StructArg) for _, field in arg.fields]
        return any(arg.buffer not in own for arg in (*step.args, *fields) if isinstance(arg, BufferArg | TensorMapArg))
    return isinstance(step, PeerCopy)


def _copies(step: PeerCopyStep, variant: Variant, placed: _Placed) -> Iterator[PeerCopy]:
    """Yield the copies of a ``peer_copy``: one, or one from each GPU to the next."""
    sources = [buffers[step.source] for buffers in placed if step.source in buffers]
    targets = [buffers[step.target] for buffers in placed if step.target in buffers]
    if len(sources) != len(targets) or (len(sources) == 1 and sources[0].gpu == targets[0].gpu):
        raise Problem(
            f"variant {variant.name!r} copies {step.source!r}, which {_where(sources)}, to {step.target!r}, which "
            f"{_where(targets)}",
            step.line,
            'put each array on a GPU of its own, on={"x": 0, "y": 1}, or let every GPU have both',
        )
    if len(sources) > 1:
        targets = [*targets[1:], targets[0]]
    for source, target in zip(sources, targets, strict=True):
        yield PeerCopy(source.array.name, target.array.name)


def _where(buffers: Sequence[Buffer]) -> str:
    return f"is on GPU {buffers[0].gpu}" if len(buffers) == 1 else "is on every GPU"


def _nbytes(buffer: Buffer) -> int:
    return math.prod(buffer.array.shape) * np.dtype(buffer.array.dtype).itemsize


def _all_reduce(step: AllReduceStep, variant: Variant, placed: _Placed) -> AllReduce:
    """Return an all-reduce of the buffers of all GPUs."""
    sources = [buffers.get(step.source) for buffers in placed]
    targets = [buffers.get(step.target) for buffers in placed]
    present = [buffer for buffer in (*sources, *targets) if buffer]
    if len(present) != 2 * len(placed):
        raise Problem(
            f"variant {variant.name!r} reduces {step.source!r} to {step.target!r}, and not every GPU has both",
            step.line,
            "remove them from on=",
        )
    dtypes = list(dict.fromkeys(buffer.array.dtype for buffer in present))
    if len(dtypes) > 1 or dtypes[0] not in NCCL_DTYPES:
        raise Problem(
            f"variant {variant.name!r} reduces {step.source!r} to {step.target!r}, which are {' and '.join(dtypes)}",
            step.line,
            f"give both one of the types {', '.join(sorted(NCCL_DTYPES))}",
        )
    names = [buffer.array.name for buffer in present]
    return AllReduce(tuple(names[: len(placed)]), tuple(names[len(placed) :]), step.operation)


def require_sizes(steps: Sequence[StepWritten], variant: Variant, placed: _Placed) -> None:
    """Raise ``Problem`` if a step copies or reduces an array into an array of another size."""
    for step in steps:
        if not isinstance(step, PeerCopyStep | AllReduceStep):
            continue
        sizes = {name: _nbytes(seen_from(placed, 0)[name]) for name in (step.source, step.target)}
        if sizes[step.source] != sizes[step.target]:
            raise Problem(
                f"variant {variant.name!r}: on a GPU, {step.source!r} has {sizes[step.source]} bytes, and "
                f"{step.target!r} has {sizes[step.target]} bytes",
                step.line,
                "make both arrays equally large; each GPU has an equal share of an array in split=",
            )
