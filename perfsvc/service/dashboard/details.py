"""What surrounds the findings of a site: A/B pairs, commits, changes of the sources, bisections and pictures."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from perfsvc.errors import PerfsvcError
from perfsvc.model import (
    FAILURES,
    TIME,
    CaseExplanation,
    Cause,
    ChangeKind,
    Commit,
    Confirmation,
    EventKind,
    Explanation,
    Finding,
    FindingState,
    LaunchPicture,
    MovedSeries,
    ProfileResult,
    Series,
)
from perfsvc.profile.picture import picture
from perfsvc.report.pages.finding import CommitRange, FindingDetails
from perfsvc.report.pages.site import FindingView, PicturedCase, Site
from perfsvc.service.dashboard.sources import SourceDiffs
from perfsvc.service.findings.actions import on_other_models
from perfsvc.service.git import commit_ranges, git, newest_commits, unreadable
from perfsvc.service.profile.case_profiler import profile_of, sources_of
from perfsvc.store import Store

DRAWN = 20
"""How many of the newest findings have pictures even if they are accepted or resolved. The pages of all findings are
written each time, and a picture takes some hundredths of a second."""
MOST_CASES = 16
"""How many cases of a finding have pictures, the worst first; the others have their sentences and reasons."""


class FindingPictures:
    """Draws the explained cases of the findings of a site.

    Args:
        store: holds the profiles.
        site: the findings.
    """

    def __init__(self, store: Store, site: Site) -> None:
        self._store = store
        newest = sorted(site.findings, key=lambda view: view.finding.id)[-DRAWN:]
        self._drawn = {
            view.finding.id for view in (*newest, *(view for view in site.findings if view.finding.state not in OVER))
        }

    def cases(self, view: FindingView) -> tuple[PicturedCase, ...]:
        """Return the explained cases of a finding, the worst first; devices with one explanation share it."""
        shared: dict[tuple[object, ...], list[tuple[MovedSeries, CaseExplanation]]] = {}
        for moved in dict.fromkeys((*view.finding.standing, *view.finding.moved)):
            why = moved.explanation
            if why and moved.series.metric == TIME:
                key = (why.case, why.baseline_run, why.candidate_run, why.device_model, why.profiles, why.reason)
                shared.setdefault(key, []).append((moved, why))
        drawn = list(shared.values())[:MOST_CASES] if view.finding.id in self._drawn else []
        numbers = {number for (_, why), *_ in drawn for number in why.profiles if number is not None}
        profiles = self._store.profiles.get(numbers)
        return tuple(
            PicturedCase(
                group[0][0],
                group[0][1],
                tuple(dict.fromkeys(why.device for _, why in group)),
                self._picture(group[0][1], profiles) if group in drawn else None,
            )
            for group in shared.values()
        )

    def _picture(self, why: CaseExplanation, profiles: Mapping[int, ProfileResult]) -> LaunchPicture | None:
        """Return the picture of both launches of an explanation; None if a profile is no longer stored."""
        before, after = (profiles.get(number or 0) for number in why.profiles)
        if before is None or after is None or not why.sentence:
            return None
        try:
            sources = sources_of(self._store, before, after)
        except PerfsvcError:  # damaged: the page has the instructions instead
            sources = ({}, {})
        explanation = Explanation(why.factor or 1.0, why.sentence, why.reasons)
        peaks = self._store.devices.rates(after.run, after.device)
        return picture(profile_of(before), profile_of(after), explanation, sources, peaks)


MOST = 20
"""How many commits of a range are listed."""
LIMIT_S = 5.0
"""Seconds for one answer of git."""
BUDGET_S = 30.0
"""Seconds for all answers of git: a slow file system must not delay the pages of a night."""


class CommitReader:
    """Reads the commits of ranges; what is read is kept, because several findings may name the same range.

    Args:
        budget_s: the seconds after which git is not asked any more.
    """

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self._left_s = budget_s
        self.read = cache(self._read)
        self._trouble_of = cache(_trouble_of)

    def _read(self, suite: str, good: str, bad: str) -> CommitRange:
        """Return the commits after ``good`` up to ``bad``, or the reason why they are not known.

        Args:
            suite: the folder of benchmarks, as the run recorded it.
            good: a hash; empty to read only the commit ``bad``.
            bad: a hash.
        """
        if self._left_s <= 0:
            return CommitRange(good, bad, why_not="git was too slow: the time for reading commits was used up")
        began = time.monotonic()
        try:
            commits, count, why_not = self._asked(Path(suite), good, bad)
        finally:
            self._left_s -= time.monotonic() - began
        return CommitRange(good, bad, commits, count, why_not)

    def _asked(self, folder: Path, good: str, bad: str) -> tuple[tuple[Commit, ...], int, str]:
        """Return the commits, how many there are, and why there are none."""
        if trouble := self._trouble_of(folder):
            return (), 0, trouble
        commits, count = newest_commits(folder, good, bad, MOST, limit_s=LIMIT_S)
        return commits, count, "" if commits else _why_none(folder, good, bad)


def _trouble_of(folder: Path) -> str:
    """Return why a folder's history cannot be read; empty if it can."""
    if not folder.is_dir():
        return f"the suite's folder {folder} is not on this machine"
    if why := unreadable(folder, limit_s=LIMIT_S):
        return f"git cannot read the repository of {folder}: {why}"
    if git(folder, "rev-parse", "--git-dir", limit_s=LIMIT_S) is None:
        return f"{folder} is in no git repository on this machine"
    return ""


def _why_none(folder: Path, good: str, bad: str) -> str:
    """Return why git listed no commits of a range."""
    for commit in filter(None, (good, bad)):
        name = f"{commit}^{{commit}}"
        if not git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name, limit_s=LIMIT_S):
            shallow = git(folder, "rev-parse", "--is-shallow-repository", limit_s=LIMIT_S) == "true"
            cure = "it is shallow: git fetch --unshallow" if shallow else "git fetch --all may bring it"
            return f"the clone {folder} has no commit {commit} ({cure})"
    return f"{bad} has no commit that {good} lacks: the run measured an older commit" if good else "git did not answer"


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
