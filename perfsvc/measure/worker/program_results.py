"""Read the output of a program, and choose the result of the case among the results in it."""

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc import formats
from perfsvc.errors import FormatError, ProgramError, ResultError, UnsupportedError
from perfsvc.formats.pattern import REGEX, parse_pattern
from perfsvc.formats.result import Result
from perfsvc.measure.protocol.messages import LONGEST_S, SHORTEST_S, problem_of_metric
from perfsvc.model import AUXILIARY, TIME, Case, RunProgram, Status, Value

MOST_RESULT_BYTES = 1 << 26
"""How large the file with the times may be."""
MOST_RESULTS = 1 << 16
MOST_SAMPLES = 500_000
MOST_SHOWN = 5
"""How many results an error names."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program left: the folder in which it ran, its standard output, and the end of its output for messages."""

    folder: Path
    stdout: bytes
    said: str


def result_of(output: ProgramOutput, step: RunProgram, case: Case) -> Result:
    """Return the result of a case, with no other metrics than those that the step names.

    Raises:
        ProgramError: there is no usable result of the case, or there are several.
        ResultError: the program reports that its result is wrong.
        UnsupportedError: the program skipped the case.
    """
    content, where, folder = _content(output, step)
    try:
        if step.parse == REGEX:
            results: Sequence[Result] = parse_pattern(content, step.pattern, step.metrics, name=where)
        else:
            parsed = formats.parse(step.parse, content, folder, name=where)
            results = list(itertools.islice(parsed, MOST_RESULTS + 1))
    except FormatError as error:
        said = output.said or ("" if content else "; it printed nothing")
        raise ProgramError(f"{error.what}{said}", cure=error.cure or "see what the program writes") from error
    if len(results) > MOST_RESULTS:
        raise ProgramError(f"{where} has more than {MOST_RESULTS} results", cure="let the program measure one case")
    result = _only(_joined(_fitting(results, step, case)), results, case, where)
    if result.status is Status.SKIPPED:
        raise UnsupportedError(f"the program skipped it: {result.reason}")
    if result.status is Status.WRONG:
        raise ResultError(f"the program reports a wrong result: {result.reason}", cure="run the command yourself")
    if result.status is not Status.OK:
        raise ProgramError(f"the program reports that it failed: {result.reason}", cure="run the command yourself")
    if not result.samples_s:
        raise ProgramError(f"{where} has no time, only other numbers", cure="let the program print times")
    return replace(result, metrics=_metrics(result, step.metrics), samples_s=_usable(result.samples_s))


STDOUT = "its standard output"


def _content(output: ProgramOutput, step: RunProgram) -> tuple[bytes, str, Path | None]:
    """Return the text with the times, its name for messages, and the folder of its file (None for printed output)."""
    written = [step.result] if step.result else list(dict.fromkeys(_written(output.folder, step)))
    if not written:
        return output.stdout, STDOUT, None
    if len(written) > 1:
        raise ProgramError(
            f"it wrote several files that its command names: {', '.join(written)}",
            cure=f'name the one with the times: program(..., result="{written[0]}")',
        )
    path = output.folder / written[0]
    try:
        if not path.is_file():
            raise ProgramError(f"it wrote no file {written[0]!r}{output.said}", cure="correct result= or the command")
        if path.stat().st_size > MOST_RESULT_BYTES:
            raise ProgramError(
                f"its file {written[0]!r} is larger than {MOST_RESULT_BYTES >> 20} MiB",
                cure="let the program measure one case",
            )
        return path.read_bytes(), f"its file {written[0]!r}", path.parent
    except OSError as error:
        raise ProgramError(
            f"its file {written[0]!r} cannot be read: {error.strerror}", cure="correct what the program writes"
        ) from error


def _written(folder: Path, step: RunProgram) -> Iterator[str]:
    """Yield the files that a program has written and its command names, alone or after ``=``."""
    for word in step.command[1:]:
        for name in (word, word.partition("=")[2]):
            if name and not Path(name).is_absolute() and os.path.normpath(name) not in step.files:
                with contextlib.suppress(OSError, ValueError):  # a word that cannot be a path
                    if (folder / name).is_file():
                        yield name


def _fitting(results: Sequence[Result], step: RunProgram, case: Case) -> list[Result]:
    """Return the results that have the picked values, and the values of the case at each axis that both have."""
    wanted, picked = dict(case.point), dict(step.pick)

    def fits(result: Result) -> bool:
        values = _values(result)
        return all(name in values and _equal(values[name], value) for name, value in picked.items()) and all(
            _equal(value, wanted[name]) for name, value in result.point if name in wanted and name not in picked
        )

    return [result for result in results if fits(result)]


def _values(result: Result) -> dict[str, Value]:
    """Return what ``pick`` can choose a result by."""
    return {"benchmark": result.benchmark, "variant": result.variant, **dict(result.point)}


def _equal(value: Value, wanted: Value) -> bool:
    if isinstance(value, str) or isinstance(wanted, str):
        return str(value) == str(wanted)
    return value == wanted


def _joined(results: Iterable[Result]) -> list[Result]:
    """Return the results; those that differ only in their process (hyperfine's) become one with all their samples."""
    joined: dict[object, Result] = {}
    for result in results:
        key = result.benchmark, result.variant, result.point, result.device, result.cache
        first = joined.get(key)
        if first and first.status is result.status is Status.OK and first.replica != result.replica:
            joined[key] = replace(first, samples_s=first.samples_s + result.samples_s, replica=result.replica)
        elif first:
            joined[object()] = result
        else:
            joined[key] = result
    return list(joined.values())


def _only(fitting: Sequence[Result], results: Sequence[Result], case: Case, where: str) -> Result:
    """Return the only fitting result; raise ``ProgramError`` if there is none, or if there are several."""
    if len(fitting) == 1:
        return fitting[0]
    shown = fitting or results
    names = ", ".join(_label(result) for result in shown[:MOST_SHOWN]) + (", …" if len(shown) > MOST_SHOWN else "")
    if fitting:
        first, *others = map(_values, fitting)
        pick = {name: value for name, value in first.items() if any(other.get(name) != value for other in others)}
        raise ProgramError(
            f"{where} has {len(fitting)} results that fit the case: {names}",
            cure="let the program measure one case" + (f", or choose one: pick={pick!r}" if pick else ""),
        )
    if not results:
        raise ProgramError(f"{where} has no results", cure="see what the program prints")
    point = f" [{case.point_text}]" if case.point else ""
    raise ProgramError(
        f"{where} has no result that fits the case{point}, only {names}",
        cure='pass the axes to the program, such as "--axis n={n}", and correct pick=',
    )


def _label(result: Result) -> str:
    return Case(result.benchmark, result.variant, result.point).id


def _metrics(result: Result, names: Sequence[str]) -> dict[str, float]:
    """Return the named metrics of a result; raise ``ProgramError`` if one is missing or cannot be stored."""
    numbers = {**result.counters, **result.metrics}
    for name in names:
        if name not in numbers:
            known = ", ".join(numbers) or "none"
            raise ProgramError(f"the result has no metric {name!r}; its metrics: {known}", cure="correct metrics=")
        if problem := problem_of_metric(name, {TIME, *AUXILIARY}):
            raise ProgramError(problem, cure="remove it from metrics=")
    return {name: numbers[name] for name in names}


def _usable(samples_s: tuple[float, ...]) -> tuple[float, ...]:
    """Return the samples; raise ``ProgramError`` if one of them is an impossible time, or if there are too many."""
    if len(samples_s) > MOST_SAMPLES:
        raise ProgramError(f"the result has more than {MOST_SAMPLES} samples", cure="take fewer samples")
    for seconds in samples_s:
        if not SHORTEST_S <= seconds <= LONGEST_S:
            raise ProgramError(f"the result has a time of {seconds:g} s, which is impossible", cure="check its unit")
    return samples_s
