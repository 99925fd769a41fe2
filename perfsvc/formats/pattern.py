"""Read times from any text with a regular expression, whose named groups are times, axes and metrics."""

import contextlib
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Collection

from perfsvc.errors import FormatError
from perfsvc.formats.result import Point, Result
from perfsvc.model import Value

REGEX = "regex"
"""The name of this format; ``perfsvc import`` does not have it, because it needs an expression."""
TIME_UNITS = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6, "time_ns": 1e-9}
"""The groups that hold a time, and their unit in seconds."""
MOST_SAMPLES = 1 << 20


def problem_of_pattern(pattern: str, metrics: Collection[str]) -> str:
    """Return why a regular expression cannot be used; empty if it can."""
    try:
        groups = re.compile(pattern, re.MULTILINE).groupindex
    except re.error as error:
        return str(error)
    times = [name for name in groups if name in TIME_UNITS]
    if len(times) != 1:
        return f"it needs one group with the time, such as (?P<time_ms>[0-9.]+), and has {len(times)}"
    lacking = sorted(set(metrics) - set(groups))
    return f"it has no group for the metric {lacking[0]!r}" if lacking else ""


def parse_pattern(
    text: bytes, pattern: str, metrics: Collection[str] = (), *, name: str = "the output"
) -> list[Result]:
    """Return a result for each point in a text; the matches of one point are its samples.

    Args:
        text: the content of a file or the output of a program.
        pattern: a regular expression without a problem (``problem_of_pattern``).
        metrics: the groups that are metrics. All other groups, except the group with the time, are axes. A point's
            metric is the median of its matches.
        name: what errors call the text.

    Raises:
        FormatError: nothing matches, or a group of a match is no number.
    """
    try:
        return _results(text.decode(errors="replace"), pattern, metrics)
    except FormatError as error:
        raise FormatError(f"{name}: {error.what}", cure=error.cure) from None


def _results(text: str, pattern: str, metrics: Collection[str]) -> list[Result]:
    """Return a result for each point; see ``parse_pattern``."""
    samples: dict[Point, list[float]] = defaultdict(list)
    values: dict[Point, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for count, match in enumerate(re.finditer(pattern, text, re.MULTILINE), 1):
        if count > MOST_SAMPLES:
            raise FormatError(f"the expression matches more than {MOST_SAMPLES} times", cure="match only the times")
        groups = {name: group for name, group in match.groupdict().items() if group is not None}
        point = tuple((name, _value(group)) for name, group in groups.items() if name not in {*TIME_UNITS, *metrics})
        for name, group in groups.items():
            if name in TIME_UNITS:
                samples[point].append(_time(group, name))
            elif name in metrics:
                values[point][name].append(_number(group, name))
    if not samples:
        raise FormatError(f"nothing matches {pattern!r}", cure="see what the program prints, and correct the pattern")
    return [
        Result(
            benchmark=REGEX,
            variant=REGEX,
            point=point,
            samples_s=tuple(times),
            metrics={name: statistics.median(numbers) for name, numbers in values[point].items()},
        )
        for point, times in samples.items()
    ]


def _time(text: str, group: str) -> float:
    """Return a time in seconds."""
    seconds = _number(text, group) * TIME_UNITS[group]
    if not 0 < seconds < math.inf:
        raise FormatError(f"the group {group!r} is {text[:100]!r}, which is no time", cure="match a time above zero")
    return seconds


def _number(text: str, group: str) -> float:
    """Return the number in a group, whose thousands may be separated by commas."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise FormatError(f"the group {group!r} is {text[:100]!r}, which is no number", cure="match a number")
    return number


def _value(text: str) -> Value:
    """Return the value of an axis: an integer or a finite float if the text is one, else the text."""
    for reader in (int, float):
        with contextlib.suppress(ValueError):
            number: int | float = reader(text)
            return number if math.isfinite(number) else text
    return text
