"""Several GPUs of one model that have the same two binaries of a suspect: measure on one, check on a second."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfsvc import judge
from perfsvc.measure.plan.order import Task
from perfsvc.model import ChangeKind, Confirmation, Status
from perfsvc.service.confirm.pairs import PairResults, Sides
from perfsvc.service.findings.suspects import size_of_change

ABOUT_LARGEST = 0.8
"""A GPU may stand for the others if its change is at least this share of the largest change (of logarithms)."""


@dataclass(slots=True, eq=False)
class Group:
    """Suspects of several GPUs of one model, with the same two binaries on each GPU; or the suspect of a single GPU.

    The first GPU measures until the answer is known. A second GPU checks the answer with one A/B pair. If the code is
    the cause, and the pair shows a similar change, the answer holds on all GPUs of the group. In any other case each
    GPU has to be measured, because chance and the state of a GPU are different on each GPU.

    Attributes:
        first: what the first GPU measures.
        others: what the other GPUs would measure.
        check: what the second GPU measures: one pair of a member of ``others``.
        answer: the confirmation of the first GPU's suspect, once it is known.
        results: the pairs of the first GPU behind ``answer``.
        checked: the pair of the second GPU, once it is known.
    """

    first: Sides
    others: tuple[Sides, ...] = ()
    check: Sides | None = None
    answer: Confirmation | None = None
    results: PairResults | None = None
    checked: PairResults | None = None

    @property
    def measured(self) -> tuple[Sides, ...]:
        """What the first and the second GPU measure."""
        return (self.first,) if self.check is None else (self.first, self.check)

    @property
    def applies(self) -> bool:
        """Whether the answer of the first GPU holds on the other GPUs."""
        if self.answer is None or self.results is None or self.checked is None:
            return False
        pair, metric = self.checked, self.first.metric
        runs = (*pair.baseline, *pair.candidate)
        is_complete = bool(pair.pairs) and all(run.status is Status.OK and run.values_of(metric) for run in runs)
        if not (is_complete and self.answer.confirmed and self.results.comparison):
            return False
        old, new = ([run.values_of(metric) for run in side] for side in (pair.baseline, pair.candidate))
        ratio = judge.compare(old, new, threshold=self.first.threshold).ratio
        return judge.agrees(self.results.comparison, self.results.pairs, ratio, threshold=self.first.threshold)

    def applied(self, unconfirmed: Confirmation) -> Confirmation:
        """Return the confirmation of another GPU's suspect with the answer of the first GPU."""
        answer, check, pair = self.answer, self.check, self.checked
        if answer is None or check is None or pair is None:
            raise ValueError("the answer does not apply to other GPUs")
        device = unconfirmed.suspect.series.device
        own = pair if device == check.baseline.device else PairResults()
        return replace(
            answer,
            suspect=unconfirmed.suspect,
            threshold=unconfirmed.threshold,
            reason=f"{answer.reason}, as on {answer.suspect.series.device}, "
            f"and checked on {check.baseline.device} with one pair",
            drift=None,
            wall_s=own.wall_s,
            baseline=tuple(own.baseline),
            candidate=tuple(own.candidate),
        )


def groups_of(unconfirmed: Mapping[Sides, Confirmation]) -> list[Group]:
    """Return the suspects in groups that share an answer, in the order of their first suspects.

    The first GPU of a group is the GPU with the largest change. If several GPUs show about the same change, it is the
    GPU with the least to measure so far. The second GPU is the remaining GPU with the least to measure.

    Args:
        unconfirmed: what to measure, each with its confirmation before any measurement, the most urgent first.
    """
    by_work: dict[object, list[Sides]] = defaultdict(list)
    for sides, confirmation in unconfirmed.items():
        by_work[_work(sides, confirmation)].append(sides)
    pairs: dict[str, int] = defaultdict(int)  # how many pairs each device measures so far, at least
    groups = []
    for members in by_work.values():
        sizes = {sides: size_of_change(unconfirmed[sides].suspect) for sides in members}
        largest = [sides for sides in members if sizes[sides] >= ABOUT_LARGEST * max(sizes.values())]
        first = _least_busy(largest, pairs)
        pairs[first.baseline.device] += judge.LOOKS[0]
        others = tuple(sides for sides in members if sides is not first)
        check = None
        if others:
            check = replace(_least_busy(others, pairs), most_pairs=1)
            pairs[check.baseline.device] += 1
        groups.append(Group(first, others, check))
    return groups


def _work(sides: Sides, confirmation: Confirmation) -> object:
    """Return a key that is equal for suspects with the same two binaries on GPUs of one model, and one threshold.

    An alert may have a lower threshold than a regression. What its pairs confirm may be too little for the regression.
    """
    suspect = confirmation.suspect
    series, again = suspect.series, suspect.change is ChangeKind.AGAIN
    kind = (series.device_model, series.metric, series.cache, suspect.direction)
    baseline_run = suspect.judgement.baseline_run if again else None  # the reason of a further step names this run
    return kind, again, baseline_run, sides.threshold, _code(sides.baseline), _code(sides.candidate)


def _code(task: Task) -> object:
    return task.record, task.python_source


def _least_busy(candidates: Sequence[Sides], pairs: Mapping[str, int]) -> Sides:
    """Return the first candidate whose device has the fewest pairs to measure."""
    return min(candidates, key=lambda sides: pairs.get(sides.baseline.device, 0))
