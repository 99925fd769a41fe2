"""Remove stored data that is older than the settings allow and no longer needed."""

import contextlib
import os
import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from perfsvc import units
from perfsvc.config.settings import RetentionSettings
from perfsvc.errors import InfrastructureError, NotMeasuredError, UsageError
from perfsvc.files import Folder
from perfsvc.service.findings.alerts import HISTORY_RUNS
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.nightly.log import FILES
from perfsvc.service.revisions import BASELINE, resolve
from perfsvc.store import Store
from perfsvc.store.retention import Removed, RemovedCode

KEPT = "a run is under way, so binaries and reports are kept until the next time"
LARGEST_SHARE = 0.5
"""Pruning refuses to remove a larger share of the samples, reports, binaries or nights at once without ``force``."""
FEW = 20
"""So few items of a kind are always removed, whatever their share."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed; after a dry run, what would be removed.

    Attributes:
        samples: measurements that lost their samples and batches.
        code: reports of profilers, binaries, and artifacts that nothing uses; None if they were kept because a run is
            running.
        nights: the numbers of removed nights.
        files: the removed folders of nights.
        counted_from: the time from which ages counted.
        excess: the kinds of data of which more than ``LARGEST_SHARE`` would be removed, in words; empty after
            ``force``.
        entries: how many entries of the audit log were removed.
    """

    samples: Removed
    code: RemovedCode | None
    nights: tuple[int, ...]
    files: Removed
    counted_from: datetime
    excess: str = ""
    entries: int = 0

    @property
    def size_bytes(self) -> int:
        """The size of everything removed, in the database and in files."""
        return self.samples.size_bytes + (self.code.artifacts.size_bytes if self.code else 0) + self.files.size_bytes

    @property
    def parts(self) -> list[str]:
        """A text for each kind of data that was removed: how many, and their size."""
        code = self.code or RemovedCode()
        counted = (
            (self.samples, "measurement's samples", "measurements' samples"),
            (Removed(code.reports), "profiler's report", "profilers' reports"),
            (Removed(code.binaries), "binary", "binaries"),
            (code.artifacts, "artifact", ""),
            (Removed(len(self.nights)), "night", ""),
            (self.files, "folder of a night", "folders of nights"),
            (Removed(self.entries), "entry of the audit log", "entries of the audit log"),
        )
        return [
            units.count(removed.count, one, many)
            + (f" ({units.size(removed.size_bytes)})" if removed.size_bytes else "")
            for removed, one, many in counted
            if removed.count
        ]

    @property
    def text(self) -> str:
        """What was removed, in one line."""
        what = f"{', '.join(self.parts)}: {units.size(self.size_bytes)}" if self.parts else "nothing to prune"
        return what if self.code else f"{what}; {KEPT}"


def prune(
    store: Store,
    retention: RetentionSettings,
    now: datetime,
    *,
    nights: Path | None = None,
    against: str = BASELINE,
    suite: Path = Path(),
    dry_run: bool = False,
    force: bool = False,
) -> Pruned:
    """Remove stored data that is too old and no longer needed; a second call with the same arguments changes nothing.

    Pruning does not change the verdicts, alerts and findings of later runs. It therefore keeps, at any age, the
    binaries and reports that baselines and findings need, those of the baseline runs of the current suspects, and the
    code of the newest runs. Samples are removed by their age alone, because levels hold what later runs need of them.

    Args:
        store: the database.
        retention: how long each kind of data is kept; None for ever.
        now: the time by the clock of this host.
        nights: the folder with the files of nights; None to keep them.
        against: the setting ``baseline.against``; a run that it names keeps its binaries and reports.
        suite: the repository of git revisions.
        dry_run: change nothing, and return what would be removed.
        force: trust the clock of this host, and remove any share of the data at once.

    Raises:
        InfrastructureError: more than ``LARGEST_SHARE`` of a kind of data would be removed, without ``force``.
    """
    store.runs.mark_interrupted(platform.node())
    counted_from = now if force else store.retention.confirmed_time(now)
    keep: set[int] = set()
    if retention.binaries or retention.profiles:
        keep = _baselines(store, against, suite)
    remove = partial(_remove, store, retention, counted_from, keep, nights)
    if not force and any(retention.model_dump().values()):
        planned = remove(dry_run=True)
        planned = replace(planned, excess=_excess(planned, store.retention.prunable()))
        if dry_run:
            return planned
        if planned.excess:
            raise InfrastructureError(  # without numbers, so that the messages of nights report it once
                "pruning would remove more than half of a kind of data at once, so it removed nothing",
                cure=f"it would remove {planned.excess}; "
                f"check the clock of this host ({now:%Y-%m-%d %H:%M} UTC) and the limits in [retention]; "
                "see what is old: perfsvc db prune --dry-run; remove it: perfsvc db prune --force",
            )
    return remove(dry_run=dry_run)


def _remove(
    store: Store,
    retention: RetentionSettings,
    now: datetime,
    keep: Collection[int],
    nights: Path | None,
    *,
    dry_run: bool,
) -> Pruned:
    """Remove the data that is too old at the time ``now``, except the code of the runs in ``keep``."""
    before = {kind: _before(now, age) for kind, age in retention.model_dump().items()}
    old_nights, old_samples, old_entries = before["nights"], before["samples"], before["audit"]
    removed_nights = store.retention.nights(old_nights, dry_run=dry_run) if old_nights else []
    samples = store.retention.samples(old_samples, dry_run=dry_run) if old_samples else Removed()
    code = store.retention.code(
        binaries=before["binaries"],
        profiles=before["profiles"],
        keep=keep,
        watched=HISTORY_RUNS,
        now=now,
        dry_run=dry_run,
    )
    files = Removed()
    if nights and old_nights:
        stored_nights = {night.id for night in store.nights.list()}
        night_numbers = range(max(stored_nights, default=0) + 1)
        kept_nights = stored_nights - set(removed_nights)
        files = _remove_folders(nights, old_nights, night_numbers, kept_nights, dry_run=dry_run)
    entries = store.audit.prune(old_entries, dry_run=dry_run) if old_entries else 0
    return Pruned(samples, code, tuple(removed_nights), files, now, entries=entries)


def _excess(planned: Pruned, prunable: Sequence[int]) -> str:
    """Return a text that lists each kind of data of which more than ``LARGEST_SHARE`` would be removed, or empty.

    ``prunable`` is how much the database has of each kind.
    """
    code = planned.code or RemovedCode()
    kinds = (
        (planned.samples.count, "the samples of {} of {} measurements"),
        (code.reports, "{} of {} profilers' reports"),
        (code.binaries, "{} of {} binaries"),
        (len(planned.nights), "{} of {} nights"),
    )
    return ", ".join(
        words.format(removed, total)
        for (removed, words), total in zip(kinds, prunable, strict=True)
        if removed > FEW and removed > LARGEST_SHARE * total
    )


def _before(now: datetime, seconds: float | None) -> datetime | None:
    """Return the time before which stored data is too old; None to keep it for ever."""
    if seconds is None:
        return None
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:  # before the first year of the calendar
        return None


def _baselines(store: Store, against: str, suite: Path) -> set[int]:
    """Return the baseline run of each present suspect, which may be old, and the run that the settings name, if any."""
    suspects = [suspect for run in store.runs.last_of_scopes() for suspect in suspects_of(store, run)]
    runs = {suspect.judgement.baseline_run for suspect in suspects if suspect.judgement.baseline_run}
    if against != BASELINE:
        with contextlib.suppress(NotMeasuredError, UsageError):
            runs.add(resolve(against, store, suite).id)
    return runs


def _remove_folders(
    folder: Path, before: datetime, night_numbers: range, kept: Collection[int], *, dry_run: bool
) -> Removed:
    """Remove the folders (``FOLDER/17``) of nights that are not in ``kept``, if last changed before ``before``.

    A folder with a higher number than any night (``FOLDER/2024``, a year) belongs to no night and stays. Files that a
    night does not write stay too, with their folder: the numbers come from the database.
    """
    removed = Removed()
    for night in sorted(folder.glob("[0-9]*")) if folder.is_dir() else ():
        if night.is_symlink() or not night.is_dir() or not night.name.isdecimal():
            continue
        if int(night.name) not in night_numbers or int(night.name) in kept:
            continue
        if datetime.fromtimestamp(night.stat().st_mtime, UTC) >= before:
            continue
        with contextlib.suppress(OSError), Folder.open(folder) as nights:  # a folder that cannot be changed stays
            with nights.subfolder(night.name) as opened:
                sizes = [os.stat(name, dir_fd=opened.descriptor).st_size for name in FILES if opened.exists(name)]
                if not sizes and any(night.iterdir()):
                    continue
                if not dry_run:
                    opened.remove_abandoned()
            if not dry_run:
                for name in FILES:
                    nights.remove(f"{night.name}/{name}")
            removed += Removed(1, sum(sizes))
    return removed
