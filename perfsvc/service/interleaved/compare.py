"""Compare two revisions of a suite: ``perfsvc compare --interleaved``."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from perfsvc import build, judge, suite, units
from perfsvc.device import memory
from perfsvc.device.find import find
from perfsvc.errors import CaseError, SuiteError, UnsupportedError, UsageError
from perfsvc.judge.verdicts import ORDER
from perfsvc.measure.host.pool import worker_servers
from perfsvc.measure.plan.order import Task
from perfsvc.model import (
    TIME,
    CacheState,
    Call,
    Case,
    Cause,
    DeviceInfo,
    Judgement,
    Kind,
    Launch,
    Measurement,
    Series,
    Unit,
    Verdict,
)
from perfsvc.report.review import Review, SourceLocation, comparison_review, kernel_line
from perfsvc.report.rows import ComparedRun
from perfsvc.selection import Selection
from perfsvc.service.compare.compare import RunComparison
from perfsvc.service.confirm.pairs import BUDGET_S, PairResults, PairSettings, Sides, measure_pairs
from perfsvc.service.git import Worktree, checked_out
from perfsvc.service.interleaved.code import (
    BuiltCase,
    Change,
    PythonModules,
    changed_data,
    changed_modules,
    with_inputs,
)
from perfsvc.service.prepare.targets import (
    Binaries,
    Target,
    arrays,
    compile_units,
    default_sampling,
    helper_kernels_of,
    modules_of,
    seed_of,
)
from perfsvc.service.progress import Progress
from perfsvc.service.run import measure
from perfsvc.suite import CaseSpec


def source_location(spec: CaseSpec, root: Path) -> SourceLocation:
    """Return the line that defines the first kernel, or the first function, that a case runs.

    It is line 1 if the name is not found. A program or a library has line 1 of its
    benchmark file.

    Args:
        spec: the case, in a worktree.
        root: the top folder of the worktree; the path is relative to it.
    """
    source, name = _definition(spec)
    resolved, top = source.resolve(), root.resolve()
    if not resolved.is_relative_to(top):  # a header of the system, or a link out of the repository
        return SourceLocation("", 0)
    return SourceLocation(resolved.relative_to(top).as_posix(), kernel_line(resolved, name) if name else 1)


def _definition(spec: CaseSpec) -> tuple[Path, str]:
    """Return the file with the first kernel or function of a case, and its name; no name if it is unknown."""
    for step in spec.steps:
        match step:
            case Launch(module=module, entry=entry):
                return _path(spec, module), entry
            case Call(module=int(module)):
                part = spec.parts[module]
                names = part.entries if isinstance(part, Unit) and not step.package else ()
                return _path(spec, module), next(iter(names), step.function)
            case Call(function=function):
                return spec.bench, function
    return spec.bench, ""


def _path(spec: CaseSpec, module: int) -> Path:
    part = spec.parts[module]
    return part.source if isinstance(part, Unit) else part.path


SAME = "both revisions have the same code"
Key = tuple[Case, CacheState]


@dataclass(frozen=True, slots=True)
class RevisionsRequest:
    """The options of a comparison of two revisions.

    Attributes:
        base: the git revision to compare with.
        new: the git revision to judge.
        suite: the folder of benchmarks, in its repository.
        devices: the specifications of devices; every case is measured on each of them.
        selection: the cases to compare.
        points: which points; None for the full points on a GPU and the smoke points elsewhere.
        budget_s: seconds on each device after which no further case is measured.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of the kind of device.
        seed: decides the order of processes; None for a random one.
    """

    base: str
    new: str
    suite: Path
    devices: tuple[str, ...] = ("auto",)
    selection: Selection = field(default_factory=Selection)
    points: Literal["smoke", "full"] | None = None
    budget_s: float = BUDGET_S
    threshold: judge.ThresholdOption = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class RevisionComparison(RunComparison):
    """The verdicts on the new revision against the base revision, slower cases first.

    Attributes:
        problems: the benchmark files of the new revision that cannot be used.
        warnings: those of the base revision, so that nothing is compared with their cases.
        locations: the source of each series in the new revision, or in the base revision if only that has it.
        thresholds: the smallest relevant change of each series, as a fraction.
    """

    problems: tuple[SuiteError, ...] = ()
    warnings: tuple[SuiteError, ...] = ()
    locations: Mapping[Series, SourceLocation] = field(default_factory=dict)
    thresholds: Mapping[Series, float] = field(default_factory=dict)

    @property
    def measured(self) -> "RevisionComparison":
        """The comparison without the cases that have the same code at both revisions."""
        return replace(self, judgements=tuple(row for row in self.judgements if row.reason != SAME))

    @property
    def same(self) -> str:
        """How many cases have the same code at both revisions, as a sentence; empty if there is none."""
        count = sum(row.reason == SAME for row in self.judgements)
        have, are = ("has", "is") if count == 1 else ("have", "are")
        if not count:
            return ""
        return f"{units.count(count, 'case')} {have} the same code at both revisions: unchanged, and {are} not measured"

    def review(self, *, passed: bool) -> Review:
        """Return what a pull request shows of the comparison; ``passed`` is whether the command exits with 0."""
        return comparison_review(
            self.base,
            self.new,
            self.judgements,
            self.over_budget,
            passed=passed,
            locations=self.locations,
            problems=self.problems,
            notes=(self.same,),
        )

    def exit_code(self, *, strict: bool) -> int:
        """Return the exit code of the command; 4 if a benchmark file of the new revision cannot be used."""
        return judge.exit_code(self.judgements, failed=bool(self.problems), strict=strict)


def compare_revisions(request: RevisionsRequest, progress: Progress) -> RevisionComparison:
    """Build two revisions, and measure in A/B pairs each case in which they differ.

    The cases whose compiled code or launches differ come first. A case with the same code is unchanged without any
    measurement. A case that only the new revision has is measured once, to check its result.

    Raises:
        UsageError: no repository, no such revision, both are the same commit, or the selection matches nothing.
        InfrastructureError: there is no device, or no compiler for a device.
    """
    devices = find(request.devices)
    with contextlib.ExitStack() as stack:
        base_tree = stack.enter_context(checked_out(request.suite, request.base))
        new_tree = stack.enter_context(checked_out(request.suite, request.new))
        if base_tree.commit == new_tree.commit:
            what = f"{request.base} and {request.new} are the same commit, {new_tree.commit[:10]}"
            raise UsageError(what, cure="name two commits")
        base = _Revision.read(base_tree, request, devices, may_lack_cases=True)
        new = _Revision.read(new_tree, request, devices)
        binaries = compile_units([*base.targets, *new.targets], progress)
        servers = stack.enter_context(worker_servers())
        base_modules, new_modules = changed_modules(request.suite, base_tree, new_tree)
        old_cases, new_cases = base.built(binaries, base_modules), new.built(binaries, new_modules)
        comparer = _RevisionJudge(
            request, devices, old_cases, new_cases, data=changed_data(request.suite, base_tree, new_tree)
        )
        settings = PairSettings(
            devices={device.uuid: device for device in devices},
            sampling=default_sampling,
            helper_kernels=helper_kernels_of(new.targets, binaries),
            seed=seed_of(request.seed),
            threshold=request.threshold,
            budget_s=request.budget_s,
            servers=servers,
            report=progress.report,
        )
        judgements, over_budget = comparer.judge(settings, progress)
        locations = base.locations() | new.locations()
    return RevisionComparison(
        ComparedRun(request.base, None, commit=base_tree.commit),
        ComparedRun(request.new, None, commit=new_tree.commit),
        tuple(sorted(judgements, key=lambda judgement: ORDER.index(judgement.verdict))),
        tuple(over_budget),
        problems=new.problems,
        warnings=base.problems,
        locations=locations,
        thresholds={row.series: _threshold(row.series, devices, request) for row in judgements},
    )


@dataclass(frozen=True, slots=True)
class _Revision:
    """A revision of the suite: its cases on each device, and the benchmark files that cannot be used."""

    tree: Worktree
    targets: tuple[Target, ...]
    problems: tuple[SuiteError, ...]

    @classmethod
    def read(
        cls, tree: Worktree, request: RevisionsRequest, devices: Sequence[DeviceInfo], *, may_lack_cases: bool = False
    ) -> "_Revision":
        """Read the suite in a worktree; raise ``UsageError`` if nothing is selected, unless it may lack the cases."""
        discovered = suite.discover(tree.suite)
        targets: list[Target] = []
        problems = list(discovered.split_problems(request.selection)[0])
        for device in devices:
            points = request.points or ("full" if device.kind == "cuda" else "smoke")
            specs: tuple[CaseSpec, ...] = ()
            try:
                specs, unresolved = discovered.resolve(request.selection, points, build.known_shapes())
            except UsageError:
                if not may_lack_cases:
                    raise
            else:
                problems += unresolved
            toolchain = build.toolchain_for(device.target)
            targets.append(Target(device, specs, toolchain, helper_kernels=memory.unit(device.kind)))
        shown = {str(problem): _in_suite(problem, tree, request.suite) for problem in problems}
        return cls(tree, tuple(targets), tuple(shown.values()))

    def built(self, binaries: Binaries, python_modules: PythonModules) -> dict[str, dict[Key, BuiltCase | CaseError]]:
        """Return the cases with their binaries, or why they have none, by device (UUID), case and cache state.

        Cases that only return metrics of their own are left out: they have no time.
        """
        cases: dict[str, dict[Key, BuiltCase | CaseError]] = {}
        for target in self.targets:
            of_device = cases.setdefault(target.device.uuid, {})
            for spec in target.specs:
                if spec.kind is Kind.HOST:
                    continue
                modules = modules_of(target, spec, binaries)
                if isinstance(modules, CaseError):
                    of_device[spec.case, spec.cache] = modules
                else:
                    of_device[spec.case, spec.cache] = BuiltCase(spec, modules, python_modules)
        return cases

    def locations(self) -> dict[Series, SourceLocation]:
        """Return the source of each series; the worktree must still exist."""
        return {
            Series(spec.case, target.device.uuid, target.device.model, cache=spec.cache): source_location(
                spec, self.tree.root
            )
            for target in self.targets
            for spec in target.specs
        }


def _in_suite(problem: SuiteError, tree: Worktree, folder: Path) -> SuiteError:
    """Return a problem with the paths of the suite's own checkout instead of those of a worktree."""

    def shown(text: str) -> str:
        return text.replace(str(tree.suite), str(folder)).replace(f"{tree.root}/", "")

    return SuiteError(shown(problem.what), path=shown(problem.path), line=problem.line, cure=shown(problem.cure))


class _RevisionJudge:
    """Judges the cases of a new revision against those of a base revision.

    Args:
        request: what to compare.
        devices: the devices.
        base: the cases of the base revision by device, case and cache state.
        new: the cases of the new revision, likewise.
        data: the files that differ and that a case may read.
    """

    def __init__(
        self,
        request: RevisionsRequest,
        devices: Sequence[DeviceInfo],
        base: Mapping[str, Mapping[Key, BuiltCase | CaseError]],
        new: Mapping[str, Mapping[Key, BuiltCase | CaseError]],
        *,
        data: tuple[str, ...],
    ) -> None:
        self._request = request
        self._data = data
        self._devices = {device.uuid: device for device in devices}
        self._base = base
        self._new = new
        self._judgements: list[Judgement] = []
        self._changes: dict[Series, Change] = {}
        self._only_new: dict[Series, tuple[BuiltCase, str]] = {}

    def judge(self, settings: PairSettings, progress: Progress) -> tuple[list[Judgement], list[Series]]:
        """Measure what differs; return the judgements, and the series for which the budget left no time."""
        for uuid, cases in self._new.items():
            self._sort(self._devices[uuid], cases, self._base[uuid])
        of_sides = {self._sides(series, settings): series for series in self._in_order()}
        over_budget = []
        progress.begin("measuring", len(of_sides))
        for sides, results in measure_pairs(list(of_sides), settings):
            series = of_sides[sides]
            progress.step(series.case.id)
            judgement = self._judgement(series, results)
            if judgement:
                self._judgements.append(judgement)
            else:
                over_budget.append(series)
        return self._judgements, over_budget

    def _sort(
        self, device: DeviceInfo, cases: Mapping[Key, BuiltCase | CaseError], base: Mapping[Key, BuiltCase | CaseError]
    ) -> None:
        """Judge the cases of a device that need no measurement, and collect the others."""
        found: set[Key] = set()
        for (case, cache), new in cases.items():
            series = Series(case, device.uuid, device.model, cache=cache)
            names = [case, *(replace(case, variant=name, formerly=()) for name in case.formerly)]
            keys = [(name, cache) for name in names if (name, cache) in base]
            found |= set(keys)
            before = base[keys[0]] if keys else None
            self._take(series, before, new)
        gone = [key for key, built in base.items() if key not in found and isinstance(built, BuiltCase)]
        unversioned = {(replace(case, version=0), cache) for case, cache in cases}
        for case, cache in gone:
            if (replace(case, version=0), cache) not in unversioned:  # a new version ends the history of a case
                series = Series(case, device.uuid, device.model, cache=cache)
                self._judgements.append(Judgement(series, Verdict.MISSING, f"{self._request.new} does not have it"))

    def _take(self, series: Series, before: BuiltCase | CaseError | None, new: BuiltCase | CaseError) -> None:
        """Judge a case that needs no measurement, or note that it has to be measured."""
        match before, new:
            case UnsupportedError() | None, UnsupportedError():
                pass  # no revision measures it on this device
            case BuiltCase(), UnsupportedError():
                self._judgements.append(Judgement(series, Verdict.MISSING, new.what))
            case _, CaseError():
                self._judgements.append(Judgement(series, Verdict.BROKEN, new.what))
            case BuiltCase(), BuiltCase():
                if self._data:
                    before, new = with_inputs(before), with_inputs(new)
                change = Change(before, new, self._data)
                if change.is_none:
                    self._judgements.append(Judgement(series, Verdict.UNCHANGED, SAME))
                else:
                    self._changes[series] = change
            case CaseError(), BuiltCase():
                self._only_new[series] = new, f"at {self._request.base}: {before.what}"
            case _, BuiltCase():
                self._only_new[series] = new, f"{self._request.base} does not have it"

    def _in_order(self) -> Iterable[Series]:
        """Return the series to measure: compiled code and launches first, then new cases, then Python functions."""
        touched = [series for series, change in self._changes.items() if change.compiled or change.launch]
        return [*touched, *self._only_new, *(series for series in self._changes if series not in set(touched))]

    def _sides(self, series: Series, settings: PairSettings) -> Sides:
        """Return what to measure of a series; a case of the new revision alone is measured on both sides, once."""
        device = self._devices[series.device]
        threshold = _threshold(series, self._devices.values(), self._request)
        if series in self._only_new:
            new, _ = self._only_new[series]
            sides = _task(device, new, settings), _task(device, new, settings)
            return Sides(*sides, threshold, lambda _: True, most_pairs=1)
        change = self._changes[series]
        # Both sides have the new name of a renamed case, by which the results are told apart.
        named = replace(change.base, spec=replace(change.base.spec, case=change.new.spec.case))
        sides = _task(device, named, settings), _task(device, change.new, settings)
        return Sides(*sides, threshold, lambda comparison: comparison.verdict is not Verdict.INCONCLUSIVE)

    def _judgement(self, series: Series, results: PairResults) -> Judgement | None:
        """Return the verdict on a measured series; None if there was no time to measure it."""
        side, why = results.fault
        if series in self._only_new:
            if not results.pairs and not side:
                return None
            verdict, reason = (Verdict.BROKEN, why) if side else (Verdict.NEW, self._only_new[series][1])
            return Judgement(series, verdict, reason, candidate_s=_level(results.candidate))
        if side:
            reason = why if side == "candidate" else f"at {self._request.base} it has no correct result: {why}"
            return Judgement(series, Verdict.BROKEN if side == "candidate" else Verdict.NEW, reason)
        comparison = results.comparison
        if comparison is None:
            return None
        return Judgement(
            series,
            comparison.verdict,
            "; ".join(filter(None, [comparison.reason, self._remark(series, results)])),
            ratio=comparison.ratio,
            low=comparison.low,
            high=comparison.high,
            baseline_s=_level(results.baseline),
            candidate_s=_level(results.candidate),
            smallest=comparison.smallest,
            baseline_replicas=len(results.baseline),
            candidate_replicas=len(results.candidate),
            cause=self._cause(series, results) if comparison.verdict in judge.MOVES else None,
        )

    def _remark(self, series: Series, results: PairResults) -> str:
        """Return what a reader of a verdict has to know: other inputs, or files that were not those of a revision."""
        used = {name for run in results.candidate if run.python for name, _ in run.python.files}
        shared = sorted(used & set(self._data))
        both = f"both sides read today's {', '.join(shared)}, which differs between the revisions" if shared else ""
        inputs = self._changes[series].inputs
        return "; ".join(filter(None, [f"inputs changed: {inputs}" if inputs else "", both]))

    def _cause(self, series: Series, results: PairResults) -> Cause:
        """Return which part of a case moved it: the two sides were measured in turn, so it was code or inputs."""
        change = self._changes[series]
        before, after = (runs[-1].python for runs in (results.baseline, results.candidate))
        modules = bool(before and after and before.modules != after.modules)
        if change.inputs and not (change.compiled or change.launch or change.source or modules):
            return Cause.INPUTS
        return Cause.LAUNCH if change.launch and not change.compiled and not change.python else Cause.KERNEL


def _threshold(series: Series, devices: Iterable[DeviceInfo], request: RevisionsRequest) -> float:
    """Return the smallest relevant change of a case, as a fraction."""
    kind = next(device.kind for device in devices if device.uuid == series.device)
    return judge.threshold_of(series.case, TIME, kind, request.threshold)


def _task(device: DeviceInfo, case: BuiltCase, settings: PairSettings) -> Task:
    recipe = arrays(case.spec, settings.limit_s)
    if case.inputs:  # the two revisions may have equal texts and other inputs
        recipe = replace(recipe, name=f"{recipe.name} {case.inputs.inputs}")
    task = measure.task(device, case.spec, case.modules, settings.sampling(device), recipe)
    return replace(task, python_modules=case.python_modules) if task.bench else task


def _level(measurements: Sequence[Measurement]) -> float | None:
    """Return the level of some replicas in seconds; None if none of them has a time."""
    samples = [run.samples_s for run in measurements if run.samples_s]
    return judge.center_of(judge.level_of_samples(samples).medians) if samples else None
