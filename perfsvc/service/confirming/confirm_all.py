"""All suspects of a run, measured again: what came of them is stored, and said of the verdicts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from perfsvc.errors import NoDeviceError
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.model import Confirmation, Judgement, Suspect
from perfsvc.service.confirming.confirm import Confirmer
from perfsvc.service.confirming.turns import Means
from perfsvc.service.progress import Progress
from perfsvc.store import Store


def confirm_all(
    store: Store, suspects: Sequence[Suspect], means: Means, progress: Progress, stopping: Stopping = never
) -> list[Confirmation]:
    """Measures suspects again, one after the other.

    What came of each is stored at once. A GPU that cannot be opened any more costs its own suspects, which nobody
    measures again then. From when it is ``stopping`` on none is begun.
    """
    progress.begin("confirming", len(suspects))
    confirmer = Confirmer(store, means)
    confirmations: list[Confirmation] = []
    lost: set[str] = set()
    for suspect in suspects:
        if stopping():
            break
        if suspect.series.device not in lost:
            try:
                confirmations.append(confirmer.confirm(suspect))
                store.put_confirmation(confirmations[-1])
            except NoDeviceError as error:
                lost.add(suspect.series.device)
                progress.say(f"the suspects of {suspect.series.device} are not measured again: {error.what}")
        progress.step(suspect.series.case.id)
    return confirmations


def with_causes(judgements: Iterable[Judgement], confirmations: Iterable[Confirmation]) -> list[Judgement]:
    """Verdicts with the causes that measuring again found; what a verdict did not see move keeps none."""
    causes = {one.suspect.series: one.cause for one in confirmations}
    return [replace(one, cause=causes.get(one.series, one.cause)) if one.cause else one for one in judgements]
