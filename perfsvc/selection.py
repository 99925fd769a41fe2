"""Select cases by glob: ``transpose``, ``transpose/tiled*``, ``*/naive[n=4096]``, ``*[n=4*]``.

``*`` stands for any text and ``?`` for one character, within one part of the name: the benchmark, the variant, or a
value of an axis. A glob without a slash names benchmarks. ``[...]`` holds globs for the values of axes; an axis that
the brackets do not name may have any value. A case's full id selects only that case.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from perfsvc.errors import UsageError
from perfsvc.model import Case

_FORM = re.compile(r"(?P<benchmark>[^/\[\]]+)(/(?P<variant>[^/\[\]]+))?(\[(?P<axes>[^\[\]]*)\])?")
_MOST_SUGGESTIONS = 5


@dataclass(frozen=True, slots=True)
class Selection:
    """The cases that match a glob of ``select`` (all cases if it is empty) and no glob of ``exclude``."""

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def filter(self, cases: Iterable[Case]) -> set[Case]:
        """Return the selected cases, possibly none; raises ``UsageError`` if a glob cannot be parsed."""
        select, exclude = self._globs()
        return {
            case
            for case in cases
            if (not select or any(glob.matches(case) for glob in select))
            and not any(glob.matches(case) for glob in exclude)
        }

    def reaches(self, benchmark: str) -> bool:
        """Return whether any case of a benchmark could be selected; raises ``UsageError`` for a malformed glob."""
        select, exclude = self._globs()
        return (not select or any(glob.benchmark.fullmatch(benchmark) for glob in select)) and not any(
            glob.takes_whole_benchmarks and glob.benchmark.fullmatch(benchmark) for glob in exclude
        )

    def _globs(self) -> tuple[list["Glob"], list["Glob"]]:
        return [parse(text) for text in self.select], [parse(text) for text in self.exclude]


@dataclass(frozen=True, slots=True)
class Glob:
    """A parsed glob."""

    text: str
    benchmark: re.Pattern[str]
    variant: re.Pattern[str]
    axes: tuple[tuple[str, re.Pattern[str]], ...]

    @property
    def takes_whole_benchmarks(self) -> bool:
        """Whether it matches all cases of the benchmarks that it names."""
        return not self.axes and self.variant == _pattern("*")

    def matches(self, case: Case) -> bool:
        """Return whether the glob matches a case."""
        values = dict(case.point)
        return bool(
            self.benchmark.fullmatch(case.benchmark)
            and self.variant.fullmatch(case.variant)
            and all(axis in values and value.fullmatch(str(values[axis])) for axis, value in self.axes)
        )


def parse(text: str) -> Glob:
    """Parse a glob; raises ``UsageError`` if no case could ever match it."""
    form = _FORM.fullmatch(text)
    axes = [item.strip().partition("=") for item in (form["axes"] or "").split(",")] if form and form["axes"] else []
    if form is None or not all(axis and equals and value for axis, equals, value in axes):
        raise UsageError(
            f"{text!r} can match no case",
            cure="write benchmark, benchmark/variant or benchmark/variant[axis=value,...], with * and ? as you like",
        )
    return Glob(
        text=text,
        benchmark=_pattern(form["benchmark"]),
        variant=_pattern(form["variant"] or "*"),
        axes=tuple((axis, _pattern(value)) for axis, _, value in axes),
    )


def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(re.escape(glob).replace(r"\*", ".*").replace(r"\?", "."))


def choose(
    selection: Selection, cases: Sequence[Case], others: Collection[Case], broken: Collection[str]
) -> tuple[Case, ...]:
    """Return the selected cases in their order.

    Args:
        selection: the globs.
        cases: the cases to select from.
        others: cases of points that are not measured now; they only improve the error message.
        broken: names of benchmarks with problems; a glob that names a broken benchmark may match no case.

    Raises:
        UsageError: a glob cannot be parsed or matches no case, every selected case is excluded, or there is no case.
    """
    for glob in map(parse, selection.select):
        if not any(glob.matches(case) for case in cases) and not any(map(glob.benchmark.fullmatch, broken)):
            raise UsageError(f"{glob.text!r} selects no case", cure=_cure(glob, cases, others))
    selected = selection.filter(cases)
    if not selected and Selection(selection.select).filter(cases):
        raise UsageError("every selected case is excluded", cure="exclude less, or select more")
    if not (cases or broken):
        cure = "ask for the other points (--points)" if others else "let only= of some variant accept some point"
        raise UsageError("the suite has no case at these points", cure=cure)
    return tuple(case for case in cases if case in selected)


def _cure(glob: Glob, cases: Sequence[Case], others: Collection[Case]) -> str:
    """Return the cure for a glob that matches no case: a match at points that are not measured, or similar names."""
    matches = [case.id for case in others if glob.matches(case)]
    if matches:
        return f"it matches {matches[0]}, whose point is not measured here: ask for the other points (--points)"
    names = [name for case in cases for name in (case.benchmark, f"{case.benchmark}/{case.variant}", case.id)]
    close = get_close_matches(glob.text, list(dict.fromkeys(names)), n=_MOST_SUGGESTIONS, cutoff=0.4)
    return f"the nearest are {', '.join(close)}" if close else "list all cases: perfsvc list"
