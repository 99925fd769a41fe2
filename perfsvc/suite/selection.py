"""Choosing cases by glob: ``transpose``, ``transpose/tiled*``, ``*/naive[n=4096]``, ``*[n=4*]``.

``*`` stands for any text and ``?`` for one character. A glob without a slash names benchmarks; ``[...]`` holds globs
for the values of axes, and an axis that it does not name may have any value. A case's id selects that case.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from perfsvc.errors import UsageError
from perfsvc.model import Case

_SHAPE = re.compile(r"(?P<benchmark>[^/\[\]]+)(/(?P<variant>[^/\[\]]+))?(\[(?P<axes>[^\[\]]*)\])?")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Selection:
    """The cases that some glob of ``select`` takes (all where there is none) and no glob of ``exclude`` does."""

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def filter(self, cases: Iterable[Case]) -> set[Case]:
        """Those of some cases that are selected, which may be none.

        Raises ``UsageError`` where a glob cannot be understood.
        """
        wanted, unwanted = [parse(text) for text in self.select], [parse(text) for text in self.exclude]
        return {
            case
            for case in cases
            if (not wanted or any(glob.takes(case) for glob in wanted))
            and not any(glob.takes(case) for glob in unwanted)
        }

    def reaches(self, benchmark: str) -> bool:
        """Whether some case of a benchmark could be selected, whatever its cases are.

        Raises ``UsageError`` where a glob cannot be understood.
        """
        wanted, unwanted = [parse(text) for text in self.select], [parse(text) for text in self.exclude]
        return (not wanted or any(glob.benchmark.fullmatch(benchmark) for glob in wanted)) and not any(
            glob.whole and glob.benchmark.fullmatch(benchmark) for glob in unwanted
        )


@dataclass(frozen=True, slots=True)
class Glob:
    """One glob, understood."""

    text: str
    benchmark: re.Pattern[str]
    variant: re.Pattern[str]
    axes: tuple[tuple[str, re.Pattern[str]], ...]

    @property
    def whole(self) -> bool:
        """Whether it takes all cases of the benchmarks that it names."""
        return not self.axes and self.variant == _pattern("*")

    def takes(self, case: Case) -> bool:
        """Whether a case is selected."""
        values = dict(case.point)
        return bool(
            self.benchmark.fullmatch(case.benchmark)
            and self.variant.fullmatch(case.variant)
            and all(axis in values and value.fullmatch(str(values[axis])) for axis, value in self.axes)
        )


def parse(text: str) -> Glob:
    """Understands a glob; raises ``UsageError`` where there is nothing to understand."""
    shape = _SHAPE.fullmatch(text)
    axes = [item.strip().partition("=") for item in (shape["axes"] or "").split(",")] if shape and shape["axes"] else []
    if shape is None or not all(axis and equals and value for axis, equals, value in axes):
        raise UsageError(
            f"{text!r} selects nothing that could exist",
            cure="write benchmark, benchmark/variant or benchmark/variant[axis=value,...], with * and ? as you like",
        )
    return Glob(
        text=text,
        benchmark=_pattern(shape["benchmark"]),
        variant=_pattern(shape["variant"] or "*"),
        axes=tuple((axis, _pattern(value)) for axis, _, value in axes),
    )


def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(re.escape(glob).replace(r"\*", ".*").replace(r"\?", "."))


def choose(
    selection: Selection, cases: Sequence[Case], others: Collection[Case], broken: Iterable[str]
) -> tuple[Case, ...]:
    """The selected cases, in the order they came.

    Args:
        selection: the globs.
        cases: what there is to select from.
        others: cases of points that are not measured now, for a better message.
        broken: names of benchmarks with problems: a glob that names one is not at fault where it takes nothing.

    Raises:
        UsageError: a glob cannot be understood or takes no case, or nothing is left.
    """
    wanted, unwanted = [parse(text) for text in selection.select], [parse(text) for text in selection.exclude]
    for glob in wanted:
        if not any(glob.takes(case) for case in cases) and not any(map(glob.benchmark.fullmatch, broken)):
            raise UsageError(f"{glob.text!r} selects no case", cure=_cure(glob, cases, others))
    selected = tuple(case for case in cases if not wanted or any(glob.takes(case) for glob in wanted))
    left = tuple(case for case in selected if not any(glob.takes(case) for glob in unwanted))
    if selected and not left:
        raise UsageError("every selected case is excluded", cure="exclude less, or select more")
    return left


def _cure(glob: Glob, cases: Sequence[Case], others: Collection[Case]) -> str:
    elsewhere = [case.id for case in others if glob.takes(case)]
    if elsewhere:
        return f"it takes {elsewhere[0]}, whose point is not among those measured here: ask for the others (--points)"
    names = [name for case in cases for name in (case.benchmark, f"{case.benchmark}/{case.variant}", case.id)]
    close = difflib.get_close_matches(glob.text, list(dict.fromkeys(names)), n=_SHOWN, cutoff=0.4)
    return f"the nearest are {', '.join(close)}" if close else "list what there is: perfsvc list"
