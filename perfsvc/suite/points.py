"""The points of a benchmark's axes, and the variants that its tuples of parameters stand for."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from perfsvc.model import Value
from perfsvc.suite.authoring import Benchmark, Function, Variant, words
from perfsvc.suite.fields import misfits_of_variant
from perfsvc.suite.values import Problem

Point = tuple[tuple[str, Value], ...]
"""A value for each axis, in the order of the axes."""

_LEAST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**63 - 1
"""What kernels, databases and data frames can hold."""
_IN_AN_ID = re.compile(r"[A-Za-z0-9_.+-]+")


def plain(value: object) -> object:
    """Return a NumPy scalar as the Python value it holds, and anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def is_value(value: object) -> bool:
    """Return whether an axis or parameter can have this value: an integer of 64 bits, a float or text."""
    value = plain(value)
    if isinstance(value, int):
        return not isinstance(value, bool) and _LEAST_INTEGER <= value <= _LARGEST_INTEGER
    return isinstance(value, float | str)


def fits_in_an_id(value: object) -> bool:
    """Return whether a value or name can stand in a case id without quotes."""
    return _IN_AN_ID.fullmatch(str(plain(value))) is not None


# --- points ----------------------------------------------------------------------------------------------------------


def axes_of(benchmark: Benchmark) -> tuple[str, ...]:
    """Return the names of the axes, in order."""
    return tuple(benchmark.axes or next(iter(benchmark.points), {}))


def smoke_point(benchmark: Benchmark) -> Point:
    """Return the benchmark's smoke point, with a value for each axis in order."""
    return _ordered(benchmark, benchmark.smoke)


def full_points(benchmark: Benchmark) -> tuple[Point, ...]:
    """Return the points that are measured on a GPU: the listed points, or else the product of the axes."""
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
    """Yield the problems of the axes, the listed points and the smoke point."""
    if benchmark.axes and benchmark.points:
        yield Problem("both axes and points are given", benchmark.line, "keep the one that names the full points")
    for axis, values in benchmark.axes.items():
        if not values:
            yield Problem(f"axis {axis!r} is empty", benchmark.line, "give it at least one value")
        yield from _problems_of_values(axis, values, benchmark.line)
        if len(set(map(str, values))) < len(values):
            yield Problem(f"axis {axis!r} has a value twice", benchmark.line, "name each value once")
    for point in benchmark.points:
        yield from _problems_of_point("a point", point, benchmark)
    if axes_of(benchmark) and not benchmark.smoke:
        yield Problem("no smoke point", benchmark.line, "give a small one for CPUs and quick runs: smoke={...}")
    else:
        yield from _problems_of_point("the smoke point", benchmark.smoke, benchmark)


def _problems_of_point(what: str, point: Mapping[str, Value], benchmark: Benchmark) -> Iterator[Problem]:
    """Yield the problems of a point that does not give each axis one usable value; messages call the point ``what``."""
    axes = axes_of(benchmark)
    if set(point) != set(axes):
        yield Problem(
            f"{what} names {', '.join(point) or 'none'}, the axes are {', '.join(axes) or 'none'}",
            benchmark.line,
            "give it one value for each axis",
        )
    for axis, value in point.items():
        yield from _problems_of_values(axis, [value], benchmark.line)


def _problems_of_values(axis: str, values: Iterable[Value], line: int) -> Iterator[Problem]:
    """Yield a problem for each value of an axis that cannot stand in a case id."""
    for value in values:
        if not is_value(value) or not fits_in_an_id(value):
            yield Problem(
                f"axis {axis!r} has the value {value!r}",
                line,
                "use integers of 64 bits, floats, or text of letters, digits and _ . + -",
            )


# --- expansions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """A variant with one value of each parameter, and the full name that these values give it."""

    variant: Variant
    name: str
    formerly: tuple[str, ...]
    params: Mapping[str, Value | Function]


def expand(variant: Variant) -> tuple[Expansion, ...]:
    """Return one expansion for each combination of a variant's tuples, named by their values: ``tiled-TILE32-PAD1``."""
    choices = [_choices(value) for value in variant.params.values()]
    return tuple(_expansion(variant, chosen) for chosen in itertools.product(*choices))


def _choices(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _expansion(variant: Variant, chosen: tuple[Any, ...]) -> Expansion:
    """Return the expansion with these parameter values; values chosen from a tuple are appended to its name."""
    params = {name: plain(value) for name, value in zip(variant.params, chosen, strict=True)}
    suffix = "".join(
        f"-{name}{value}" for name, value in params.items() if isinstance(variant.params[name], tuple | list)
    )
    return Expansion(
        variant=variant,
        name=variant.name + suffix,
        formerly=tuple(name + suffix for name in words(variant.formerly)),
        params=params,  # type: ignore[arg-type] # checked: problems_of_params
    )


@lru_cache(maxsize=64)  # needed once for each case
def expansions_of(benchmark: Benchmark) -> tuple[Expansion, ...]:
    """Return the expansions of all variants in their order, except variants whose fields have wrong types."""
    return tuple(
        expansion
        for variant in benchmark.variants
        if not any(misfits_of_variant(variant))
        for expansion in expand(variant)
    )


def reference_index(benchmark: Benchmark, variant: Variant) -> int:
    """Return the position, from 1, of the first variant with the same reference; 0 for the benchmark's reference."""
    if variant.reference is None:
        return 0
    references = [other.reference for other in benchmark.variants]
    return next(index for index, other in enumerate(references, 1) if other is variant.reference)


def reference_of(benchmark: Benchmark, variant: str) -> Function | None:
    """Return the reference function for a variant's results: the variant's own, else the benchmark's.

    Args:
        benchmark: the benchmark.
        variant: the variant's full name.
    """
    for expansion in expansions_of(benchmark):
        if expansion.name == variant and expansion.variant.reference is not None:
            return expansion.variant.reference
    return benchmark.reference


def problems_of_params(variant: Variant) -> Iterator[Problem]:
    """Yield the problems of the values of a variant's parameters."""
    for name, value in variant.params.items():
        is_tuple = isinstance(value, tuple | list)
        if is_tuple and not value:
            yield Problem(f"parameter {name!r} has no value", variant.line, "put at least one value into the tuple")
        for choice in _choices(value):
            if is_tuple and not (is_value(choice) and fits_in_an_id(choice)):
                yield Problem(
                    f"parameter {name!r} has the value {choice!r}, which cannot stand in a variant's name",
                    variant.line,
                    "use integers of 64 bits, floats, or text of letters, digits and _ . + - in tuples",
                )
            elif not is_tuple and not is_value(choice) and not callable(choice):
                yield Problem(
                    f"parameter {name!r} is {choice!r}",
                    variant.line,
                    "use an integer (0 and 1 for flags), a float, text, a tuple of them or a function of the axes",
                )
