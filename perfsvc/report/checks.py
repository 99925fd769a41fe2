"""What a static check has to say, in as few lines as it can be said: one for all that changed alike."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsvc.errors import SuiteError
from perfsvc.model import Case, Cause, CheckedKernel, CheckVerdict, FactChange, Measurement, Occupancy, Status, Verdict

WORDS = {
    "spill_bytes": "spills",
    "stack_bytes": "stack",
    "shared_bytes": "shared memory",
    "dynamic_shared_bytes": "dynamic shared memory",
}
"""What facts are called where people read; the others by their own names."""

SHOWN = (Verdict.BROKEN, Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.MISSING, Verdict.IMPROVEMENT)
"""The verdicts that are always told."""

LOCAL = frozenset({"spill_bytes", "stack_bytes"})
"""The facts that tell of local memory."""
OF_CLASS = " instructions"
ARROW = "→"
BUT = ": this device"
"""What parts a requirement from what it met."""


@dataclass(frozen=True, slots=True)
class CheckShown:
    """A static check as reports show it; the words are those of ``perfsvc.service.check.check.CheckOutcome``."""

    check: int | None
    against: str
    toolkit: str
    disassembler: str
    checked: Sequence[CheckedKernel]
    verdicts: Sequence[CheckVerdict]
    sources: Mapping[tuple[Case, str], Path] = field(default_factory=dict)
    problems: Sequence[SuiteError] = ()
    wrong: Sequence[Measurement] = ()
    accepted: str = ""

    @property
    def architectures(self) -> tuple[str, ...]:
        """All of them, in the order of their numbers."""
        return tuple(sorted({one.architecture for one in self.checked}, key=number_of))

    @property
    def variants(self) -> int:
        """How many of them there are."""
        return len({variant_of(one.case) for one in self.checked})


@dataclass(frozen=True, slots=True)
class Line:
    """What some architectures have in common.

    Attributes:
        what: a variant, with its points where they differ, and its kernel where it has several.
        text: what changed, or why there is no saying.
        example: one of the verdicts that it stands for.
    """

    verdict: Verdict
    what: str
    architectures: tuple[str, ...]
    text: str
    cause: Cause | None
    example: CheckVerdict


def lines(verdicts: Iterable[CheckVerdict], shown: Sequence[Verdict] = SHOWN) -> list[Line]:
    """The verdicts that are to be shown, those that say the same of one variant in one line, in their own order."""
    every = list(verdicts)
    texts = [text_of(one) for one in every]
    labels = _labels(every, texts)
    alike: dict[tuple[Verdict, str, str, Cause | None], list[CheckVerdict]] = {}
    for one, text, label in zip(every, texts, labels, strict=True):
        if one.verdict in shown:
            alike.setdefault((one.verdict, label, text, one.cause), []).append(one)
    return [
        Line(verdict, what, _of(one.checked for one in found), text, cause, found[0])
        for (verdict, what, text, cause), found in alike.items()
    ]


def text_of(verdict: CheckVerdict) -> str:
    """``registers 32 → 64, occupancy 100 % → 50 % (registers); why``; no class of instructions by itself."""
    told = [change for change in verdict.changes if not change.fact.endswith(OF_CLASS)]
    limiter = limiter_of(verdict.checked.occupancy)
    written = [change_text(change) + (limiter if change.fact == "occupancy" else "") for change in told]
    return "; ".join(filter(None, [", ".join(written), verdict.reason]))


def change_text(change: FactChange) -> str:
    """``registers 32 → 64``."""
    word = WORDS.get(change.fact, change.fact)
    if change.fact == "occupancy":
        return f"{word} {100 * change.before:.0f} % {ARROW} {100 * change.after:.0f} %"
    unit = " B" if change.fact.endswith("_bytes") else ""
    return f"{word} {change.before:.0f} {ARROW} {change.after:.0f}{unit}"


def limiter_of(occupancy: Occupancy | None) -> str:
    """`` (registers)``; empty where nothing limits it."""
    return f" ({occupancy.limiter})" if occupancy and occupancy.share < 1 else ""


def remarkable(shown: CheckShown) -> list[tuple[str, tuple[str, ...], str]]:
    """Kernels that use local memory as they did before: what, on which architectures, and how much.

    Where that changed a verdict tells it.
    """
    names = names_of(shown.checked)
    told = {_place(one.checked) for one in shown.verdicts if {change.fact for change in one.changes} & LOCAL}
    found: dict[tuple[str, str], list[CheckedKernel]] = {}
    for one in shown.checked:
        if one.facts and (one.facts.spill_bytes or one.facts.stack_bytes) and _place(one) not in told:
            used = {"spills": one.facts.spill_bytes, "stack": one.facts.stack_bytes}
            text = ", ".join(f"{word} {size} B" for word, size in used.items() if size)
            found.setdefault((names[one.case, one.kernel], text), []).append(one)
    return [(what, _of(kernels), text) for (what, text), kernels in found.items()]


def _place(checked: CheckedKernel) -> tuple[Case, str, str]:
    return checked.case, checked.architecture, checked.kernel


def skipped(checked: Iterable[CheckedKernel]) -> list[tuple[str, list[str], tuple[str, ...]]]:
    """Why variants were skipped, which, and on which architectures."""
    found: dict[str, list[CheckedKernel]] = {}
    for one in checked:
        if one.status is Status.SKIPPED:
            found.setdefault(one.reason.partition(BUT)[0], []).append(one)
    return [
        (reason, list(dict.fromkeys(variant_of(one.case) for one in alike)), _of(alike))
        for reason, alike in found.items()
    ]


def names_of(checked: Iterable[CheckedKernel]) -> dict[tuple[Case, str], str]:
    """What each kernel is called: its variant, with its own name where the variant has several."""
    kernels: dict[str, set[str]] = {}
    every = [(one.case, one.kernel) for one in checked]
    for case, kernel in every:
        kernels.setdefault(variant_of(case), set()).update({kernel} - {""})
    return {
        (case, kernel): variant_of(case) + (f" {kernel}" if len(kernels[variant_of(case)]) > 1 and kernel else "")
        for case, kernel in every
    }


def variant_of(case: Case) -> str:
    """``transpose/tiled``."""
    return f"{case.benchmark}/{case.variant}"


def number_of(architecture: str) -> int:
    """By which architectures are ordered."""
    return int("".join(filter(str.isdigit, architecture)) or 0)


def _labels(verdicts: Sequence[CheckVerdict], texts: Sequence[str]) -> list[str]:
    """What each verdict is on: a variant, and at which points where not all of an architecture say the same."""
    names = names_of(one.checked for one in verdicts)
    groups: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(verdicts):
        groups.setdefault((names[one.checked.case, one.checked.kernel], one.checked.architecture), []).append(place)
    labels = [""] * len(verdicts)
    for (name, _), group in groups.items():
        for place in group:
            said = verdicts[place].verdict, texts[place]
            points = [verdicts[at].checked.case.point_text for at in group if (verdicts[at].verdict, texts[at]) == said]
            labels[place] = name if len(points) == len(group) else f"{name}[{'; '.join(points)}]"
    return labels


def _of(checked: Iterable[CheckedKernel]) -> tuple[str, ...]:
    return tuple(sorted({one.architecture for one in checked}, key=number_of))
