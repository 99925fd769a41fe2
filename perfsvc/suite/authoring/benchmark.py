"""Benchmarks and their variants."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal

from perfsvc.model import CacheState, Tolerance, Value, Work
from perfsvc.suite.authoring.arguments import Argument, Extent, Function, Output, Words
from perfsvc.suite.authoring.steps import LibraryStep, PackageStep, ProgramStep, StepWritten


def _line_in_bench() -> int:
    # Frame 0 is this function, frame 1 the generated __init__ that calls it, frame 2 the line in bench.py.
    return sys._getframe(2).f_lineno  # noqa: SLF001 - the only way to a caller's line without reading its source


def _line() -> Any:
    return field(init=False, repr=False, compare=False, default_factory=_line_in_bench)


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """One implementation of a benchmark.

    A variant is one launch (``source``, ``entry``, ``grid``, ``block``, ``args``, ``shared_bytes``, ``constants``,
    ``cluster``, ``cooperative``), or several ``steps``, or a Python function or a program to ``run``.

    Args:
        name: the variant's name in case ids; the values of tuples in ``params`` are appended: ``tiled-TILE32-PAD1``.
        kind: ``kernel`` (one stream, timed launch by launch), ``pipeline`` (timed end to end by the host) or ``host``
            (its functions return metrics).
        steps: the steps, if the variant is more than one launch.
        run: a function, short for ``steps=[call(run, source=source)]``; or the only step: ``triton(...)``,
            ``cupy(...)``, ``numba(...)``, ``torch(...)``, ``library(...)``, or a ``program(...)``, which measures
            itself.
        params: ``-D`` parameters: a value, a tuple of values (one variant each), or a function of the axes.
        options: further nvcc options, written as on a command line: ``"-O3 -DX=1"``.
        scratch: arrays that the steps share, by name.
        requires: what the variant needs: ``cuda``, ``sm_90`` (or newer), ``sm_90a`` (no other architecture),
            ``n % 4 == 0``, ``import cupy``.
        only: a function of axes and parameters that returns whether the variant runs at a point.
        cache: the L2 cache before each sample: ``cold``, ``warm``, or ``both``, which times each case twice.
        graph: True captures the steps in a CUDA graph and times replays of it. ``cold steps`` also empties the L2 cache
            before each step; then the time is the sum of the times of the steps.
        reference: a function for this variant's expected results, if the variant computes something else than the
            benchmark, such as a plain copy.
        formerly: earlier names; the variant continues their history.
        gpus: how many GPUs of one model a sample uses at once: a number, ``"all"``, or a function of the axes. Every
            step runs on each of them, with the GPU's own arrays. Functions of such a variant may ask for ``gpus``, and
            those of a launch for ``gpu``, the position of the GPU that they are called for.
        split: the arrays of which each GPU has an equal share of the rows (the first axis), in the order of the GPUs.
            Of any other array, every GPU has a copy.
        on: the arrays that only one GPU has, with the position of this GPU: ``{"x": 0, "y": 1}``.
    """

    name: str
    _: KW_ONLY
    kind: Literal["kernel", "pipeline", "host"] = "kernel"
    source: Words = ""
    entry: str = ""
    grid: Extent | Function | None = None
    block: Extent | Function | None = None
    args: Sequence[Argument] = ()
    shared_bytes: int | Function = 0
    constants: Mapping[str, str] = field(default_factory=dict)
    cluster: Extent | Function | None = None
    cooperative: bool = False
    steps: Sequence[StepWritten] = ()
    run: Function | PackageStep | LibraryStep | ProgramStep | None = None
    params: Mapping[str, Value | tuple[Value, ...] | Function] = field(default_factory=dict)
    options: Words = ()
    scratch: Mapping[str, Output] = field(default_factory=dict)
    requires: Words = ()
    only: Function | None = None
    cache: Literal["cold", "warm", "both"] = "cold"
    graph: bool | Literal["cold steps"] = False
    reference: Function | None = None
    formerly: Words = ()
    gpus: int | Literal["all"] | Function = 1
    split: Words = ()
    on: Mapping[str, int] = field(default_factory=dict)
    line: int = _line()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Benchmark:
    """One problem and the variants that solve it; a bench.py assigns its benchmark to the name ``benchmark``.

    Args:
        axes: the values of each axis; the full points are their product.
        points: the full points one by one, instead of ``axes``.
        smoke: the small point, for the CPU device, for quick runs and for the checks when the file is read.
        inputs: a function of ``rng`` and the axes that returns arrays by name; ``rng`` is a seeded
            ``numpy.random.Generator``. perfsvc calls the function with several seeds, and in several threads at once,
            so the function must depend only on its arguments and change nothing.
        outputs: the results by name; an output that ``inputs`` makes too is changed in place.
        reference: a function of inputs and axes that returns the results by name, or the only result. Floating inputs
            arrive in float64, so that plain NumPy is a float64 reference.
        tolerance: the largest error of a correct result, or a function of the axes.
        work: the work of one run of a variant, or a function of the axes.
        variants: the implementations.
        name: the benchmark's name in case ids; by default the folder's name.
        version: raise this number when the problem changes so much that the history of its cases should end.
        relative_to: the full name of the variant that the other variants are compared with at the same point.
    """

    axes: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    points: Sequence[Mapping[str, Value]] = ()
    smoke: Mapping[str, Value] = field(default_factory=dict)
    inputs: Function | None = None
    outputs: Mapping[str, Output] = field(default_factory=dict)
    reference: Function | None = None
    tolerance: Tolerance | Function | None = None
    work: Work | Function = field(default_factory=Work)
    variants: Sequence[Variant] = ()
    name: str = ""
    version: int = 1
    relative_to: str = ""
    line: int = _line()


COLD_STEPS: Final = "cold steps"
"""The ``graph`` of a variant whose graph empties the cache before each step."""
BOTH: Final = "both"
"""The ``cache`` of a variant whose cases are measured in every cache state."""


def cache_states_of(variant: Variant) -> tuple[CacheState, ...]:
    """Return the cache states that a variant's cases are measured in."""
    return tuple(CacheState) if variant.cache == BOTH else (CacheState(variant.cache),)


def words(value: Words) -> tuple[str, ...]:
    """Return a field's words as a tuple, whether the author wrote one word or a sequence."""
    return (value,) if isinstance(value, str) else tuple(value)


def option_words(options: Words) -> tuple[str, ...]:
    """Return compile options split into words as a shell does; raises ``ValueError`` for an unclosed quote."""
    return tuple(word for text in words(options) for word in shlex.split(text))
