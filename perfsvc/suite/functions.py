"""Calling the author's functions by the names of their own parameters, with errors that point to their lines."""

import difflib
import inspect
import traceback
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any

from perfsvc.suite.authoring import Function
from perfsvc.suite.problem import Problem

MOST_KEPT = 256
"""Functions whose parameters are known."""
_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def evaluate(value: object, names: Mapping[str, object], what: str, line: int) -> Any:
    """The value itself, or what it returns where it is a function of some of ``names``; ``what`` it is, for errors."""
    return invoke(value, names, what, line) if callable(value) else value


def invoke(function: Function, names: Mapping[str, object], what: str, line: int, *first: object) -> Any:
    """Calls a function with ``first`` by position and then whatever it asks for by name.

    Raises:
        Problem: it asks for a name that is not known, or raises; with the line of its own that did.
    """
    for problem in unknown_names(function, names, what, line, skip=len(first)):
        raise problem
    known = {name: names[name] for name in _asked(function, names)[len(first) :] if name in names}
    try:
        return function(*first, **known)
    except Exception as error:
        raise Problem(
            f"{what} raised {type(error).__name__}: {error}{_where(names)}",
            _line_that_raised(function, error) or line_of(function, line),
            "correct the function",
        ) from error


def unknown_names(
    function: Function, known: Collection[str], what: str, line: int, *, skip: int = 0
) -> Iterator[Problem]:
    """A problem for each parameter of a function, beyond the first ``skip``, that is not among the known names."""
    try:
        parameters = _parameters(function)[skip:]
    except (TypeError, ValueError):
        yield Problem(f"{what} does not say what its parameters are called", line, "wrap it in a lambda")
        return
    for parameter in parameters:
        if parameter.kind in _NAMED and parameter.default is parameter.empty and parameter.name not in known:
            yield Problem(
                f"{what} asks for {parameter.name!r}, which is not known there",
                line_of(function, line),
                nearest(parameter.name, known),
            )


def nearest(name: str, known: Collection[str]) -> str:
    """The cure of a name that is not known: the likeliest one meant, else all there are."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known names: {', '.join(known)}" if known else "there are no names to ask for"


def line_of(function: Function, default: int) -> int:
    """The line that a function starts at."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_firstlineno if code else default


def _parameters(function: Function) -> tuple[inspect.Parameter, ...]:
    """A callable's parameters; the same functions are asked for theirs at every point and by every variant."""
    return _looked_up(function) if isinstance(function, FunctionType) else _look_up(function)


def _look_up(function: Function) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


_looked_up = lru_cache(maxsize=MOST_KEPT)(_look_up)


def _asked(function: Function, names: Collection[str]) -> list[str]:
    parameters = _parameters(function)
    asked = [parameter.name for parameter in parameters if parameter.kind in _NAMED]
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return asked + [name for name in names if name not in asked]
    return asked


def _where(names: Mapping[str, object]) -> str:
    values = [f"{name}={value}" for name, value in names.items() if isinstance(value, int | float | str)]
    return f" (at {', '.join(values)})" if values else ""


def _line_that_raised(function: Function, error: BaseException) -> int:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return last_line_in(code.co_filename, error) if code else 0


def last_line_in(filename: str, error: BaseException) -> int:
    """The deepest line of a file in an error's traceback; 0 where it has none."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == filename]
    return lines[-1] if lines else 0
