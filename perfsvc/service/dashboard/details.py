"""What surrounds the findings of a site: A/B pairs, commits, changes of the sources, and bisections."""

from dataclasses import replace
from functools import lru_cache

from perfsvc.model import FAILURES, Cause, ChangeKind, Confirmation, EventKind, Finding, FindingState, Series
from perfsvc.report.pages.finding import CommitRange, FindingDetails
from perfsvc.report.pages.site import FindingView, Site
from perfsvc.service.dashboard.commits import CommitReader
from perfsvc.service.dashboard.sources import SourceDiffs
from perfsvc.service.findings.other_models import on_other_models
from perfsvc.service.git import commit_ranges
from perfsvc.store import Store

OVER = frozenset({FindingState.ACCEPTED, FindingState.RESOLVED})
READ = 50
"""How many of the newest findings have details on their pages even if they are over. The pages of all findings are
written each time."""
MOST_CONFIRMATIONS = 16
"""How many confirmations of a finding are shown."""
CODE = FAILURES | {Cause.KERNEL, Cause.LAUNCH, Cause.UNCONFIRMED}
"""The causes that may be commits."""
CONFIRMING = frozenset({EventKind.RAISED, EventKind.JOINED, EventKind.STEP, EventKind.CONFIRMED, EventKind.REOPENED})
"""The events of a run that measured suspects of the finding again."""


class FindingDetailsReader:
    """Reads the details of the findings of a site, one finding at a time.

    Args:
        store: holds the confirmations, the sources and the bisections.
        site: the findings and the runs.
        commits: reads the repository.
    """

    def __init__(self, store: Store, site: Site, commits: CommitReader | None = None) -> None:
        self._store = store
        self._runs = site.runs
        self._commits = commits or CommitReader()
        self._sources = SourceDiffs(store)
        self._confirmations = lru_cache(maxsize=8)(store.confirmations.of_run)
        newest = sorted(view.finding.id for view in site.findings)[-READ:]
        self._read = {*newest, *(view.finding.id for view in site.findings if view.finding.state not in OVER)}

    def of(self, view: FindingView) -> FindingDetails:
        """Return the details of a finding; none if it is old and over."""
        finding = view.finding
        if finding.id not in self._read:
            return FindingDetails(is_read=False)
        confirmations = self._of_series(view)
        known = FindingDetails(
            confirmations=tuple(confirmations[:MOST_CONFIRMATIONS]),
            more_confirmations=max(len(confirmations) - MOST_CONFIRMATIONS, 0),
            bisections=tuple(self._store.findings.bisections(finding.id)),
            other_models=on_other_models(self._store, [finding]).get(finding.id, ""),
        )
        if finding.cause not in CODE:
            return known
        files, more, has_sources = self._sources.files(finding)
        return replace(
            known,
            ranges=self._ranges(finding),
            files=tuple(files),
            more_files=tuple(more),
            sources=has_sources,
        )

    def _of_series(self, view: FindingView) -> list[Confirmation]:
        """Return the confirmations of a finding's series: by the series, the worst first, and then by the run.

        If a run measured a series several times, its last conclusive confirmation counts, as for the finding.
        """
        finding = view.finding
        order: dict[Series, int] = {}
        for moved in (*finding.standing, *finding.moved):
            order.setdefault(moved.series, len(order))
        runs = {event.run for event in view.events if event.kind in CONFIRMING and event.run is not None}
        runs |= {moved.first_run for moved in finding.moved if moved.first_run is not None}
        directions = {(moved.series, moved.direction) for moved in finding.moved}
        last: dict[tuple[int, int, bool], Confirmation] = {}
        for run in sorted(runs):
            for confirmation in self._confirmations(run):
                suspect = confirmation.suspect
                if (suspect.series, suspect.direction) not in directions:
                    continue
                key = (order[suspect.series], run, suspect.change is ChangeKind.AGAIN)
                if key not in last or confirmation.cause is not Cause.UNCONFIRMED:
                    last[key] = confirmation
        return [last[key] for key in sorted(last)]

    def _ranges(self, finding: Finding) -> tuple[CommitRange, ...]:
        """Return the commits that the root causes of a finding and of its steps name."""
        suite = self._suite(finding)
        texts = dict.fromkeys((finding.root_cause, *(moved.root_cause for moved in finding.moved)))
        named = dict.fromkeys(pair for text in texts for pair in commit_ranges(text))
        return tuple(self._commits.read(suite, good, bad) for good, bad in named)

    def _suite(self, finding: Finding) -> str:
        """Return the folder of the suite that the first run of a finding measured."""
        number = finding.first_run or 0
        run = self._runs.get(number) or self._store.runs.get(number)
        return run.provenance.suite
