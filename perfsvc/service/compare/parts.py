"""Compare two GPUs, two GPU models or two variants: ``perfsvc compare --gpus`` and ``--variants``.

The results of one part are compared as if they were the baseline of the other part, by the same statistics as two runs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc import judge
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Case, Level, RunRow, RunState, Series, Verdict
from perfsvc.report.review import NOTICE, Review
from perfsvc.report.rows import ComparedRun
from perfsvc.selection import Selection
from perfsvc.service.compare.compare import RunComparison, selected_of, threshold_of_series
from perfsvc.service.revisions import choose, require_judged
from perfsvc.store import Store

Levels = Mapping[Series, Level]


@dataclass(frozen=True, slots=True)
class PartsRequest:
    """A comparison of two parts of one run, or of a part each of two runs.

    Attributes:
        base: the part to compare with: the UUID or the model of a device; or ``BENCHMARK/VARIANT``.
        new: the part to compare, likewise.
        runs: the run of both parts, or one run for each; empty for the newest run of each GPU, and for the newest run.
        folder: the repository of git revisions.
        selection: the cases of the part ``new`` to compare.
        devices: only for variants: the UUIDs or models of the devices to compare on; empty for all.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
    """

    base: str
    new: str
    runs: tuple[str, ...] = ()
    folder: Path = Path()
    selection: Selection = Selection()  # noqa: RUF009 - frozen
    devices: tuple[str, ...] = ()
    threshold: judge.ThresholdOption = None


@dataclass(frozen=True, slots=True)
class PartsComparison(RunComparison):
    """The verdicts on one part against another: ``regression`` means that ``new`` is slower than ``base``."""

    def review(self, *, passed: bool) -> Review:
        """Return what a pull request shows; what does not fail the command is a notice, and no error."""
        review = RunComparison.review(self, passed=passed)
        harmless = {Verdict.REGRESSION.value, Verdict.MISSING.value}
        remarks = [replace(remark, level=NOTICE) if remark.rule in harmless else remark for remark in review.remarks]
        return replace(review, remarks=tuple(remarks))

    def exit_code(self, *, strict: bool) -> int:
        """Return the exit code: 4 if a case of ``new`` is broken; a slower GPU or variant is no regression."""
        rows = [row for row in self.judgements if row.verdict not in {*judge.MOVES, Verdict.MISSING}]
        return judge.exit_code(rows, failed=False, strict=strict)


def compare_gpus(store: Store, request: PartsRequest) -> PartsComparison:
    """Judge the results of a device, or of all devices of a model, against those of another device or model.

    If ``base`` is a model of which several devices were measured, each device counts once, and the differences between
    these devices are part of the interval.

    Raises:
        UsageError: no device has such a name, both names mean the same device, or nothing is selected.
        NotMeasuredError: there is no such run.
    """
    old_devices, new_devices = (_devices_named(store, name) for name in (request.base, request.new))
    newest = request.runs or (
        _newest_of(store, request.base, old_devices),
        _newest_of(store, request.new, new_devices),
    )
    old_run, new_run = _runs(store, request, newest)
    if old_run.id == new_run.id:
        old_devices -= new_devices
    if not old_devices:
        what = f"{request.base} and {request.new} are the same GPU"
        raise UsageError(what, cure="name two GPUs or two models (perfsvc devices), or two runs")
    old = _levels(store, old_run, (old_run, new_run), lambda series: series.device in old_devices)
    new = _levels(store, new_run, (old_run, new_run), lambda series: series.device in new_devices)
    for run, levels, name in ((old_run, old, request.base), (new_run, new, request.new)):
        if not levels:
            raise UsageError(f"run {run.id} has no result of {name}", cure="see what it measured: perfsvc report")
    if len({series.device for series in old}) == 1:
        devices = {(series.device, series.device_model) for series in new}
        old = {
            replace(series, device=uuid, device_model=model): level
            for series, level in old.items()
            for uuid, model in devices
        }
        return _judged(
            store, request, (old_run, new_run), old, {series: (series, level) for series, level in new.items()}
        )
    model = next(iter(old)).device_model
    of_model = {replace(series, device_model=model): (series, level) for series, level in new.items()}
    return _judged(store, request, (old_run, new_run), old, of_model)


def compare_variants(store: Store, request: PartsRequest) -> PartsComparison:
    """Judge the results of a variant against those of another variant, at the same points and on the same devices.

    Raises:
        UsageError: a run has no such variant, both names mean the same variant of one run, or nothing is selected.
        NotMeasuredError: there is no such run.
    """
    old_run, new_run = _runs(store, request, ("latest",))
    if request.base == request.new and old_run.id == new_run.id:
        raise UsageError(f"{request.base} is named twice", cure="name two variants, or two runs")
    old, new = (
        _of_variant(store, run, (old_run, new_run), name)
        for run, name in ((old_run, request.base), (new_run, request.new))
    )
    cases = {series.case.point: series.case for series in new}
    any_case = next(iter(new)).case
    as_new = {
        replace(series, case=cases.get(series.case.point, replace(any_case, point=series.case.point))): level
        for series, level in old.items()
    }
    return _judged(
        store, request, (old_run, new_run), as_new, {series: (series, level) for series, level in new.items()}
    )


def _judged(
    store: Store,
    request: PartsRequest,
    runs: tuple[RunRow, RunRow],
    old: Levels,
    new: Mapping[Series, tuple[Series, Level]],
) -> PartsComparison:
    """Return the comparison of two parts.

    Args:
        store: the database.
        request: what is compared.
        runs: the run of each part.
        old: the levels of the part to compare with, under the names of the other part.
        new: the levels of the other part, each with its own series.
    """
    thresholds = threshold_of_series(store, request.threshold)
    judgements = judge.verdicts(old, {series: level for series, (_, level) in new.items()}, threshold=thresholds)
    named = [replace(row, series=new[row.series][0]) if row.series in new else row for row in judgements]
    selected = selected_of(named, request.selection, request.devices)
    if not selected:
        raise UsageError("nothing that was measured is selected", cure="see what a run has: perfsvc report")
    if all(row.verdict in {Verdict.MISSING, Verdict.NEW} for row in selected):
        raise UsageError(
            f"{request.base} and {request.new} have no case in common", cure="see what a run has: perfsvc report"
        )
    base, candidate = (
        ComparedRun(str(run.id), run.id, run.provenance.label, run.provenance.commit, run.provenance.dirty, part=part)
        for run, part in zip(runs, (request.base, request.new), strict=True)
    )
    return PartsComparison(base, candidate, tuple(selected))


def _runs(store: Store, request: PartsRequest, texts: Sequence[str]) -> tuple[RunRow, RunRow]:
    """Return the run of each part: those that the request names, else those that ``texts`` names."""
    chosen = [choose(text, store, request.folder)[0] for text in request.runs or texts]
    for run in chosen:
        require_judged(store, run.id)
    return chosen[0], chosen[-1]


def _newest_of(store: Store, part: str, devices: Collection[str]) -> str:
    """Return the number of the newest judged run that measured on one of the devices."""
    for run in store.runs.list():
        if set(run.devices) & set(devices) and run.state is not RunState.RUNNING and not run.why_excluded:
            return str(run.id)
    raise NotMeasuredError(f"no run has measured on {part}", cure="measure: perfsvc run")


def _devices_named(store: Store, name: str) -> set[str]:
    """Return the UUIDs of the devices that a UUID or a model names."""
    known = store.devices.all()
    named = {uuid for uuid, device in known.items() if name in {uuid, device.model}}
    if not named:
        names = dict.fromkeys(name for device in known.values() for name in (device.model, device.uuid))
        cure = f"name one of {', '.join(names)}" if names else "measure: perfsvc run"
        raise UsageError(f"no measured GPU has the UUID or the model {name!r}", cure=cure)
    return named


def _levels(store: Store, run: RunRow, runs: Sequence[RunRow], takes: Callable[[Series], bool]) -> dict[Series, Level]:
    """Return the levels of a run's series that ``takes`` accepts, without cases excluded from judging in a run."""
    excluded = {exclusion.case for exclusion in store.exclusions.of_runs([each.id for each in runs])}
    return {
        series: level
        for series, level in store.series.levels(run.id).items()
        if takes(series) and series.case.id not in excluded
    }


def _of_variant(store: Store, run: RunRow, runs: Sequence[RunRow], name: str) -> dict[Series, Level]:
    """Return the levels of a variant in a run.

    Raises:
        UsageError: the run has no such variant.
    """
    levels = _levels(store, run, runs, lambda series: _variant(series.case) == name)
    if not levels:
        variants = _sorted_by_benchmark({series.case for series in store.series.levels(run.id)}, name)
        cure = f"name one of {', '.join(variants)}" if variants else "see what it measured: perfsvc report"
        raise UsageError(f"run {run.id} has no result of the variant {name!r}", cure=cure)
    return levels


def _variant(case: Case) -> str:
    return f"{case.benchmark}/{case.variant}"


def _sorted_by_benchmark(cases: Iterable[Case], name: str) -> list[str]:
    """Return the variants of the benchmark that ``name`` begins with; all variants if there is no such benchmark."""
    cases = list(cases)
    benchmark = name.partition("/")[0]
    of_benchmark = {_variant(case) for case in cases if case.benchmark == benchmark}
    return sorted(of_benchmark or {_variant(case) for case in cases})
