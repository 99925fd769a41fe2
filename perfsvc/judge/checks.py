"""Verdicts on facts that a compiler decides: exact, so that one look is enough and no interval is needed.

- More spills or a larger stack is a regression, whatever else is better: a thread then waits for memory that it did not
  need before.
- Lower occupancy is a regression.
- More registers alone are one from ``REGISTER_STEP`` on; fewer than that change nothing that a launch could feel while
  the occupancy stands. Where spills, stack or occupancy are better for it, they are a trade that only a measurement
  can judge: inconclusive.
- Shared memory and barriers are judged by the occupancy they leave. Numbers of instructions are shown and not judged:
  an unrolled loop has more of them and takes less time.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

from perfsvc.model import (
    Case,
    Cause,
    CheckedKernel,
    CheckVerdict,
    FactChange,
    StaticBaseline,
    StaticFacts,
    Status,
    Verdict,
)

REGISTER_STEP = 8
"""Registers of a thread. A warp is given its registers in pieces of 256, on every architecture since Volta."""

REGISTERS, OCCUPANCY, SPILLS, STACK = "registers", "occupancy", "spill_bytes", "stack_bytes"
INSTRUCTIONS = "instructions"

ORDER = (
    Verdict.BROKEN,
    Verdict.REGRESSION,
    Verdict.INCONCLUSIVE,
    Verdict.MISSING,
    Verdict.IMPROVEMENT,
    Verdict.NEW,
    Verdict.UNCHANGED,
)

GONE = "the baseline has it and the candidate does not"

Spot = tuple[Case, str]
"""A case and an architecture."""


def check_verdicts(
    baseline: Iterable[StaticBaseline], candidate: Iterable[CheckedKernel], toolkit: str
) -> list[CheckVerdict]:
    """The verdict on every kernel of either side, the worst first; of what both sides skip there is none.

    Kernels are found by name; where one of each side is left in a case, they are the same one by another name. Where
    more are left, those that came are inconclusive, for one of them may be what went. A benchmark whose ``version``
    was raised begins anew: nothing of its past is missing.

    Args:
        baseline: what there is to compare with, under the present names of the cases.
        candidate: what is judged.
        toolkit: the compiler of that.
    """
    before: dict[Spot, list[StaticBaseline]] = {}
    for held in baseline:
        if held.checked.status is Status.OK:
            before.setdefault(_spot(held.checked), []).append(held)
    after: dict[Spot, list[CheckedKernel]] = {}
    for checked in candidate:
        after.setdefault(_spot(checked), []).append(checked)
    verdicts: list[CheckVerdict] = []
    for spot, kernels in after.items():
        verdicts += _of_spot(before.get(spot, []), kernels, toolkit)
    present = set(map(_any_version, after))
    for spot, was in before.items():
        if spot not in after and _any_version(spot) not in present:
            verdicts += [_missing(held, GONE) for held in was]
    return sorted(verdicts, key=_place)


def _spot(checked: CheckedKernel) -> Spot:
    return checked.case, checked.architecture


def _any_version(spot: Spot) -> Hashable:
    case, architecture = spot
    return case.benchmark, case.variant, case.point, architecture


def _of_spot(before: Sequence[StaticBaseline], after: Sequence[CheckedKernel], toolkit: str) -> Iterator[CheckVerdict]:
    """The verdicts on a case's kernels for one architecture; nothing is missing of what does not compile."""
    gone = {held.checked.kernel: held for held in before}
    pairs = [(checked, gone.pop(checked.kernel, None)) for checked in after]
    added = [checked for checked, held in pairs if held is None]
    if len(added) == len(gone) == 1:
        _, successor = gone.popitem()
        pairs = [(checked, held or successor) for checked, held in pairs]
    for checked, held in pairs:
        if checked.status is Status.FAILED:
            yield CheckVerdict(checked, Verdict.BROKEN, held.checked if held else None, reason=checked.reason)
        elif checked.status is Status.SKIPPED:
            gone |= {held.checked.kernel: held} if held else {}
        elif held is None and gone and _can_run(checked):
            yield CheckVerdict(checked, Verdict.INCONCLUSIVE, reason=_perhaps(gone))
        else:
            yield _judged(held, checked, toolkit)
    if all(checked.status is not Status.FAILED for checked in after):
        why = next((checked.reason for checked in after if checked.reason), GONE)
        yield from (_missing(held, why) for held in gone.values())


def _perhaps(gone: Iterable[str]) -> str:
    """Why a kernel that nobody knows is not new."""
    return f"nobody can tell whether it was called {' or '.join(sorted(gone))}: accept it where it is right as it is"


def _can_run(checked: CheckedKernel) -> bool:
    return checked.occupancy is None or bool(checked.occupancy.warps)


def _missing(held: StaticBaseline, reason: str) -> CheckVerdict:
    return CheckVerdict(held.checked, Verdict.MISSING, held.checked, reason=reason, baseline_check=held.check)


def _judged(held: StaticBaseline | None, checked: CheckedKernel, toolkit: str) -> CheckVerdict:
    before = held.checked if held else None
    moved = changes(before, checked) if before else ()
    check = held.check if held else None
    if checked.occupancy and not _can_run(checked):
        reason = f"no block of it can run: too much of {checked.occupancy.limiter}"
        return CheckVerdict(checked, Verdict.BROKEN, before, moved, reason, baseline_check=check)
    if held is None:
        return CheckVerdict(checked, Verdict.NEW)
    verdict, reason = _verdict(moved)
    cause, why = (None, "") if verdict is Verdict.UNCHANGED else _cause(held, checked, toolkit)
    reasons = "; ".join(filter(None, [reason, why]))
    return CheckVerdict(checked, verdict, before, moved, reasons, cause, check)


def _verdict(moved: Iterable[FactChange]) -> tuple[Verdict, str]:
    judged = {change.fact: change.better for change in moved if change.better is not None}
    worse = {fact for fact, better in judged.items() if not better}
    if worse == {REGISTERS} and len(judged) > 1:
        return Verdict.INCONCLUSIVE, "more registers for less of something worse: only a measurement can judge that"
    if worse:
        return Verdict.REGRESSION, ""
    return (Verdict.IMPROVEMENT if judged else Verdict.UNCHANGED), ""


def _cause(held: StaticBaseline, checked: CheckedKernel, toolkit: str) -> tuple[Cause, str]:
    """Why facts moved: they are exact, so that what is equal on both sides cannot be why."""
    same_source, same_toolkit = held.checked.source == checked.source, held.toolkit == toolkit
    if same_source and same_toolkit:
        return Cause.ENVIRONMENT, "source and compiler are the same: headers outside the suite are others"
    if same_source:
        return Cause.TOOLCHAIN, f"{held.toolkit} made other code of the same source"
    return (Cause.KERNEL, "") if same_toolkit else (Cause.UNCONFIRMED, f"source and compiler changed: {held.toolkit}")


def changes(before: CheckedKernel, after: CheckedKernel) -> tuple[FactChange, ...]:
    """Every fact of a kernel that is another one than before, what is judged first."""
    old, new = before.facts, after.facts
    if old is None or new is None:
        return ()
    pairs = [
        FactChange(SPILLS, old.spill_bytes, new.spill_bytes, new.spill_bytes < old.spill_bytes),
        FactChange(STACK, old.stack_bytes, new.stack_bytes, new.stack_bytes < old.stack_bytes),
        *_occupancy(before, after),
        FactChange(REGISTERS, old.registers, new.registers, _fewer_registers(old.registers, new.registers)),
        FactChange("threads", before.threads, after.threads),
        FactChange("shared_bytes", old.shared_bytes, new.shared_bytes),
        FactChange("dynamic_shared_bytes", before.dynamic_shared_bytes, after.dynamic_shared_bytes),
        FactChange("barriers", old.barriers, new.barriers),
        *_instructions(old, new),
    ]
    return tuple(change for change in pairs if change.before != change.after)


def _occupancy(before: CheckedKernel, after: CheckedKernel) -> Iterator[FactChange]:
    if before.occupancy and after.occupancy:
        old, new = before.occupancy.share, after.occupancy.share
        yield FactChange(OCCUPANCY, old, new, new > old)


def _fewer_registers(before: int, after: int) -> bool | None:
    return after < before if abs(after - before) >= REGISTER_STEP else None


def _instructions(before: StaticFacts, after: StaticFacts) -> Iterator[FactChange]:
    """Of all instructions, and of each class."""
    if before.instructions is None or after.instructions is None:
        return
    old, new = dict(before.instructions), dict(after.instructions)
    yield FactChange(INSTRUCTIONS, sum(old.values()), sum(new.values()))
    for name in {**old, **new}:
        yield FactChange(f"{name} {INSTRUCTIONS}", old.get(name, 0), new.get(name, 0))


def _place(verdict: CheckVerdict) -> tuple[int, str, int, str]:
    checked = verdict.checked
    number = int("".join(filter(str.isdigit, checked.architecture)) or 0)
    return ORDER.index(verdict.verdict), checked.case.id, number, checked.kernel
