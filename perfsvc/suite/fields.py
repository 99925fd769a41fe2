"""Does every field that the author wrote hold the right kind of thing?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfsvc.model import CacheState, Kind, Tolerance, Work
from perfsvc.suite.authoring import (
    BOTH,
    Benchmark,
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
    option_words,
)
from perfsvc.suite.problem import Problem

MOST_KEPT = 256
"""Variants whose misfits are known."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a field may hold: in words, and as a test."""

    said: str
    holds: Callable[[object], bool]


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool)


def _each(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Sequence) and not isinstance(value, str) and all(map(holds, value))


def _by_name(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(name, str) and name.isidentifier() for name in value)
        and all(map(holds, value.values()))
    )


def _or(one: Callable[[object], bool], other: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: one(value) or other(value)


def _anything(_: object) -> bool:
    return True


def _names_a_matrix(value: object) -> bool:
    return isinstance(value, TensorMap) and isinstance(value.buffer, str) and isinstance(value.element, str)


def _splits(options: Any) -> bool:
    try:
        option_words(options)
    except ValueError:  # an unclosed quote
        return False
    return True


def _none(value: object) -> bool:
    return value is None


_TEXT = _Kind("text", _is(str))
_WORDS = _Kind("a word or a list of words", _or(_is(str), _each(_is(str))))
_FUNCTION = _Kind("a function", _or(callable, _none))
_COUNT = _Kind("an integer or a function", _or(_is(int), callable))
_EXTENT = _Kind("an integer, a tuple of integers or a function", _or(_COUNT.holds, _each(_is(int))))
_OUTPUTS = _Kind('a dict such as {"c": output("float32", 1)}', _by_name(_is(Output)))
_ARGUMENTS = _Kind('a list such as ("out", "in", "n", f32(0.5))', _each(_or(_is(str, Scalar), _names_a_matrix)))
_SYMBOLS = _Kind('a dict such as {"symbol": "buffer"}', _by_name(_is(str)))

_BENCHMARK = {
    "axes": _Kind('a dict such as {"n": (1024, 2048)}', _by_name(_each(_anything))),
    "points": _Kind('a list such as [{"n": 1024}]', _each(_by_name(_anything))),
    "smoke": _Kind('a dict such as {"n": 100}', _by_name(_anything)),
    "inputs": _FUNCTION,
    "outputs": _OUTPUTS,
    "reference": _FUNCTION,
    "tolerance": _Kind("a Tolerance(max=..., mean=...) or a function", _or(_is(Tolerance), _FUNCTION.holds)),
    "work": _Kind("a Work(...) or a function", _or(_is(Work), callable)),
    "variants": _Kind("a list of Variant(...)", _each(_is(Variant))),
    "name": _TEXT,
    "version": _Kind("an integer", _is(int)),
    "relative_to": _TEXT,
}

_VARIANT = {
    "name": _TEXT,
    "kind": _Kind(f"one of {', '.join(Kind)}", lambda value: value in list(Kind)),
    "source": _TEXT,
    "entry": _TEXT,
    "grid": _Kind(_EXTENT.said, _or(_EXTENT.holds, _none)),
    "block": _Kind(_EXTENT.said, _or(_EXTENT.holds, _none)),
    "args": _ARGUMENTS,
    "shared_bytes": _COUNT,
    "constants": _SYMBOLS,
    "steps": _Kind(
        "a list of launch, memset, finish, metric and call",
        _each(_is(LaunchStep, MemsetStep, FinishStep, MetricStep, CallStep)),
    ),
    "run": _FUNCTION,
    "params": _Kind('a dict such as {"TILE": (16, 32)}', _by_name(_anything)),
    "options": _Kind(
        'compile options as on a command line, such as "-O3 -DX=1", every quote closed',
        lambda value: _WORDS.holds(value) and _splits(value),
    ),
    "scratch": _OUTPUTS,
    "requires": _WORDS,
    "only": _FUNCTION,
    "cache": _Kind(f"one of {', '.join((*CacheState, BOTH))}", lambda value: value in (*CacheState, BOTH)),
    "reference": _FUNCTION,
    "formerly": _WORDS,
}

_STEPS: dict[type, dict[str, _Kind]] = {
    LaunchStep: {
        "entry": _TEXT,
        "source": _TEXT,
        "grid": _EXTENT,
        "block": _EXTENT,
        "args": _ARGUMENTS,
        "shared_bytes": _COUNT,
        "constants": _SYMBOLS,
    },
    MemsetStep: {"buffer": _TEXT, "byte": _Kind("a byte, 0 to 255", lambda value: value in range(256))},
    FinishStep: {
        "operation": _Kind("one of sum, min, max", lambda value: value in ["sum", "min", "max"]),
        "source": _TEXT,
        "target": _TEXT,
    },
    MetricStep: {
        "name": _TEXT,
        "operation": _Kind("one of sum, min, max, mean", lambda value: value in ["sum", "min", "max", "mean"]),
        "buffer": _TEXT,
    },
    CallStep: {
        "function": _Kind("a function", callable),
        "source": _TEXT,
        "timed": _Kind("True or False", lambda value: isinstance(value, bool)),
    },
}


def misfits_of_benchmark(benchmark: Benchmark) -> Iterator[Problem]:
    """A problem for each field of a benchmark that holds the wrong kind of thing."""
    yield from _misfits(benchmark, _BENCHMARK, "the benchmark's", benchmark.line)


@lru_cache(maxsize=MOST_KEPT)  # asked for a ladder, and again for its problems
def misfits_of_variant(variant: Variant) -> tuple[Problem, ...]:
    """A problem for each field of a variant that holds the wrong kind of thing."""
    return tuple(_misfits(variant, _VARIANT, f"variant {variant.name!r}:", variant.line))


def misfits_of_step(step: StepWritten, variant: str) -> Iterator[Problem]:
    """A problem for each field of a step that holds the wrong kind of thing."""
    yield from _misfits(step, _STEPS[type(step)], f"variant {variant!r}:", step.line)


def _misfits(written: object, kinds: Mapping[str, _Kind], whose: str, line: int) -> Iterator[Problem]:
    for field, kind in kinds.items():
        value = getattr(written, field)
        if not kind.holds(value):
            yield Problem(f"{whose} {field} is {value!r}", line, f"make it {kind.said}")
