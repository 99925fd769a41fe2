"""Verdicts on the static facts of kernels. The compiler decides them: they are exact, need one look and no interval.

- More spills or a larger stack is a regression, whatever else improves: threads then wait for memory that they did not
  need before.
- Lower occupancy is a regression.
- More registers alone are a regression from ``REGISTER_STEP`` on. A smaller change has no effect on a launch while the
  occupancy stays. If spills, stack or occupancy improve with more registers, only a measurement can judge the trade:
  inconclusive.
- Shared memory and barriers are judged by the occupancy they leave. Instruction counts are shown and not judged: an
  unrolled loop has more instructions and takes less time.
"""

import re
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

_FLAGS = re.compile(r" (NVCC_\w+_FLAGS)=")  # in what a compiler calls itself: perfsvc.build.nvcc
REGISTER_STEP = 8
"""Registers of a thread. On every architecture since Volta, a warp gets its registers in blocks of 256."""

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

_Target = tuple[Case, str]
"""A case and an architecture."""


def check_verdicts(
    baseline: Iterable[StaticBaseline], candidate: Iterable[CheckedKernel], toolkit: str
) -> list[CheckVerdict]:
    """Return the verdict on every kernel of either side, the worst first; a kernel that both sides skip has no verdict.

    The kernels of a case are matched by name. If exactly one kernel of each side has no partner, the new kernel counts
    as the old kernel renamed. If more kernels have no partner, the new kernels are inconclusive, because each may be a
    renamed old kernel. If the ``version`` of a benchmark was raised, none of its old kernels is missing.

    Args:
        baseline: the facts to compare with, under the present names of the cases.
        candidate: the kernels to judge.
        toolkit: the compiler of the candidate.
    """
    before: dict[_Target, list[StaticBaseline]] = {}
    for held in baseline:
        if held.checked.status is Status.OK:
            before.setdefault(_target(held.checked), []).append(held)
    after: dict[_Target, list[CheckedKernel]] = {}
    for checked in candidate:
        after.setdefault(_target(checked), []).append(checked)
    verdicts: list[CheckVerdict] = []
    for target, kernels in after.items():
        verdicts += _judge_target(before.get(target, []), kernels, toolkit)
    present = set(map(_any_version, after))
    for target, old in before.items():
        if target not in after and _any_version(target) not in present:
            verdicts += [_missing(held, GONE) for held in old]
    return sorted(verdicts, key=_sort_key)


def _target(checked: CheckedKernel) -> _Target:
    return checked.case, checked.architecture


def _any_version(target: _Target) -> Hashable:
    case, architecture = target
    return case.benchmark, case.variant, case.point, architecture


def _judge_target(
    before: Sequence[StaticBaseline], after: Sequence[CheckedKernel], toolkit: str
) -> Iterator[CheckVerdict]:
    """Judge a case's kernels for one architecture. If any kernel fails to compile, no kernel is reported as missing."""
    gone = {held.checked.kernel: held for held in before}
    pairs = [(checked, gone.pop(checked.kernel, None)) for checked in after]
    added = [checked for checked, held in pairs if held is None]
    if len(added) == len(gone) == 1:
        _, renamed = gone.popitem()
        pairs = [(checked, held or renamed) for checked, held in pairs]
    for checked, held in pairs:
        if checked.status is Status.FAILED:
            yield CheckVerdict(checked, Verdict.BROKEN, held.checked if held else None, reason=checked.reason)
        elif checked.status is Status.SKIPPED:
            gone |= {held.checked.kernel: held} if held else {}
        elif held is None and gone and _can_run(checked):
            names = " or ".join(sorted(gone))
            reason = f"it may be {names} under a new name: accept the check if its facts are right"
            yield CheckVerdict(checked, Verdict.INCONCLUSIVE, reason=reason)
        else:
            yield _judge(held, checked, toolkit)
    if all(checked.status is not Status.FAILED for checked in after):
        reason = next((checked.reason for checked in after if checked.reason), GONE)
        yield from (_missing(held, reason) for held in gone.values())


def _can_run(checked: CheckedKernel) -> bool:
    return checked.occupancy is None or bool(checked.occupancy.warps)


def _missing(held: StaticBaseline, reason: str) -> CheckVerdict:
    return CheckVerdict(held.checked, Verdict.MISSING, held.checked, reason=reason, baseline_check=held.check)


def _judge(held: StaticBaseline | None, checked: CheckedKernel, toolkit: str) -> CheckVerdict:
    """Return the verdict on a kernel that compiled. ``held`` is its baseline; None if it has none."""
    before = held.checked if held else None
    changed = fact_changes(before, checked) if before else ()
    check = held.check if held else None
    if checked.occupancy and not _can_run(checked):
        reason = f"no block of the kernel can run: it exceeds the limit of {checked.occupancy.limiter}"
        return CheckVerdict(checked, Verdict.BROKEN, before, changed, reason, baseline_check=check)
    if held is None:
        return CheckVerdict(checked, Verdict.NEW)
    verdict, reason = _verdict(changed)
    cause, evidence = (None, "") if verdict is Verdict.UNCHANGED else _cause(held, checked, toolkit)
    reasons = "; ".join(filter(None, [reason, evidence]))
    return CheckVerdict(checked, verdict, before, changed, reasons, cause, check)


def _verdict(changed: Iterable[FactChange]) -> tuple[Verdict, str]:
    """Return the verdict on the changes of a kernel's facts, and why an inconclusive verdict is inconclusive."""
    judged = {change.fact: change.better for change in changed if change.better is not None}
    worse = {fact for fact, better in judged.items() if not better}
    if worse == {REGISTERS} and len(judged) > 1:
        return Verdict.INCONCLUSIVE, "more registers, but less spilling or higher occupancy: only times can tell"
    if worse:
        return Verdict.REGRESSION, ""
    return (Verdict.IMPROVEMENT if judged else Verdict.UNCHANGED), ""


def _cause(held: StaticBaseline, checked: CheckedKernel, toolkit: str) -> tuple[Cause, str]:
    """Return why facts changed. Facts are exact, so a source or compiler that is the same on both sides is no cause."""
    same_source, same_toolkit = held.checked.source == checked.source, held.toolkit == toolkit
    if same_source and same_toolkit:
        return Cause.ENVIRONMENT, "source and compiler are the same: headers outside the suite changed"
    if same_source:
        return Cause.TOOLCHAIN, _change_of_compiler(held.toolkit, toolkit)
    return (Cause.KERNEL, "") if same_toolkit else (Cause.UNCONFIRMED, f"source and compiler ({held.toolkit}) changed")


def _change_of_compiler(before: str, after: str) -> str:
    """Return what changed between two compilers, each with the flags that the environment gives it."""
    (old, *old_flags), (new, *new_flags) = (_FLAGS.split(toolkit) for toolkit in (before, after))
    if old != new:
        return f"{before} made other code from the same source"
    was, now = (dict(zip(flags[::2], flags[1::2], strict=True)) for flags in (old_flags, new_flags))
    return ", ".join(
        f"{name} changed: {was.get(name, '(none)')} → {now.get(name, '(none)')}"
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    )


def fact_changes(before: CheckedKernel, after: CheckedKernel) -> tuple[FactChange, ...]:
    """Return every changed fact of a kernel, the judged facts first."""
    old, new = before.facts, after.facts
    if old is None or new is None:
        return ()
    fewer_registers = new.registers < old.registers if abs(new.registers - old.registers) >= REGISTER_STEP else None
    facts = [
        FactChange(SPILLS, old.spill_bytes, new.spill_bytes, new.spill_bytes < old.spill_bytes),
        FactChange(STACK, old.stack_bytes, new.stack_bytes, new.stack_bytes < old.stack_bytes),
    ]
    if before.occupancy and after.occupancy:
        share, now = before.occupancy.share, after.occupancy.share
        facts.append(FactChange(OCCUPANCY, share, now, now > share))
    facts += [
        FactChange(REGISTERS, old.registers, new.registers, fewer_registers),
        FactChange("threads", before.threads, after.threads),
        FactChange("shared_bytes", old.shared_bytes, new.shared_bytes),
        FactChange("dynamic_shared_bytes", before.dynamic_shared_bytes, after.dynamic_shared_bytes),
        FactChange("barriers", old.barriers, new.barriers),
        *_instruction_counts(old, new),
    ]
    return tuple(change for change in facts if change.before != change.after)


def _instruction_counts(before: StaticFacts, after: StaticFacts) -> Iterator[FactChange]:
    """Yield the number of instructions before and after: first of all instructions, then of each class."""
    if before.instructions is None or after.instructions is None:
        return
    old, new = dict(before.instructions), dict(after.instructions)
    yield FactChange(INSTRUCTIONS, sum(old.values()), sum(new.values()))
    for name in {**old, **new}:
        yield FactChange(f"{name} {INSTRUCTIONS}", old.get(name, 0), new.get(name, 0))


def _sort_key(verdict: CheckVerdict) -> tuple[int, str, int, str]:
    checked = verdict.checked
    number = int("".join(filter(str.isdigit, checked.architecture)) or 0)
    return ORDER.index(verdict.verdict), checked.case.id, number, checked.kernel
