"""Copy what one database has and another lacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from perfsvc.errors import DamagedError, DatabaseError, UsageError
from perfsvc.service.progress import Progress
from perfsvc.store import Store
from perfsvc.store.keeping.sync import RunToSync, Sync, SyncAction
from perfsvc.store.schema.engine import file_of, resolve, shown
from perfsvc.units import count

COPIED = (SyncAction.NEW, SyncAction.CHANGED)
"""The actions that write to the target."""


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync copied; after a dry run, what it would copy.

    Attributes:
        source: the database that was read, without a password.
        target: the database that was written, without a password.
        numbers: the number in the source and the number in the target of each run that was copied; the second is None
            after a dry run.
        runs: each run of the source, and what was done with it.
        nights: how many nights were copied or changed.
        checks: how many static checks were copied.
        findings: how many findings were copied or changed.
        waiting: how many findings wait, because one of their runs is not in the target.
        pins_and_peaks: how many pins and measured peaks of GPUs were copied or changed.
        damaged: why runs could not be copied, by their number in the source.
    """

    source: str
    target: str
    numbers: tuple[tuple[int, int | None], ...]
    runs: tuple[RunToSync, ...]
    nights: int = 0
    checks: int = 0
    findings: int = 0
    waiting: int = 0
    pins_and_peaks: int = 0
    damaged: tuple[tuple[int, str], ...] = ()

    def of(self, action: SyncAction) -> list[RunToSync]:
        """Return the runs with which something was done."""
        return [run for run in self.runs if run.action is action]

    @property
    def parts(self) -> list[str]:
        """A text for each kind of data that was copied: how many."""
        copied = {number for number, _ in self.numbers}
        new = [run for run in self.of(SyncAction.NEW) if run.number in copied]
        changed = [run for run in self.of(SyncAction.CHANGED) if run.number in copied]
        counted = (
            (len(new), "run", ""),
            (sum(run.measurements for run in new), "measurement", ""),
            (len(changed), "changed run", ""),
            (self.nights, "night", ""),
            (self.checks, "check", ""),
            (self.findings, "finding", ""),
            (self.pins_and_peaks, "pin or peak", "pins or peaks"),
        )
        return [count(many, one, several) for many, one, several in counted if many]

    @property
    def mapping(self) -> list[str]:
        """The new numbers of the runs; runs that follow each other in both databases share a text."""
        texts: list[str] = []
        numbers = sorted((number, new) for number, new in self.numbers if new is not None)
        # While both numbers grow by one, their distances from their place in the list stay the same.
        for _, group in groupby(enumerate(numbers), lambda item: (item[1][0] - item[0], item[1][1] - item[0])):
            pairs = [pair for _, pair in group]
            (first, first_new), (last, last_new) = pairs[0], pairs[-1]
            texts.append(f"{first} → {first_new}" if first == last else f"{first}-{last} → {first_new}-{last_new}")
        return texts


def sync(source: str, target: str, progress: Progress, *, dry_run: bool = False) -> Synced:
    """Copy the runs, nights, checks and findings of a database that another database lacks.

    A second sync copies nothing. A killed sync is continued by the next one.

    Args:
        source: the path or URL of the database that is read.
        target: the path or URL of the database that is written; its tables are made if it is empty.
        progress: receives the runs that are copied.
        dry_run: change nothing, and return which runs would be copied.

    Raises:
        DatabaseError: a database cannot be reached or used, or has another schema revision than this perfsvc.
        UsageError: both names stand for the same database.
    """
    with Store.open(source, create=False, read_only=True) as reading:
        # What a dry run would copy to a file that does not exist is what an empty database lacks.
        opened = "sqlite://" if dry_run and _is_absent(target) else target
        is_read_only = dry_run and opened == target
        with Store.open(opened, create=not is_read_only, read_only=is_read_only) as writing:
            if reading.identity == writing.identity:
                raise UsageError(f"{reading.location} cannot be copied to itself", cure="name another target")
            copying = Sync(reading.database, writing.database)
            runs = tuple(copying.plan())
            names = reading.location, shown(resolve(target))
            if dry_run:
                return Synced(*names, tuple((run.number, None) for run in runs if run.action in COPIED), runs)
            numbers, damaged = _copy_runs(copying, runs, progress)
            nights, checks = copying.copy_nights(), copying.copy_checks()
            pins_and_peaks = copying.copy_pins_and_peaks()
            findings, waiting = copying.copy_findings()
            return Synced(*names, numbers, runs, nights, checks, findings, waiting, pins_and_peaks, damaged)


def _copy_runs(
    copying: Sync, runs: Sequence[RunToSync], progress: Progress
) -> tuple[tuple[tuple[int, int | None], ...], tuple[tuple[int, str], ...]]:
    """Copy the runs that are new or changed; return their numbers, and the runs that are damaged with the reason."""
    wanted = [run for run in runs if run.action in COPIED]
    numbers: list[tuple[int, int | None]] = []
    damaged: list[tuple[int, str]] = []
    progress.begin("copying", len(wanted))
    for run in wanted:
        try:
            number = copying.copy_run(run)
        except (DamagedError, ValueError, TypeError) as error:  # a value that the source's column cannot hold
            damaged.append((run.number, " ".join(str(error).split())))
            continue
        if number is not None:
            numbers.append((run.number, number))
        progress.step(f"run {run.number}")
    return tuple(numbers), tuple(damaged)


def _is_absent(location: str) -> bool:
    """Return True if a location names a SQLite file that does not exist or is empty."""
    path = file_of(resolve(location))
    if path is None:
        return False
    if path.is_dir():
        raise DatabaseError(f"{path} is a folder", cure=f"name a file in it: {path / 'perfsvc.db'}")
    return not path.exists() or path.stat().st_size == 0
