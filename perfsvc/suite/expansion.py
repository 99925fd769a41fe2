"""A variant with tuples of parameter values stands for one variant each."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfsvc.model import Value
from perfsvc.suite.authoring import Benchmark, Function, Variant, words
from perfsvc.suite.fields import misfits_of_variant
from perfsvc.suite.points import fits_in_an_id, is_value, plain
from perfsvc.suite.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """A variant with one choice of its parameters."""

    variant: Variant
    name: str
    formerly: tuple[str, ...]
    params: Mapping[str, Value | Function]


def expand(variant: Variant) -> tuple[Expansion, ...]:
    """The variants that a variant stands for, named by the values of its tuples: ``tiled-TILE32-PAD1``."""
    choices = [_choices(value) for value in variant.params.values()]
    return tuple(_expansion(variant, chosen) for chosen in itertools.product(*choices))


def _choices(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _expansion(variant: Variant, chosen: tuple[Any, ...]) -> Expansion:
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


@lru_cache(maxsize=64)  # asked for once for each case
def ladder(benchmark: Benchmark) -> tuple[Expansion, ...]:
    """All that a benchmark's variants stand for, in their order, but for those whose fields hold the wrong things."""
    return tuple(_rungs(benchmark.variants))


def _rungs(variants: Iterable[Variant]) -> Iterator[Expansion]:
    for variant in variants:
        if not misfits_of_variant(variant):
            yield from expand(variant)


def owner_of_reference(benchmark: Benchmark, variant: Variant) -> int:
    """The place, counted from 1, of the first variant that has the reference of this one; 0 for the benchmark's."""
    if variant.reference is None:
        return 0
    return next(place for place, one in enumerate(benchmark.variants, 1) if one.reference is variant.reference)


def reference_of(benchmark: Benchmark, variant: str) -> Function | None:
    """The reference that the results of a variant, by its full name, are compared with: its own or the benchmark's."""
    variants = _rungs(one for one in benchmark.variants if one.reference is not None)
    own = (
        variant_index.variant.reference
        for variant_index in variants
        if variant_index.name == variant and variant_index.variant.reference
    )
    return next(own, benchmark.reference)


def problems_of_params(variant: Variant) -> Iterator[Problem]:
    """What is wrong with the values of a variant's parameters."""
    for name, value in variant.params.items():
        several = isinstance(value, tuple | list)
        if several and not value:
            yield Problem(f"parameter {name!r} has no value", variant.line, "give the tuple at least one")
        for choice in _choices(value):
            if several and not (is_value(choice) and fits_in_an_id(choice)):
                yield Problem(
                    f"parameter {name!r} has the value {choice!r}, which cannot stand in a variant's name",
                    variant.line,
                    "use integers, floats, or text of letters, digits and _ . + - in tuples",
                )
            elif not several and not is_value(choice) and not callable(choice):
                yield Problem(
                    f"parameter {name!r} is {choice!r}",
                    variant.line,
                    "use an integer (0 and 1 for flags), a float, text, a tuple of them or a function of the axes",
                )
