"""The explained cases of a finding, with the picture of both launches."""

from collections.abc import Mapping

from perfsvc.errors import PerfsvcError
from perfsvc.model import (
    TIME,
    CaseExplanation,
    Explanation,
    FindingState,
    LaunchPicture,
    MovedSeries,
    ProfileResult,
)
from perfsvc.profile.picture import picture
from perfsvc.report.pages.site import FindingView, PicturedCase, Site
from perfsvc.service.profile.case_profiler import profile_of, sources_of
from perfsvc.store import Store

OVER = frozenset({FindingState.ACCEPTED, FindingState.RESOLVED})
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
