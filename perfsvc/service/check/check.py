"""Check a suite without a GPU: its compiled kernels against a baseline or another revision: ``perfsvc check``."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from perfsvc import judge
from perfsvc.errors import PerfsvcError, SuiteError, UsageError
from perfsvc.model import Case, CheckedKernel, CheckVerdict, Measurement, StaticBaseline, Status, Verdict
from perfsvc.report.checks import StaticCheck
from perfsvc.selection import Selection
from perfsvc.service.check.kernels import KernelReader, SuiteKernels
from perfsvc.service.git import checked_out
from perfsvc.service.progress import Progress
from perfsvc.service.run import provenance
from perfsvc.service.run.request import RunRequest
from perfsvc.store import Store
from perfsvc.temporary import temporary_folder

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""The default architectures: data centre and workstation, from Ampere to Blackwell."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The options of a check.

    Attributes:
        database: holds earlier checks; unused if ``base`` is given.
        base: the revision of the suite to compare with; empty for the baseline in the database.
        accept: the reason for making the results the new baseline; empty to leave the baseline as it is.
        run: also run the cases on the CPU device, and check their results.
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
class CheckOutcome(StaticCheck):
    """The result of a check.

    Attributes:
        warnings: errors in benchmarks that are not selected, and kernels of the base revision that cannot be compared.
    """

    warnings: tuple[SuiteError, ...] = ()

    def exit_code(self, *, strict: bool) -> int:
        """Return the command's exit code; neither an accepted regression nor a case that the code removed counts."""
        failed = bool(self.problems or self.wrong) or any(kernel.status is Status.FAILED for kernel in self.checked)
        counted = {Verdict.BROKEN} if self.accepted else {*Verdict} - {Verdict.MISSING}
        standing = [verdict for verdict in self.verdicts if verdict.verdict in counted]
        return judge.exit_code(standing, failed=failed, strict=strict)


def check(request: CheckRequest, progress: Progress) -> CheckOutcome:
    """Compile the kernels of a suite and judge their static facts.

    Args:
        request: the options.
        progress: receives messages and the number of steps done.

    Raises:
        UsageError: a selection matches nothing, the suite is empty, or there is no such revision or architecture.
        InfrastructureError: no compiler or no database.
    """
    reader = KernelReader(request.architectures, progress)
    if request.accept and provenance.revision_of(request.suite).dirty:
        raise UsageError("nothing with uncommitted changes can be a baseline", cure="commit them first")
    kernels = reader.read(request.suite, request.selection, request.points)
    wrong, not_run = _run(request, kernels, progress) if request.run else ((), ())
    if request.base:
        number, (against, verdicts, not_comparable) = None, _against_revision(request, reader, kernels)
    else:
        number, against, verdicts = _against_stored(request, reader, kernels, progress.report)
        not_comparable = ()
    return CheckOutcome(
        check=number,
        against=against,
        toolkit=reader.toolkit,
        disassembler=reader.disassembler,
        checked=kernels.checked,
        verdicts=tuple(reader.with_local_lines(kernels, verdicts)),
        sources=kernels.sources,
        problems=(*kernels.problems, *not_run),
        warnings=(*kernels.warnings, *not_comparable),
        wrong=wrong,
        accepted=request.accept,
    )


def _against_revision(
    request: CheckRequest, reader: KernelReader, kernels: SuiteKernels
) -> tuple[str, list[CheckVerdict], tuple[SuiteError, ...]]:
    """Judge kernels against the base revision, compiled by the same compiler.

    Return a text that names the revision, the verdicts, and the errors of base benchmarks that cannot be compared.
    """
    with checked_out(request.suite, request.base) as tree:
        base = reader.read_older(tree.suite, request.selection, request.points, kernels.checked)
    not_comparable = tuple(_not_comparable(base, request, tree.suite))
    baseline = _under_present_names(base.checked, kernels.checked, reader.toolkit)
    against = f"{request.base} ({tree.commit[:10]})" if not tree.commit.startswith(request.base) else request.base
    return against, judge.check_verdicts(baseline, kernels.checked, reader.toolkit), not_comparable


def _not_comparable(base: SuiteKernels, request: CheckRequest, folder: Path) -> Iterator[SuiteError]:
    """Yield an error for each benchmark of the base revision that cannot be compared.

    Each error has the path of the benchmark's file in today's suite, not in ``folder``, the checkout of the base
    revision.
    """
    consequence = "so that nothing is compared with it"
    for problem in base.problems:
        what = f"at {request.base} this could not be used, {consequence}: {problem.what}"
        yield SuiteError(what, path=_current_path(problem.path, request, folder), line=problem.line)
    failed: dict[tuple[Path, str], list[str]] = {}
    for kernel in base.checked:
        if kernel.status is Status.FAILED:
            failed.setdefault((base.sources[kernel.case, ""], kernel.reason), []).append(kernel.architecture)
    for (source, reason), architectures in failed.items():
        where = ", ".join(dict.fromkeys(architectures))
        what = f"at {request.base} this could not be used for {where}, {consequence}: {reason}"
        yield SuiteError(what, path=_current_path(str(source), request, folder))


def _current_path(path: str, request: CheckRequest, folder: Path) -> str:
    """Translate a path in the checkout ``folder`` to the same file in today's suite; other paths stay as they are."""
    older = Path(path)
    return str(request.suite / older.relative_to(folder)) if older.is_relative_to(folder) else path


def _under_present_names(
    base: Sequence[CheckedKernel], kernels: Sequence[CheckedKernel], toolkit: str
) -> list[StaticBaseline]:
    """Return the base revision's kernels as baselines; a case that was renamed since gets its present name."""
    present = {
        replace(kernel.case, variant=name): kernel.case
        for kernel in kernels
        for name in (*kernel.case.formerly, kernel.case.variant)
    }
    return [StaticBaseline(replace(older, case=present.get(older.case, older.case)), toolkit) for older in base]


def _against_stored(
    request: CheckRequest, reader: KernelReader, kernels: SuiteKernels, report: Callable[[str], object]
) -> tuple[int, str, list[CheckVerdict]]:
    """Judge kernels against their stored baselines, and store the check.

    Return the number of the check, what it was compared with in words, and the verdicts.
    """
    architectures = [f"--arch={name}" for name in sorted(set(request.architectures))]
    scope = " ".join([provenance.scope_of(request.suite, request.selection, request.points), *architectures])
    origin = provenance.collect(
        request.suite, command_line=request.command_line, label="", scope=scope, seed=0, replicas=0
    )
    if origin.dirty:
        report("the suite has uncommitted changes: it is judged, and is no baseline for later checks")
    with Store.open(request.database) as store:
        baseline = store.checks.baselines(kernels.checked, scope, reader.toolkit)
        verdicts = judge.check_verdicts(baseline, kernels.checked, reader.toolkit)
        judged = {_key(verdict.checked) for verdict in verdicts}
        number = store.checks.put(
            origin,
            verdicts,
            [kernel for kernel in kernels.checked if _key(kernel) not in judged],
            toolkit=reader.toolkit,
            disassembler=reader.disassembler,
            accepted=request.accept,
        )
    return number, _in_words(verdicts), verdicts


def _key(kernel: CheckedKernel) -> tuple[Case, str, str]:
    return kernel.case, kernel.architecture, kernel.kernel


def _in_words(verdicts: Sequence[CheckVerdict]) -> str:
    """Name what the verdicts compare with: ``check 12``, ``the baseline of each kernel`` if several, or empty."""
    numbers = Counter(verdict.baseline_check for verdict in verdicts if verdict.baseline_check is not None)
    return "" if not numbers else f"check {next(iter(numbers))}" if len(numbers) == 1 else "the baseline of each kernel"


def _run(
    request: CheckRequest, kernels: SuiteKernels, progress: Progress
) -> tuple[tuple[Measurement, ...], tuple[SuiteError, ...]]:
    """Run the checked cases on the CPU device; return the bad measurements, and the error if nothing could run.

    The smoke points of all checked variants run, whichever points are selected. The measured times are discarded.
    """
    from perfsvc.service.run.run import run

    variants = tuple(dict.fromkeys(f"{kernel.case.benchmark}/{kernel.case.variant}" for kernel in kernels.checked))
    if not variants:
        return (), ()
    with temporary_folder() as folder:
        run_request = RunRequest(
            str(folder / "check.db"),
            request.suite,
            devices=("cpu",),
            selection=Selection(variants, request.selection.exclude),
            points="smoke",
            replicas=1,
            samples=1,
        )
        try:
            bad = run(run_request, progress).bad
        except PerfsvcError as error:  # the static facts found so far still count
            what = f"nothing could be run on the CPU device: {error.what}"
            return (), (SuiteError(what, path=str(request.suite), cure=error.cure),)
    return bad, ()
