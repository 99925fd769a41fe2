"""All suspects of a run, measured again: what came of them is stored, raised as findings, and said of the verdicts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from perfsvc.errors import NoDeviceError
from perfsvc.model import Confirmation, Judgement, Suspect
from perfsvc.service.confirming.confirm import Confirmer
from perfsvc.service.confirming.turns import Means
from perfsvc.service.judging import findings
from perfsvc.service.progress import Progress
from perfsvc.store import Store


def confirm_all(
    store: Store, run: int, suspects: Sequence[Suspect], means: Means, progress: Progress
) -> list[Confirmation]:
    """Measures the suspects of a run again, one after the other, and raises findings of what is confirmed.

    What came of each is stored at once. A board that cannot be opened any more costs its own suspects, which nobody
    measures again then.
    """
    progress.begin("confirming", len(suspects))
    confirmer = Confirmer(store, means)
    confirmations: list[Confirmation] = []
    lost: set[str] = set()
    for suspect in suspects:
        if suspect.series.device not in lost:
            try:
                confirmations.append(confirmer.confirm(suspect))
                store.put_confirmation(confirmations[-1])
            except NoDeviceError as error:
                lost.add(suspect.series.device)
                progress.say(f"the suspects of {suspect.series.device} are not measured again: {error.what}")
        progress.step(suspect.series.case.id)
    findings.raise_from(store, run, map(_decided, confirmations))
    return confirmations


def with_causes(judgements: Iterable[Judgement], confirmations: Iterable[Confirmation]) -> list[Judgement]:
    """Verdicts with the causes that measuring again found; what a verdict did not see move keeps none."""
    causes = {one.suspect.series: one.cause for one in confirmations}
    return [replace(one, cause=causes.get(one.series, one.cause)) if one.cause else one for one in judgements]


def _decided(one: Confirmation) -> Suspect:
    """The suspect as measuring it again showed it; of the board's doing it has only what the run saw."""
    judged = replace(one.suspect.judgement, cause=one.cause)
    if one.confirmed:
        judged = replace(judged, ratio=one.ratio, low=one.low, high=one.high)
    return replace(one.suspect, judgement=judged, evidence=one.reason)
