"""Import the result files of other tools as runs, all of them or nothing, and judge these runs like our own."""

import platform
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from perfsvc import __version__, judge, units
from perfsvc.errors import UsageError
from perfsvc.model import AUXILIARY, TIME, Direction, Judgement, Provenance, Series, Status
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.suspects import ignored
from perfsvc.service.findings.update import update_findings
from perfsvc.service.git import git
from perfsvc.service.imports.files import FoundRun, Reader, Source
from perfsvc.service.progress import Progress
from perfsvc.service.run.run import exit_code_of
from perfsvc.store import ImportedRun, RunRow, Store

MOST_NAMES = 3
"""The most programs that name the suite of a run."""
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What to import.

    Attributes:
        database: the database.
        format: the format of the files.
        paths: the files; for asv also folders of results.
        label: the label of the new runs.
        suite: the name of what is measured, which separates its histories from those of other suites; empty to name it
            by the programs that measured.
        commit: the commit or git revision that was measured; empty to take it from the files.
        at: when it was measured; None to take it from the files.
        host: the machine that measured; empty to take it from the files.
        separate: make each file a run of its own, instead of a replica of the run of its commit and host.
        metrics: further numbers of the results that are stored and judged; lower is better.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
        folder: where git revisions are looked up.
        command_line: the command, for the record.
    """

    database: str
    format: str
    paths: tuple[Path, ...]
    label: str = ""
    suite: str = ""
    commit: str = ""
    at: datetime | None = None
    host: str = ""
    separate: bool = False
    metrics: frozenset[str] = frozenset()
    threshold: judge.ThresholdOption = None
    folder: Path = Path()
    command_line: str = ""


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What was imported.

    Attributes:
        runs: the new runs, in the order in which they were measured.
        known: how many parts of files were imported before, by the run that has them.
        empty: the number of results without any number that perfsvc stores.
        judgements: the verdicts on the last new run.
        ignored_moves: the series and directions of ignored findings, which do not count as regressions.
    """

    runs: tuple[RunRow, ...] = ()
    known: Mapping[int, int] = field(default_factory=dict)
    empty: int = 0
    judgements: tuple[Judgement, ...] = ()
    ignored_moves: AbstractSet[tuple[Series, Direction]] = frozenset()

    def exit_code(self, *, strict: bool) -> int:
        """Return the command's exit code: that of the last new run, or 0 if there is nothing new."""
        if not self.runs:
            return 0
        counts = self.runs[-1].counts
        failed = bool(counts.get(Status.FAILED) or counts.get(Status.WRONG))
        return exit_code_of(self.judgements, [], ignored_moves=self.ignored_moves, failed=failed, strict=strict)


def import_files(request: ImportRequest, progress: Progress) -> ImportOutcome:
    """Store the results of files as runs, and judge these runs in the order in which they were measured.

    If any file is not valid, nothing is stored. A part of a file that was imported before is skipped.

    Raises:
        FormatError: a file is not valid.
        UsageError: the options do not fit the files.
        InfrastructureError: the database cannot be used.
    """
    commit = _commit(request.commit, request.folder) if request.commit else ""
    reader = Reader(
        request.format,
        commit,
        request.host,
        separate=request.separate,
        metrics=request.metrics,
        suite=request.suite,
    )
    found, counters = reader.runs(request.paths, progress)
    _require_fit(request, found, counters)
    with Store.open(request.database) as store:
        reader.find_caches(store)
        known = store.received.imported({digest for run in found.values() for digest in run.parts})
        for run in found.values():
            run.forget(known)
        new = [(source, run) for source, run in found.items() if run.parts and run.empty < run.results]
        new.sort(key=lambda pair: pair[1].started)  # runs of one time stay in the order of the files and their rows
        imported = [_imported(request, reader, source, run) for source, run in new]
        _warn_of_order(store, imported, progress)
        progress.begin("storing", len(new))
        numbers = store.received.put_imported(imported, lambda run: progress.step(run.provenance.suite)) if new else []
        # Runs that an earlier command stored, and did not judge because it was stopped, are judged now.
        unjudged = [run for run in sorted(set(known.values())) if not store.verdicts.of_run(run)]
        progress.begin("judging", len(unjudged) + len(numbers))
        judgements: list[Judgement] = []
        for number in [*unjudged, *numbers]:
            judgements = judge_run(store, number, threshold=request.threshold)
            store.verdicts.put(number, judgements)
            update_findings(store, number, threshold=request.threshold)
            progress.step(f"run {number}")
        return ImportOutcome(
            tuple(store.runs.get(number) for number in numbers),
            Counter(known.values()),
            sum(run.empty for _, run in new),
            tuple(judgements),
            ignored(store.findings.active()),
        )


def _imported(request: ImportRequest, reader: Reader, source: Source, run: FoundRun) -> ImportedRun:
    """Return a run for the store, which reads its measurements while it stores them."""
    programs = sorted(run.programs)
    suite = request.suite or (units.some(programs[:MOST_NAMES]) if programs else request.format)
    started = request.at or run.started
    scope = shlex.join([f"{request.format}:{suite}"])
    provenance = Provenance(
        started=started,
        command_line=request.command_line,
        suite=suite,
        commit=source.commit,
        dirty=run.dirty,
        host=source.host,
        perfsvc_version=__version__,
        python_version=platform.python_version(),
        label=request.label,
        scope=scope,
    )
    parts = {digest: str(file) for digest, file in run.parts.items()}
    entries = reader.entries(source, run)
    return ImportedRun(provenance, tuple(run.devices.values()), entries, request.format, parts)


def _warn_of_order(store: Store, imported: Iterable[ImportedRun], progress: Progress) -> None:
    """Report a run that is older than a run that was imported before: its higher number makes it the newer one."""
    for run in imported:
        started = run.provenance.started
        if later := store.received.later(run.provenance.scope, started):
            progress.report(
                f"the results of {started:%Y-%m-%d %H:%M} UTC are older than those of run {later}, but get a higher "
                "number: perfsvc compares runs in the order of their numbers, so import the oldest files first"
            )
            return


# --- options ---------------------------------------------------------------------------------------------------------


def _commit(text: str, folder: Path) -> str:
    """Return the commit that a git revision names; a commit that this repository does not have stays as it is.

    Raises ``UsageError`` if the text is neither.
    """
    commit = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    if commit:
        return commit
    if _COMMIT.fullmatch(text):
        return text
    raise UsageError(
        f"{text!r} is neither a commit nor a git revision of this folder", cure="write all digits of the commit"
    )


def _require_fit(request: ImportRequest, found: Mapping[Source, FoundRun], counters: AbstractSet[str]) -> None:
    """Raise ``UsageError`` if the options do not fit what the files hold."""
    if taken := sorted(request.metrics & {TIME, *AUXILIARY}):
        raise UsageError(
            f"a metric cannot have the name {taken[0]!r}, because perfsvc has a metric of this name",
            cure="leave it out",
        )
    if unknown := sorted(request.metrics - counters):
        names = f"the files have {units.some(sorted(counters))}" if counters else "the files have no further numbers"
        raise UsageError(f"no result has the number {unknown[0]!r}", cure=f"{names}; check --metric")
    if request.format == "asv" and request.commit:
        raise UsageError("the files of asv name their commits", cure="leave out --commit")
    if request.at is not None and len(found) > 1:
        what = f"the files hold {len(found)} runs, and --at would give all of them the same time"
        raise UsageError(what, cure="leave out --at, or import the files of one run at a time")
