"""The points of a benchmark's axes."""

import itertools
import re
from collections.abc import Iterator, Mapping

import numpy as np

from perfsvc.model import Value
from perfsvc.suite.authoring import Benchmark
from perfsvc.suite.problem import Problem

Point = tuple[tuple[str, Value], ...]
"""A value for each axis, in the order of the axes."""

_IN_AN_ID = re.compile(r"[A-Za-z0-9_.+-]+")


def plain(value: object) -> object:
    """A NumPy scalar as the Python value it holds, anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def is_value(value: object) -> bool:
    """Whether an axis or parameter can have this value: an integer, a float or text."""
    return isinstance(plain(value), int | float | str) and not isinstance(plain(value), bool)


def fits_in_an_id(value: object) -> bool:
    """Whether a value or name reads in a case id as it stands."""
    return _IN_AN_ID.fullmatch(str(plain(value))) is not None


def axes_of(benchmark: Benchmark) -> tuple[str, ...]:
    """The names of the axes, in order."""
    return tuple(benchmark.axes or next(iter(benchmark.points), {}))


def smoke_point(benchmark: Benchmark) -> Point:
    """The small point."""
    return _ordered(benchmark, benchmark.smoke)


def full_points(benchmark: Benchmark) -> tuple[Point, ...]:
    """The points that are measured on a GPU: those listed, else the product of the axes."""
    if benchmark.points:
        return tuple(_ordered(benchmark, point) for point in benchmark.points)
    axes = axes_of(benchmark)
    return tuple(
        _ordered(benchmark, dict(zip(axes, values, strict=True)))
        for values in itertools.product(*benchmark.axes.values())
    )


def _ordered(benchmark: Benchmark, point: Mapping[str, Value]) -> Point:
    return tuple((axis, plain(point[axis])) for axis in axes_of(benchmark))  # type: ignore[misc] # checked: is_value


def problems_of_points(benchmark: Benchmark) -> Iterator[Problem]:
    """What is wrong with the axes, the listed points and the smoke point."""
    if benchmark.axes and benchmark.points:
        yield Problem("both axes and points are given", benchmark.line, "keep the one that names the full points")
    for axis, values in benchmark.axes.items():
        yield from _axis(axis, list(values), benchmark.line)
    for point in benchmark.points:
        yield from _point("a point", point, benchmark)
    if axes_of(benchmark) and not benchmark.smoke:
        yield Problem("no smoke point", benchmark.line, "give a small one for CPUs and quick runs: smoke={...}")
    else:
        yield from _point("the smoke point", benchmark.smoke, benchmark)


def _axis(axis: str, values: list[Value], line: int) -> Iterator[Problem]:
    if not values:
        yield Problem(f"axis {axis!r} is empty", line, "give it at least one value")
    yield from _values(axis, values, line)
    if len(set(map(str, values))) < len(values):
        yield Problem(f"axis {axis!r} has a value twice", line, "name each value once")


def _point(what: str, point: Mapping[str, Value], benchmark: Benchmark) -> Iterator[Problem]:
    axes = axes_of(benchmark)
    if set(point) != set(axes):
        yield Problem(
            f"{what} names {_listed(point)}, the axes are {_listed(axes)}",
            benchmark.line,
            "give it one value for each axis",
        )
    for axis, value in point.items():
        yield from _values(axis, [value], benchmark.line)


def _values(axis: str, values: list[Value], line: int) -> Iterator[Problem]:
    for value in values:
        if not is_value(value) or not fits_in_an_id(value):
            yield Problem(
                f"axis {axis!r} has the value {value!r}",
                line,
                "use integers, floats, or text of letters, digits and _ . + -",
            )


def _listed(names: Mapping[str, object] | tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
