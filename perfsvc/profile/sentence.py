"""The sentence of an explanation: how much slower, why, at which source line, and what was changed."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile

from perfsvc import units
from perfsvc.model import HotLine, Reason, SourceChange
from perfsvc.model import ReasonKind as Kind
from perfsvc.text import shortened

SAME = 0.02
"""Two times count as equal if their logarithms differ by less than this, as in two profiles of one binary."""
WHOLE = 0.95
"""From this share on, the sentence says "all of it"."""
MOST_CHANGES = 3
"""If the sources differ in more places, any of them may be the change, and the sentence names none."""
LONGEST_CODE = 100
"""Characters of a line of code in the sentence, and of the name of its file; a longer text lacks its middle."""
COMPARED = 8
"""How many lines of a side of a change are compared to find those that belong together."""
SIMILAR = 0.5
"""Two lines belong together from this similarity on."""

WORDS: Mapping[Kind, tuple[str, str]] = {
    Kind.TENSOR: ("the tensor pipe no longer used", "the tensor pipe used"),
    Kind.SPILLS: ("register spills", "fewer register spills"),
    Kind.ATOMICS: ("contended atomics", "fewer contended atomics"),
    Kind.BANK_CONFLICTS: ("shared-memory bank conflicts", "fewer shared-memory bank conflicts"),
    Kind.UNCOALESCED: ("uncoalesced global access", "better coalesced global access"),
    Kind.CONSTANTS: ("divergent constant addresses", "less divergent constant addresses"),
    Kind.FP64: ("double precision", "less double precision"),
    Kind.SPECIAL: ("special functions", "fewer special functions"),
    Kind.SMALL_LAUNCH: ("a launch too small for the GPU", "a larger launch"),
    Kind.BARRIERS: ("waiting at barriers", "less waiting at barriers"),
    Kind.TENSOR_WAIT: ("tensor cores that wait for shared memory", "tensor cores that wait less for shared memory"),
    Kind.UNROLLING: ("lost unrolling", "unrolling"),
    Kind.INSTRUCTION_CACHE: ("instruction cache misses", "fewer instruction cache misses"),
    Kind.DIVERGENCE: ("divergent branches", "fewer divergent branches"),
    Kind.OCCUPANCY: ("lower occupancy", "higher occupancy"),
    Kind.TAIL: ("a tail of blocks", "no tail of blocks"),
    Kind.HIT_RATE: ("a lower hit rate", "a higher hit rate"),
    Kind.TRAFFIC: ("more memory traffic", "less memory traffic"),
    Kind.INSTRUCTIONS: ("more instructions", "fewer instructions"),
    Kind.CLOCKS: ("lower clocks", "higher clocks"),
    Kind.STALLS: ("longer stalls", "shorter stalls"),
}
"""The words for each reason: first if the launch became slower, then if it became faster."""


def sentence(factor: float, reasons: Sequence[Reason], changes: Sequence[SourceChange] = ()) -> str:
    """Return an explanation as a sentence that names at most two independent reasons, and a sentence about the change.

    ``2.0 × slower: shared-memory bank conflicts (loads 1-way → 32-way) can account for all of it, at tile.cu:38
    `b[i] = tile[x][y];`. Changed: tile.cu:31 `float tile[32][33];` → `float tile[32][32];`.``

    Args:
        factor: the candidate's duration over the baseline's.
        reasons: the ranked reasons, with the text of their lines if it is known.
        changes: where the sources differ.
    """
    slower = factor > 1
    amount = f"{_amount(factor)} {'slower' if slower else 'faster'}"
    named = [reason for reason in reasons if reason.is_named][:2]
    line = named[0].main_line(slower=slower) if named else None
    few = changes if len(changes) <= MOST_CHANGES else ()
    by_distance = sorted(few, key=lambda change: _distance(change, line, slower=slower))
    about_change = _about_change(by_distance, line, slower=slower)
    if not named:
        return f"{amount}, and nothing that was counted can account for it.{about_change}"
    parts = []
    for index, reason in enumerate(named):
        words = f"{WORDS[reason.kind][0 if slower else 1]} ({reason.detail})"
        place = _place(reason, by_distance[: index == 0], slower=slower)
        parts.append(f"{words} {'' if index else 'can account '}for {_part(reason.share)}{place}")
    return f"{amount}: {'; '.join(parts)}.{about_change}"


def _amount(factor: float) -> str:
    """Return by how much a launch is slower or faster: ``2.0 ×``; in per cent if it rounds to less than 1.1."""
    size = max(factor, 1 / factor)
    return f"{size:.1f} ×" if size >= 1.095 else f"{100 * (size - 1):.1f} %"  # noqa: PLR2004 - rounds to 1.1


def _part(share: float) -> str:
    return "all of it" if share >= WHOLE else f"{100 * share:.0f} % of it"


# --- the line --------------------------------------------------------------------------------------------------------


def _place(reason: Reason, described: Sequence[SourceChange], *, slower: bool) -> str:
    """Return where a reason is, with a comma before it; empty if no line is known.

    Args:
        reason: a reason of an explanation.
        described: the change that another sentence describes; the text of its lines is left out here.
        slower: whether the candidate is the slower launch.
    """
    line = reason.main_line(slower=slower)
    if line is None or line.source is None:
        return ""
    of_baseline = "" if slower else " of the baseline"
    code = f" {_code(line.text)}" if line.text else ""
    mark = " (a changed line)" if line.changed else ""
    if any(_distance(change, line, slower=slower) == 0 for change in described):
        code = mark = ""
    share = "" if line.share >= WHOLE else f", {units.share(line.share)} of the {reason.counted}"
    return f", at {_file(line.source.file)}:{line.source.line}{of_baseline}{code}{mark}{share}"


def _code(text: str) -> str:
    return f"`{shortened(text, LONGEST_CODE)}`"


def _file(name: str) -> str:
    return shortened(name, LONGEST_CODE)


# --- the change ------------------------------------------------------------------------------------------------------


def _about_change(by_distance: Sequence[SourceChange], line: HotLine | None, *, slower: bool) -> str:
    """Return a sentence about the first of some changes, with a space before it; empty without changes."""
    if not by_distance:
        return ""
    nearest, *others = by_distance
    places = ", ".join(f"{_file(change.file)}:{change.after_line}" for change in others)
    further = f"; {'further changes' if others[1:] else 'a further change'} at {places}" if others else ""
    return f" {_changed(nearest, line, slower=slower)}{further}."


def _distance(change: SourceChange, line: HotLine | None, *, slower: bool) -> float:
    """Return how many lines a change is away from a line; 0 if the line is changed, infinite in another file."""
    if line is None or line.source is None or line.source.file != change.file:
        return float("inf")
    first, lines = (change.after_line, change.after) if slower else (change.before_line, change.before)
    number, last = line.source.line, first + len(lines) - 1
    if first <= number <= last:
        return 0
    return max(first - number, number - last, 1)


def _changed(change: SourceChange, line: HotLine | None, *, slower: bool) -> str:
    """Return what a change is: ``Changed: tile.cu:31 `old` → `new```, or that a line was added or removed."""
    file = _file(change.file)
    own = -1  # the index of the line itself, if it is changed
    if line and line.source and _distance(change, line, slower=slower) == 0:
        own = line.source.line - (change.after_line if slower else change.before_line)
    old, new = _pair(change.before, change.after, own if not slower else -1, own if slower else -1)
    more = max(_lines(change.before), _lines(change.after)) - 1
    further = f" and {units.count(more, 'more line')}" if more > 0 else ""
    if new is None:
        code = f" of the baseline {_code(change.before[old])}" if old is not None else ""
        return f"Removed: {file}:{change.before_line + (old or 0)}{code}{further}"
    place = f"{file}:{change.after_line + new}"
    if old is not None:
        codes = _around_difference(change.before[old], change.after[new])
        return f"Changed: {place} `{codes[0]}` → `{codes[1]}`{further}"
    return f"{'Changed' if _lines(change.before) else 'Added'}: {place} {_code(change.after[new])}{further}"


def _pair(before: Sequence[str], after: Sequence[str], own_old: int, own_new: int) -> tuple[int | None, int | None]:
    """Return the indexes of the two lines of a change that are most alike; None for a side without a similar line.

    Args:
        before: the baseline's lines.
        after: the candidate's lines.
        own_old: the index of the line of the baseline that is meant; -1 for any.
        own_new: the same for the candidate.
    """
    olds = [own_old] if own_old >= 0 else [index for index, line in enumerate(before) if line][:COMPARED]
    news = [own_new] if own_new >= 0 else [index for index, line in enumerate(after) if line][:COMPARED]
    alike = {(old, new): _similarity(before[old], after[new]) for old in olds for new in news}
    best = max(alike, key=lambda pair: alike[pair], default=None)
    if best and (alike[best] >= SIMILAR or len(olds) == len(news) == 1):
        return best
    return (None, news[0]) if news else (olds[0] if olds else None, None)


def _similarity(old: str, new: str) -> float:
    one, other = (shortened(text, 2 * LONGEST_CODE) for text in (old, new))
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _lines(lines: Sequence[str]) -> int:
    return sum(map(bool, lines))


def _around_difference(old: str, new: str) -> tuple[str, str]:
    """Return two lines; of long lines, the parts that differ with some of what is around them."""
    if max(len(old), len(new)) <= LONGEST_CODE:
        return old, new
    beginning = _common(old, new)
    end = min(_common(old[::-1], new[::-1]), len(old) - beginning, len(new) - beginning)
    left, right = max(0, beginning - LONGEST_CODE // 4), max(0, end - LONGEST_CODE // 4)
    parts = (f"{'…' if left else ''}{text[left : len(text) - right]}{'…' if right else ''}" for text in (old, new))
    shown_old, shown_new = (shortened(part, LONGEST_CODE) for part in parts)
    return shown_old, shown_new


def _common(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
