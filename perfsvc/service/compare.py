"""Judging one run against another, or against the baseline of each series."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfsvc import judge
from perfsvc.model import Judgement, Level, Series, Verdict
from perfsvc.service.revisions import BASELINE, run_of
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs (no base run where each series has its own baseline) and the verdicts between them."""

    base: int | None
    new: int
    judgements: tuple[Judgement, ...]

    def exit_code(self, *, strict: bool) -> int:
        """The command's exit code: a case that is broken in the new run counts as failed."""
        failed = any(judgement.verdict is Verdict.BROKEN for judgement in self.judgements)
        return judge.exit_code(self.judgements, failed=failed, strict=strict)


def compare(store: Store, base: str, new: str, *, folder: Path, threshold: float | None) -> Comparison:
    """Judges ``new`` against ``base``; both as ``perfsvc.service.revisions`` understands them.

    Args:
        store: where the runs are.
        base: the run to compare with, or ``@baseline``.
        new: the run to judge.
        folder: where git revisions are looked up.
        threshold: the smallest relevant change as a fraction; None for each kind of device's default.
    """
    candidate = run_of(new, store, folder)
    if base == BASELINE:
        return Comparison(None, candidate, tuple(judge_run(store, candidate, threshold=threshold)))
    baseline = run_of(base, store, folder)
    judgements = judge.verdicts(
        store.levels(baseline), store.levels(candidate), threshold=_thresholds(store, threshold)
    )
    return Comparison(baseline, candidate, tuple(judgements))


def judge_run(store: Store, run: int, *, threshold: float | None) -> list[Judgement]:
    """Judges every series of a run against its own baseline: a pin if there is one, else the last accepted level."""
    candidate = store.levels(run)
    return judge.verdicts(_baseline_levels(store, candidate, run), candidate, threshold=_thresholds(store, threshold))


def _baseline_levels(store: Store, series: Iterable[Series], before_run: int) -> Mapping[Series, Level]:
    levels_of = cache(store.levels)
    baselines = store.baselines(series, before_run)
    return {one: levels_of(run)[one] for one, run in baselines.items() if one in levels_of(run)}


def _thresholds(store: Store, threshold: float | None) -> Callable[[Series], float]:
    devices = store.devices()
    return lambda series: judge.default_threshold(devices[series.device].kind) if threshold is None else threshold
