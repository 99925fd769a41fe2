"""Check the type of every field that the author wrote."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfsvc.model import CacheState, Kind, Tolerance, Work
from perfsvc.suite.authoring import (
    BOTH,
    COLD_STEPS,
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
    Regex,
    Scalar,
    StepWritten,
    Struct,
    TensorMap,
    Variant,
    option_words,
)
from perfsvc.suite.values import Problem

MOST_S = 1e6
"""The longest time limit of a program: eleven days."""

Predicate = Callable[[object], bool]

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of ``torch.compile``."""


@dataclass(frozen=True, slots=True)
class _FieldType:
    """What a field may hold: a description for the error message, and a test."""

    description: str
    accepts: Predicate


def _is(*types: type) -> Predicate:
    return lambda value: isinstance(value, types) and not isinstance(value, bool)


def _each(accepts: Predicate) -> Predicate:
    return lambda value: isinstance(value, Sequence) and not isinstance(value, str) and all(map(accepts, value))


def _by_name(accepts: Predicate) -> Predicate:
    """Return a test for a mapping from identifiers to values that ``accepts`` accepts."""
    return lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(name, str) and name.isidentifier() for name in value)
        and all(map(accepts, value.values()))
    )


def _or(first: Predicate, second: Predicate) -> Predicate:
    return lambda value: first(value) or second(value)


def _anything(_: object) -> bool:
    return True


def _is_tensor_map(value: object) -> bool:
    return isinstance(value, TensorMap) and isinstance(value.buffer, str) and isinstance(value.element, str)


def _is_struct(value: object) -> bool:
    return isinstance(value, Struct) and bool(value.fields) and all(_is_field(field) for _, field in value.fields)


def _is_field(value: object) -> bool:
    """Return whether a struct can have a field: one that an argument could be, a nested struct, or an array of them."""
    if isinstance(value, Struct):
        return _is_struct(value) and not value.is_pointer
    return (isinstance(value, tuple) and bool(value) and all(map(_is_field, value))) or _is(str, Scalar)(value)


def _is_peer(value: object) -> bool:
    return isinstance(value, Peer) and isinstance(value.buffer, str) and _is(int)(value.offset)


def _splits(options: Any) -> bool:
    """Return whether compile options can be split into words as a shell does."""
    try:
        option_words(options)
    except ValueError:  # an unclosed quote
        return False
    return True


def _none(value: object) -> bool:
    return value is None


def _by_axis(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is(str), value)) and all(map(_is(str, int, float), value.values()))


def _texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is(str), (*value, *value.values())))


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST_S


_TEXT = _FieldType("text", _is(str))
_WORDS = _FieldType("a word or a list of words", _or(_is(str), _each(_is(str))))
_TRUTH = _FieldType("True or False", lambda value: isinstance(value, bool))
_FUNCTION = _FieldType("a function", _or(callable, _none))
_COUNT = _FieldType("an integer or a function", _or(_is(int), callable))
_EXTENT = _FieldType("an integer, a tuple of integers or a function", _or(_COUNT.accepts, _each(_is(int))))
_OUTPUTS = _FieldType('a dict such as {"c": output("float32", 1)}', _by_name(_is(Output)))
_ARGUMENTS = _FieldType(
    'a list such as ("out", "in", "n", f32(0.5))',
    _each(_or(_or(_is(str, Scalar), _is_tensor_map), _or(_is_peer, _is_struct))),
)
_REDUCTION = _FieldType("one of sum, min, max", lambda value: value in ["sum", "min", "max"])
_SYMBOLS = _FieldType('a dict such as {"symbol": "buffer"}', _by_name(_is(str)))

_KINDS = [kind for kind in Kind if kind is not Kind.PROGRAM]  # run=program(...) makes a variant one of that kind

_BENCHMARK = {
    "axes": _FieldType('a dict such as {"n": (1024, 2048)}', _by_name(_each(_anything))),
    "points": _FieldType('a list such as [{"n": 1024}]', _each(_by_name(_anything))),
    "smoke": _FieldType('a dict such as {"n": 100}', _by_name(_anything)),
    "inputs": _FUNCTION,
    "outputs": _OUTPUTS,
    "reference": _FUNCTION,
    "tolerance": _FieldType("a Tolerance(max=..., mean=...) or a function", _or(_is(Tolerance), _FUNCTION.accepts)),
    "work": _FieldType("a Work(...) or a function", _or(_is(Work), callable)),
    "variants": _FieldType("a list of Variant(...)", _each(_is(Variant))),
    "name": _TEXT,
    "version": _FieldType("an integer", _is(int)),
    "relative_to": _TEXT,
}

_VARIANT = {
    "name": _TEXT,
    "kind": _FieldType(f"one of {', '.join(_KINDS)}", lambda value: value in _KINDS),
    "source": _WORDS,
    "entry": _TEXT,
    "grid": _FieldType(_EXTENT.description, _or(_EXTENT.accepts, _none)),
    "block": _FieldType(_EXTENT.description, _or(_EXTENT.accepts, _none)),
    "args": _ARGUMENTS,
    "shared_bytes": _COUNT,
    "constants": _SYMBOLS,
    "cluster": _FieldType(_EXTENT.description, _or(_EXTENT.accepts, _none)),
    "cooperative": _TRUTH,
    "steps": _FieldType(
        "a list of launch, memset, peer_copy, all_reduce, finish, metric, call, triton, cupy, numba, torch and library",
        _each(
            _is(
                LaunchStep,
                MemsetStep,
                PeerCopyStep,
                AllReduceStep,
                FinishStep,
                MetricStep,
                CallStep,
                PackageStep,
                LibraryStep,
            )
        ),
    ),
    "run": _FieldType(
        "a function, or triton, cupy, numba, torch, library or program",
        _or(_FUNCTION.accepts, _is(PackageStep, LibraryStep, ProgramStep)),
    ),
    "params": _FieldType('a dict such as {"TILE": (16, 32)}', _by_name(_anything)),
    "options": _FieldType(
        'compile options as on a command line, such as "-O3 -DX=1", with every quote closed',
        lambda value: _WORDS.accepts(value) and _splits(value),
    ),
    "scratch": _OUTPUTS,
    "requires": _WORDS,
    "only": _FUNCTION,
    "cache": _FieldType(f"one of {', '.join((*CacheState, BOTH))}", lambda value: value in (*CacheState, BOTH)),
    "graph": _FieldType(f"True, False or {COLD_STEPS!r}", lambda value: isinstance(value, bool) or value == COLD_STEPS),
    "reference": _FUNCTION,
    "formerly": _WORDS,
    "gpus": _FieldType('a number of GPUs, "all" or a function', lambda value: value == "all" or _COUNT.accepts(value)),
    "split": _WORDS,
    "on": _FieldType('a dict such as {"x": 0, "y": 1}', _by_name(_is(int))),
}

_STEPS: dict[type, dict[str, _FieldType]] = {
    LaunchStep: {
        "entry": _TEXT,
        "source": _WORDS,
        "grid": _EXTENT,
        "block": _EXTENT,
        "args": _ARGUMENTS,
        "shared_bytes": _COUNT,
        "constants": _SYMBOLS,
        "cluster": _FieldType(_EXTENT.description, _or(_EXTENT.accepts, _none)),
        "cooperative": _TRUTH,
        "programmatic": _TRUTH,
        "gpu": _FieldType("the position of a GPU, or None", _or(_is(int), _none)),
    },
    PeerCopyStep: {"source": _TEXT, "target": _TEXT},
    AllReduceStep: {"source": _TEXT, "target": _TEXT, "operation": _REDUCTION},
    MemsetStep: {"buffer": _TEXT, "byte": _FieldType("a byte, 0 to 255", lambda value: value in range(256))},
    FinishStep: {
        "operation": _REDUCTION,
        "source": _TEXT,
        "target": _TEXT,
    },
    MetricStep: {
        "name": _TEXT,
        "operation": _FieldType("one of sum, min, max, mean", lambda value: value in ["sum", "min", "max", "mean"]),
        "buffer": _TEXT,
    },
    CallStep: {
        "function": _FieldType("a function", callable),
        "source": _WORDS,
        "timed": _TRUTH,
    },
    PackageStep: {
        "source": _TEXT,
        "args": _FieldType('a list such as ("y", "x", "n")', _or(_each(_is(str, Scalar)), _none)),
        "grid": _FieldType(_EXTENT.description, _or(_EXTENT.accepts, _none)),
        "block": _FieldType(_EXTENT.description, _or(_EXTENT.accepts, _none)),
        "shared_bytes": _COUNT,
        "configs": _FieldType('a list such as [{"BLOCK": 1024, "num_warps": 4}]', _each(_by_name(_anything))),
        "compile": _FieldType(
            f"True, False or one of {', '.join(COMPILE_MODES)}",
            lambda value: isinstance(value, bool) or value in COMPILE_MODES,
        ),
    },
    LibraryStep: {
        "source": _TEXT,
        "entry": _TEXT,
        "libraries": _WORDS,
    },
    ProgramStep: {
        "command": _WORDS,
        "parse": _FieldType('the name of a format, such as "nvbench", or regex("...")', _is(str, Regex)),
        "result": _TEXT,
        "pick": _FieldType('a dict such as {"benchmark": "copy", "n": 1024}', _by_axis),
        "metrics": _WORDS,
        "files": _WORDS,
        "build": _TEXT,
        "env": _FieldType('a dict such as {"NAME": "text"}', _texts),
        "exit_code": _FieldType("an exit status, 0 to 255", lambda value: value in range(256)),
        "limit_s": _FieldType("a number of seconds", _or(_none, _is_limit)),
    },
}


def misfits_of_benchmark(benchmark: Benchmark) -> Iterator[Problem]:
    """Yield a problem for each field of a benchmark that has the wrong type."""
    yield from _misfits(benchmark, _BENCHMARK, "the benchmark's", benchmark.line)


def misfits_of_variant(variant: Variant) -> Iterator[Problem]:
    """Yield a problem for each field of a variant that has the wrong type."""
    yield from _misfits(variant, _VARIANT, f"variant {variant.name!r}:", variant.line)


def misfits_of_step(step: StepWritten, variant: str) -> Iterator[Problem]:
    """Yield a problem for each field of a step that has the wrong type."""
    yield from _misfits(step, _STEPS[type(step)], f"variant {variant!r}:", step.line)


def _misfits(owner: object, types: Mapping[str, _FieldType], subject: str, line: int) -> Iterator[Problem]:
    """Yield a problem for each field of an object whose value has the wrong type.

    Args:
        owner: the object.
        types: the type of each field.
        subject: the object's name, with which the message begins.
        line: the object's line in the benchmark file.
    """
    for field, field_type in types.items():
        value = getattr(owner, field)
        if not field_type.accepts(value):
            yield Problem(f"{subject} {field} is {value!r}", line, f"make it {field_type.description}")
