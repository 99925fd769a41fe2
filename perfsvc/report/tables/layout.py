"""What all tables share: their look, the words of a verdict, and a layout that knows its width.

Cells are ``Text``, never markup: a case id such as ``dot/tree[n=1024]`` would be read as a style.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import CacheState, CheckVerdict, Judgement, Status, Verdict
from perfsvc.report.rows import Key

DASH = "–"

VERDICT_STYLES: Mapping[Verdict, str] = {
    Verdict.REGRESSION: "bold red",
    Verdict.BROKEN: "bold red",
    Verdict.MISSING: "yellow",
    Verdict.IMPROVEMENT: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NEW: "cyan",
    Verdict.UNCHANGED: "dim",
}

STATUS_MARKS: Mapping[Status, tuple[str, str]] = {
    Status.OK: ("✓", "green"),
    Status.WRONG: ("✗", "bold red"),
    Status.FAILED: ("✗", "bold red"),
    Status.SKIPPED: (DASH, "dim"),
}
"""Mark and style; the word stands beside it wherever the mark is not ✓."""

COUNTED = {
    Verdict.REGRESSION: ("regression", "regressions"),
    Verdict.IMPROVEMENT: ("improvement", "improvements"),
    Verdict.UNCHANGED: ("unchanged", "unchanged"),
    Verdict.INCONCLUSIVE: ("inconclusive", "inconclusive"),
    Verdict.BROKEN: ("broken", "broken"),
    Verdict.NEW: ("new", "new"),
    Verdict.MISSING: ("missing", "missing"),
}
ALWAYS_COUNTED = {Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.UNCHANGED}

NAMED = 3
"""How many cases are named where several have something in common."""

UNBOUNDED = 10_000
"""Columns that no table needs."""


class Responsive:
    """Renders the first of several tables that fits the console, from the widest to the narrowest; else the last."""

    def __init__(self, *tables: Table) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(width=UNBOUNDED)
        fitting = (
            table for table in self._tables if table.__rich_measure__(console, unbounded).maximum <= options.max_width
        )
        yield next(fitting, self._tables[-1])


def grid() -> Table:
    """An empty table in the house's look: a rule below the header, two spaces between columns."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def mark(status: Status | None) -> Text:
    """The status as one character; a dash where nothing was measured."""
    return Text(*STATUS_MARKS[status]) if status else Text(DASH, "yellow")


def verdict_word(verdict: Verdict) -> Text:
    """The verdict as its word, coloured where there is colour."""
    return Text(verdict.value, VERDICT_STYLES[verdict])


def known(value: float | None, write: Callable[[float], str]) -> str:
    """A number as ``write`` writes it, or a dash."""
    return DASH if value is None else write(value)


def spread(median: float | None, low: float | None, high: float | None) -> str:
    """Half the interval as a share of the median: ``±0.4 %``; empty where there is none."""
    if not median or low is None or high is None:
        return ""
    return f"±{50 * (high - low) / abs(median):.1f} %"


def counts(judgements: Iterable[Judgement | CheckVerdict]) -> str:
    """``1 regression, 0 improvements, 8 unchanged``, and the other verdicts where there are any."""
    found = Counter(judgement.verdict for judgement in judgements)
    return ", ".join(
        units.count(found[verdict], *words)
        for verdict, words in COUNTED.items()
        if found[verdict] or verdict in ALWAYS_COUNTED
    )


def some(names: Sequence[str]) -> str:
    """Names, or the first of them and how many more there are."""
    return ", ".join(names) if len(names) <= NAMED else f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def cache_words(keys: Iterable[Key]) -> dict[Key, str]:
    """What is said of each case's cache state: nothing of cold, the usual one, unless the case is there in both."""
    caches: dict[tuple[str, str], set[CacheState]] = defaultdict(set)
    every = tuple(keys)
    for device, case, cache in every:
        caches[device, case].add(cache)
    return {key: "" if caches[key[:2]] == {CacheState.COLD} else key[2].value for key in every}


def moment(when: datetime) -> str:
    """A moment as tables show it, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M}"


def commit_text(commit: str, *, dirty: bool) -> str:
    """The first digits of a commit, with a ``+`` where there were uncommitted changes; a dash without one."""
    return (commit[:9] + ("+" if dirty else "")) or DASH
