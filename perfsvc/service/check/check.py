"""Checking a suite without a GPU: what compilers make of it, against a baseline or another revision."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from perfsvc import judge
from perfsvc.errors import PerfsvcError, SuiteError, UsageError
from perfsvc.model import Case, CheckedKernel, CheckVerdict, Measurement, StaticBaseline, Status, Verdict
from perfsvc.service.check.kernels import Looked, Looker
from perfsvc.service.git import checked_out
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.run import provenance
from perfsvc.service.run.request import RunRequest
from perfsvc.store import Store
from perfsvc.suite import Selection

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""What is looked at where nobody names any: data centre and workstation, from Ampere to Blackwell."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The options of a check.

    Attributes:
        database: where earlier checks are; unused where there is a ``base``.
        base: the revision of the suite to compare with; empty for the baseline in the database.
        accept: why all that is found is to be the baseline from now on; empty where it is not.
        run: run the cases on the CPU device, too, and look at their results.
    """

    database: str
    suite: Path
    architectures: tuple[str, ...] = ARCHITECTURES
    selection: Selection = field(default_factory=Selection)
    points: Literal["smoke", "full"] = "full"
    base: str = ""
    accept: str = ""
    run: bool = False
    command_line: str = ""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What came of it.

    Attributes:
        check: its number in the database; None where it is in none.
        against: what it was compared with, in words.
        toolkit: the compiler.
        disassembler: what counted instructions; empty where nothing did.
        checked: every kernel of every case, for each architecture.
        verdicts: the worst first.
        sources: the file that each kernel is in, by case and kernel.
        problems: what is wrong with benchmarks that the selection reaches, and why they could not be run.
        warnings: what is wrong with the others, and what the revision has that nothing can be compared with.
        wrong: what the CPU device could not run, or ran with a wrong result.
        accepted: why all of it is the baseline from now on; empty where it is not.
    """

    check: int | None
    against: str
    toolkit: str
    disassembler: str
    checked: tuple[CheckedKernel, ...]
    verdicts: tuple[CheckVerdict, ...]
    sources: Mapping[tuple[Case, str], Path]
    problems: tuple[SuiteError, ...]
    warnings: tuple[SuiteError, ...]
    wrong: tuple[Measurement, ...] = ()
    accepted: str = ""

    def exit_code(self, *, strict: bool) -> int:
        """The command's exit code; what a person accepts is no regression."""
        failed = bool(self.problems or self.wrong) or any(one.status is Status.FAILED for one in self.checked)
        standing = [one for one in self.verdicts if not self.accepted or one.verdict is Verdict.BROKEN]
        return judge.exit_code(standing, failed=failed, strict=strict)


def check(request: CheckRequest, progress: Progress | None = None) -> CheckOutcome:
    """Looks at the kernels of a suite and judges them.

    Args:
        request: what is asked for.
        progress: is told how far it is.

    Raises:
        UsageError: a selection matches nothing, the suite is empty, or there is no such revision or architecture.
        InfrastructureError: no compiler or no database.
    """
    progress = progress or Silent()
    looker = Looker(request.architectures, progress)
    if request.accept and provenance.revision_of(request.suite).dirty:
        raise UsageError("nothing with uncommitted changes can be a baseline", cure="commit them first")
    found = looker.look(request.suite, request.selection, request.points)
    wrong, failed = _run(request, found, progress) if request.run else ((), ())
    if request.base:
        number, (against, verdicts, lacking) = None, _against_revision(request, looker, found)
    else:
        number, against, verdicts = _stored(request, looker, found, progress.say)
        lacking = ()
    return CheckOutcome(
        check=number,
        against=against,
        toolkit=looker.toolkit,
        disassembler=looker.disassembler,
        checked=found.checked,
        verdicts=tuple(verdicts),
        sources=found.sources,
        problems=(*found.problems, *failed),
        warnings=(*found.warnings, *lacking),
        wrong=wrong,
        accepted=request.accept,
    )


def _against_revision(
    request: CheckRequest, looker: Looker, found: Looked
) -> tuple[str, list[CheckVerdict], tuple[SuiteError, ...]]:
    """The verdicts against the suite as it was at a revision, made by the same compiler, and what it cannot tell."""
    with checked_out(request.suite, request.base) as tree:
        before = looker.look_back(tree.suite, request.selection, request.points, found.checked)
    lacking = tuple(_lacking(before, request, tree.suite))
    held = _under_present_names(before.checked, found.checked, looker.toolkit)
    named = f"{request.base} ({tree.commit[:10]})" if not tree.commit.startswith(request.base) else request.base
    return named, judge.check_verdicts(held, found.checked, looker.toolkit), lacking


def _lacking(before: Looked, request: CheckRequest, folder: Path) -> Iterator[SuiteError]:
    """What of the suite in a folder, that of the revision, cannot be compared with, each at its file of today."""
    nothing = "so that nothing is compared with it"
    for problem in before.problems:
        what = f"at {request.base} this could not be used, {nothing}: {problem.what}"
        yield SuiteError(what, path=_of_today(problem.path, request, folder), line=problem.line)
    failed: dict[tuple[Path, str], list[str]] = {}
    for one in before.checked:
        if one.status is Status.FAILED:
            failed.setdefault((before.sources[one.case, ""], one.reason), []).append(one.architecture)
    for (source, reason), architectures in failed.items():
        where = ", ".join(dict.fromkeys(architectures))
        what = f"at {request.base} this could not be used for {where}, {nothing}: {reason}"
        yield SuiteError(what, path=_of_today(str(source), request, folder))


def _of_today(path: str, request: CheckRequest, folder: Path) -> str:
    then = Path(path)
    return str(request.suite / then.relative_to(folder)) if then.is_relative_to(folder) else path


def _under_present_names(
    before: Sequence[CheckedKernel], after: Sequence[CheckedKernel], toolkit: str
) -> list[StaticBaseline]:
    """What there was, each case as it is called now."""
    present = {
        replace(one.case, variant=name): one.case for one in after for name in (*one.case.formerly, one.case.variant)
    }
    return [StaticBaseline(replace(one, case=present.get(one.case, one.case)), toolkit) for one in before]


def _stored(
    request: CheckRequest, looker: Looker, found: Looked, say: Callable[[str], object]
) -> tuple[int, str, list[CheckVerdict]]:
    """The verdicts against the baseline of each kernel, stored with all that was found."""
    chosen = [f"--arch={name}" for name in sorted(set(request.architectures))]
    scope = " ".join([provenance.scope_of(request.suite, request.selection, request.points), *chosen])
    root_cause = provenance.collect(
        request.suite, command_line=request.command_line, label="", scope=scope, seed=0, replicas=0
    )
    if root_cause.dirty:
        say("the suite has uncommitted changes: it is judged, and is no baseline for later checks")
    with Store.open(request.database) as store:
        held = store.checks.baselines(found.checked, scope, looker.toolkit)
        verdicts = judge.check_verdicts(held, found.checked, looker.toolkit)
        judged = {(one.checked.case, one.checked.architecture, one.checked.kernel) for one in verdicts}
        others = [one for one in found.checked if (one.case, one.architecture, one.kernel) not in judged]
        number = store.checks.put(
            root_cause,
            verdicts,
            others,
            toolkit=looker.toolkit,
            disassembler=looker.disassembler,
            accepted=request.accept,
        )
    return number, _in_words(verdicts), verdicts


def _in_words(verdicts: Sequence[CheckVerdict]) -> str:
    """``check 12``; ``the baseline of each kernel`` where several checks hold them; empty where none does."""
    numbers = Counter(one.baseline_check for one in verdicts if one.baseline_check is not None)
    return "" if not numbers else f"check {next(iter(numbers))}" if len(numbers) == 1 else "the baseline of each kernel"


def _run(
    request: CheckRequest, found: Looked, progress: Progress
) -> tuple[tuple[Measurement, ...], tuple[SuiteError, ...]]:
    """What does not run, or not right, on the CPU device, and why nothing could be run.

    Run are the smoke points of all variants that were looked at, whichever of their points were selected. Their times
    are nobody's business and are thrown away.
    """
    from perfsvc.service.run.run import run

    variants = tuple(dict.fromkeys(f"{one.case.benchmark}/{one.case.variant}" for one in found.checked))
    if not variants:
        return (), ()
    with tempfile.TemporaryDirectory(prefix="perfsvc-") as folder:
        asked = RunRequest(
            str(Path(folder, "check.db")),
            request.suite,
            devices=("cpu",),
            selection=Selection(variants, request.selection.exclude),
            points="smoke",
            replicas=1,
            samples=1,
        )
        try:
            measured = run(asked, progress).measurements
        except PerfsvcError as error:  # what was found without running stands all the same
            what = f"nothing could be run on the CPU device: {error.what}"
            return (), (SuiteError(what, path=str(request.suite), cure=error.cure),)
    return tuple(one for one in measured if one.status in {Status.FAILED, Status.WRONG}), ()
