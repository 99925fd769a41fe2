"""A database of results, opened for reading, whose contents are returned as data frames."""

from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Self

import pandas as pd

from perfsvc.config import Settings, load
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Case, RunRow
from perfsvc.report.export import frames, row_frames
from perfsvc.selection import Selection
from perfsvc.service import history, results
from perfsvc.service.compare import compare
from perfsvc.service.revisions import choose
from perfsvc.store import Store

Names = str | Iterable[str]
"""A text, or several."""

Run = int | str
"""A run's number, or its name as in ``perfsvc report``: a label, ``latest``, ``latest~1`` or a git revision."""

Runs = Run | Iterable[Run]
"""A run, or several."""

Since = str | date | datetime
"""A day or a moment; UTC if it has no time zone."""


def listed(names: Names) -> tuple[str, ...]:
    """Return a text as a list of one text; other lists stay as they are."""
    return (names,) if isinstance(names, str) else tuple(names)


def _moment(since: Since) -> datetime:
    """Return a day or a moment in UTC; raises ``UsageError`` if it is none."""
    try:
        moment = pd.Timestamp(since)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{since!r} is no date", cure="write '2026-12-24', or pass a datetime") from error
    if pd.isna(moment):
        raise UsageError("since is no date", cure="write '2026-12-24', or pass a datetime")
    in_utc = moment.tz_localize("UTC") if moment.tz is None else moment.tz_convert("UTC")
    return in_utc.to_pydatetime()


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, sorted(known), n=3, cutoff=0.4)
    return f"the nearest are {', '.join(near)}" if near else "see what was measured: perfsvc report --all"


def open_results(
    database: str | Path | None = None, *, suite: str | Path | None = None, config: str | Path | None = None
) -> "StoredResults":
    """Open a database for reading; ``perfsvc.open`` is this function, and describes it."""
    settings = load(None if config is None else Path(config)).settings
    store = Store.open(settings.database if database is None else database, create=False, read_only=True)
    return StoredResults(store, settings, settings.suite if suite is None else Path(suite))


class StoredResults:
    """The results in a database as pandas frames. ``perfsvc.open`` opens it; it is a context manager.

    Nothing changes the database. Every frame has the columns and dtypes that docs/reference/python-api.md lists, also
    if the frame is empty. Times are seconds, sizes bytes, timestamps UTC.

    These arguments mean the same in every method:

    - ``runs``: a run or several, by number or by name (a label, ``latest``, ``latest~1``, a git revision of the suite's
      repository); None for all runs.
    - ``select``: globs of case names, such as ``transpose`` or ``*/naive[n=4096]``; empty for all cases. A glob matches
      the present name of a case; the results under former names of the case are included.
    - ``device``: UUIDs or models of devices; empty for all devices.
    - ``since``: only runs that started at this day or moment or later; UTC if it has no time zone.

    Methods raise ``NotMeasuredError`` if the database has no such run, case or device, ``UsageError`` if an argument is
    not valid, and ``DatabaseError`` if the database cannot be read.

    Args:
        store: the database; closed by ``close``.
        settings: the settings with which ``compare`` judges.
        suite: the folder in whose repository git revisions are looked up.
    """

    def __init__(self, store: Store, settings: Settings, suite: Path) -> None:
        self._store = store
        self._settings = settings
        self._suite = suite

    @property
    def location(self) -> str:
        """The path or the URL of the database, without a password."""
        return self._store.location

    def runs(self, *, runs: Runs | None = None, since: Since | None = None) -> pd.DataFrame:
        """Return a row for each run, oldest first."""
        return row_frames.runs_frame(self._runs(runs, since))

    def measurements(
        self,
        *,
        runs: Runs | None = None,
        select: Names = (),
        device: Names = (),
        since: Since | None = None,
    ) -> pd.DataFrame:
        """Return a row for each measurement: a case on a device in one replica of a run.

        The columns are those of ``perfsvc report --format csv``. Each axis and each named metric has a column after the
        fixed columns.
        """
        every_run = runs is None and since is None
        numbers = None if every_run else [run.id for run in self._runs(runs, since)]
        return frames.frame(self._store.measurements.columns(numbers, self._cases(select), self._devices(device)))

    def measurement_parts(
        self,
        *,
        rows: int = results.PART,
        runs: Runs | None = None,
        select: Names = (),
        device: Names = (),
        since: Since | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Yield the measurements in parts of whole runs, for databases that are too large for the memory.

        A part holds runs with at most ``rows`` measurements before ``select`` and ``device``, or one larger run. All
        parts have the same columns. There is at least one part, which may be empty.
        """
        chosen = self._runs(runs, since)
        cases, devices = self._cases(select), self._devices(device)
        yield from results.measurement_parts(self._store, chosen, rows=rows, cases=cases, devices=devices)

    def summary(
        self,
        *,
        runs: Runs | None = None,
        select: Names = (),
        device: Names = (),
        since: Since | None = None,
    ) -> pd.DataFrame:
        """Return a row for each run, case, device and cache state, with the level that verdicts compare.

        The columns are those of ``perfsvc report --summary --format csv``.
        """
        return frames.summary(self.measurements(runs=runs, select=select, device=device, since=since))

    def samples(
        self,
        *,
        runs: Runs | None = None,
        select: Names = (),
        device: Names = (),
        since: Since | None = None,
    ) -> pd.DataFrame:
        """Return a row for each sample. A million samples take about 40 MB; ``sample_parts`` yields a run at a time."""
        return self._samples(self._runs_with_measurements(runs, since), self._cases(select), self._devices(device))

    def sample_parts(
        self,
        *,
        runs: Runs | None = None,
        select: Names = (),
        device: Names = (),
        since: Since | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Yield the samples of one run after the other."""
        cases, devices = self._cases(select), self._devices(device)
        for run in self._runs_with_measurements(runs, since):
            yield self._samples([run], cases, devices)

    def verdicts(
        self,
        *,
        runs: Runs | None = None,
        select: Names = (),
        device: Names = (),
        since: Since | None = None,
    ) -> pd.DataFrame:
        """Return a row for each stored verdict on a series: a case on a device, in a cache state, for one metric.

        A verdict says how the run compares with the baseline of the series. Excluded runs and cases have no verdicts.
        """
        cases, devices = self._cases(select), self._devices(device)
        judgements = [
            judgement
            for run in self._runs(runs, since)
            for judgement in self._store.verdicts.of_run(run.id)
            if (cases is None or judgement.series.case.id in cases)
            and (devices is None or judgement.series.device in devices)
        ]
        return row_frames.verdicts_frame(judgements)

    def findings(self) -> pd.DataFrame:
        """Return a row for each finding in any state, newest first."""
        return row_frames.findings_frame(self._store.findings.all())

    def finding_series(self, *, select: Names = (), device: Names = ()) -> pd.DataFrame:
        """Return a row for each step of each series of the findings, newest finding first."""
        cases, devices = self._cases(select), self._devices(device)
        moved = [
            (finding, step)
            for finding in self._store.findings.all()
            for step in finding.moved
            if (cases is None or step.series.case.id in cases) and (devices is None or step.series.device in devices)
        ]
        return row_frames.finding_series_frame(moved)

    def compare(
        self,
        base: Run,
        new: Run,
        *,
        select: Names = (),
        device: Names = (),
        threshold: float | None = None,
    ) -> pd.DataFrame:
        """Compare two runs as ``perfsvc compare BASE NEW`` does, and return a row for each series, most urgent first.

        Args:
            base: the run to compare with, or ``@baseline`` for the baseline of each series.
            new: the run to judge.
            select: only these cases.
            device: only these devices.
            threshold: the smallest relevant change as a fraction (0.02 for 2 %); None for the rules of perfsvc.toml,
                or without rules for the default of each kind of device.

        Raises:
            UsageError: also if both names mean the same run, or if a run is excluded from judging.
        """
        rules = compare.thresholds(self._settings, threshold)
        comparison = compare.compare(
            self._store,
            str(base),
            str(new),
            folder=self._suite,
            threshold=rules if rules.rules else threshold,
            against=self._settings.baseline.against,
            selection=Selection(listed(select)),
            devices=listed(device),
        )
        return row_frames.verdicts_frame(comparison.judgements)

    def history(self, case: str, *, device: Names = ()) -> pd.DataFrame:
        """Return a row for each run of a case on each device and in each cache state, oldest first.

        Args:
            case: the case by its id, or by a glob or a part of its id that fits no other case. Results under its former
                names are included.
            device: only these devices.

        Raises:
            NotMeasuredError: also if the case was never measured on the device.
        """
        name = history.case_named(self._store, case)
        devices = self._devices(device)
        rows = history.history(self._store, name, None)
        chosen = [row for row in rows if devices is None or row.device in devices]
        if not chosen:
            measured_on = ", ".join(sorted({row.device for row in rows}))
            raise NotMeasuredError(
                f"{name} was never measured on {', '.join(listed(device))}",
                cure=f"name a device that has it: {measured_on}",
            )
        return row_frames.history_frame(chosen)

    def close(self) -> None:
        """Close all connections to the database."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<results in {self.location}>"

    def _models(self) -> dict[str, str]:
        """Return the model of each device by its UUID."""
        return {uuid: device.model for uuid, device in self._store.devices.all().items()}

    def _runs(self, runs: Runs | None, since: Since | None) -> list[RunRow]:
        """Return the runs that a caller names, or all runs, oldest first."""
        if runs is None:
            rows = self._store.runs.list()
        else:
            named = (runs,) if isinstance(runs, int | str) else runs
            rows = list({row.id: row for row in map(self._run, named)}.values())
        start = None if since is None else _moment(since)
        return sorted((row for row in rows if start is None or row.provenance.started >= start), key=lambda row: row.id)

    def _run(self, run: Run) -> RunRow:
        return choose(run, self._store, self._suite)[0] if isinstance(run, str) else self._store.runs.get(int(run))

    def _runs_with_measurements(self, runs: Runs | None, since: Since | None) -> list[int]:
        return [run.id for run in self._runs(runs, since) if run.counts]

    def _cases(self, select: Names) -> set[str] | None:
        """Return the ids of the cases that globs select, their former names included; None without globs."""
        if not (globs := listed(select)):
            return None
        names = self._store.series.case_names()
        chosen: set[Case] = set()
        for glob in globs:
            matches = Selection((glob,)).filter(names.values())
            if not matches:
                known = {name for case in names.values() for name in (case.id, case.benchmark)}
                raise NotMeasuredError(f"{glob!r} selects no measured case", cure=_nearest(glob, known))
            chosen |= matches
        return {name for name, case in names.items() if case in chosen}

    def _devices(self, device: Names) -> set[str] | None:
        """Return the UUIDs of the devices that a caller names by UUID or model; None if the caller names none."""
        if not (named := listed(device)):
            return None
        known = self._models()
        for name in named:
            if name not in known and name not in known.values():
                cure = _nearest(name, [*known, *known.values()])
                raise NotMeasuredError(f"no device {name!r} was ever measured", cure=cure)
        return {uuid for uuid, model in known.items() if {uuid, model} & set(named)}

    def _samples(self, runs: list[int], cases: set[str] | None, devices: set[str] | None) -> pd.DataFrame:
        """Return the samples of some runs; all frames of this database have the same categories."""
        collected = row_frames.SamplesFrame(self._store.series.case_names(), self._models())
        for run in runs:
            for stored in self._store.measurements.samples(run, cases, devices):
                keys = {"case": stored.case, "device": stored.device, "cache": stored.cache.value}
                collected.add(run, stored.replica, stored.times_s, **keys)
        return collected.frame()
