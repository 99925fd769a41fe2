"""Pruning: making room of what is older than somebody wants to keep it, and needed no more."""

import contextlib
import platform
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from perfsvc import units
from perfsvc.config.settings import RetentionSettings
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.service.findings.alerts import HISTORY_RUNS
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.revisions import BASELINE, resolve
from perfsvc.store import Store
from perfsvc.store import retention as stored
from perfsvc.store.retention import Removed, RemovedCode

LEFT = "a run is under way, so binaries and reports are left for the next time"


@dataclass(frozen=True, slots=True)
class Pruned:
    """What went, or would go.

    Attributes:
        samples: measurements that lost theirs, with the batches that they came in.
        code: reports of profilers, binaries, and the artifacts that nothing owns any more; None where a run is under
            way, and they were left alone.
        nights: the numbers of those that are forgotten.
        files: folders of nights.
    """

    samples: Removed
    code: RemovedCode | None
    nights: tuple[int, ...]
    files: Removed

    @property
    def size_bytes(self) -> int:
        """What all of it takes, in the database and beside it."""
        return self.samples.size_bytes + (self.code.artifacts.size_bytes if self.code else 0) + self.files.size_bytes

    @property
    def parts(self) -> list[str]:
        """What went, a kind each; empty where nothing did."""
        code = self.code or RemovedCode(0, 0, Removed())
        counted = (
            (self.samples, "measurement's samples", "measurements' samples"),
            (Removed(code.reports), "profiler's report", "profilers' reports"),
            (Removed(code.binaries), "binary", "binaries"),
            (code.artifacts, "artifact", ""),
            (Removed(len(self.nights)), "night", ""),
            (self.files, "folder of a night", "folders of nights"),
        )
        return [_part(*one) for one in counted if one[0].count]

    @property
    def text(self) -> str:
        """The same in a line."""
        what = f"{', '.join(self.parts)}: {units.size(self.size_bytes)}" if self.parts else "nothing to prune"
        return what if self.code else f"{what}; {LEFT}"


def prune(
    store: Store,
    retention: RetentionSettings,
    now: datetime,
    *,
    nights: Path | None = None,
    against: str = BASELINE,
    suite: Path = Path(),
    dry_run: bool = False,
) -> Pruned:
    """Removes what nobody wants to keep and nothing needs any more; doing it again changes nothing.

    What is needed (``store.needed``) stays however old it is, and so do the runs that a suspect of a scope's last run
    would be measured again against, and what the newest nights ran: verdicts, alerts and findings of the nights to come
    are the same as if nothing had been pruned.

    Args:
        store: where it lies.
        retention: for how long each kind is kept; None for ever.
        now: the time.
        nights: the folder with the files of nights; None leaves them.
        against: what verdicts compare with, as the settings have it: a run that is named there is kept whole.
        suite: where git revisions are looked up.
        dry_run: whether to tell, and change nothing.
    """
    store.runs.mark_interrupted(platform.node())
    ages = (retention.samples, retention.binaries, retention.profiles)
    keep = {*_suspected(store), *_named(store, against, suite)} if any(ages) else set()
    forgotten: list[int] = []
    if before := _before(now, retention.nights):
        forgotten = store.retention.nights(before, dry_run=dry_run)
    samples = Removed()
    if before := _before(now, retention.samples):
        samples = _samples(store, before, keep, dry_run=dry_run)
    code = store.retention.code(
        binaries=_before(now, retention.binaries),
        profiles=_before(now, retention.profiles),
        keep=keep,
        watched=HISTORY_RUNS,
        now=now,
        dry_run=dry_run,
    )
    files = Removed()
    if nights and (before := _before(now, retention.nights)):
        known = {night.id for night in store.nights.list()}
        ours = range(max(known, default=0) + 1)
        files = _files(nights, before, ours, known - set(forgotten), dry_run=dry_run)
    return Pruned(samples, code, tuple(forgotten), files)


def _part(removed: Removed, one: str, many: str) -> str:
    size = f" ({units.size(removed.size_bytes)})" if removed.size_bytes else ""
    return units.count(removed.count, one, many) + size


def _before(now: datetime, seconds: float | None) -> datetime | None:
    """The moment before which things are too old; None where they are kept for ever."""
    if seconds is None:
        return None
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:  # longer than there is a calendar
        return None


def _samples(store: Store, before: datetime, keep: Collection[int], *, dry_run: bool) -> Removed:
    prune_some = partial(store.retention.samples, before, keep, dry_run=dry_run)
    removed = some = prune_some()
    while some.count >= stored.MOST and not dry_run:
        some = prune_some()
        removed += some
    return removed


def _suspected(store: Store) -> Iterator[int]:
    """The runs that what is suspected now would be measured again against: an alert may be of long ago."""
    for run in store.runs.last_of_scopes():
        yield from (one.judgement.baseline_run for one in suspects_of(store, run) if one.judgement.baseline_run)


def _named(store: Store, against: str, suite: Path) -> Iterator[int]:
    """The run that the settings name as the baseline."""
    if against != BASELINE:
        with contextlib.suppress(NotMeasuredError, UsageError):  # it is not there: nothing of it can go
            yield resolve(against, store, suite).id


def _files(folder: Path, before: datetime, ours: range, held: Collection[int], *, dry_run: bool) -> Removed:
    """Removes the folders of nights that are forgotten, and as old as those: ``FOLDER/17``.

    A number that no night came to yet is somebody else's, such as the year of ``FOLDER/2024``.
    """
    removed = Removed()
    for night in sorted(folder.glob("[0-9]*")) if folder.is_dir() else ():
        if night.is_symlink() or not night.is_dir() or not night.name.isdecimal():
            continue
        if int(night.name) not in ours or int(night.name) in held:
            continue
        if datetime.fromtimestamp(night.stat().st_mtime, UTC) >= before:
            continue
        removed += Removed(1, sum(file.stat().st_size for file in night.rglob("*") if file.is_file()))
        if not dry_run:
            shutil.rmtree(night, ignore_errors=True)
    return removed
