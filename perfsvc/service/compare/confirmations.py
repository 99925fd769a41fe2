"""The confirmations that belong to the verdicts of a comparison: what A/B pairs have shown about the same changes."""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log, log1p, prod

from perfsvc import judge, units
from perfsvc.model import TIME, Cause, Confirmation, Direction, Judgement, Series
from perfsvc.service.compare.sides import CodeOfPair, compare_code
from perfsvc.store import Store

OTHER_CODE = frozenset({Cause.UNCONFIRMED, Cause.TOOLCHAIN})
"""The causes of a change of code that only A/B pairs can confirm or clear."""


def with_confirmations(
    store: Store, judgements: Sequence[Judgement], threshold_of: Callable[[Series], float]
) -> list[Judgement]:
    """Return the judgements; each gets the cause and the reason of its confirmation, if there is one.

    A confirmation belongs to a judgement if it is about the same series, the same two runs and the same direction.
    """
    runs = {judgement.candidate_run for judgement in judgements if judgement.cause}
    answers: dict[tuple[Series, int | None, Direction | None], Confirmation] = {
        (suspect.series, suspect.judgement.baseline_run, suspect.direction): confirmation
        for run in runs
        if run is not None
        for confirmation in store.confirmations.of_run(run)
        if _is_answer(confirmation, threshold_of)
        for suspect in [confirmation.suspect]
    }

    return [
        answered(judgement, answers.get((judgement.series, judgement.baseline_run, judge.MOVES.get(judgement.verdict))))
        for judgement in judgements
    ]


def _is_answer(confirmation: Confirmation, threshold_of: Callable[[Series], float]) -> bool:
    """Return whether a confirmation decides about its series: it names a cause, or clears the change as noise.

    A confirmation that used a larger threshold than the series has now may have cleared a change that is relevant now.
    Such a confirmation decides nothing.
    """
    if confirmation.cause is Cause.UNCONFIRMED:
        return False
    return confirmation.confirmed or confirmation.threshold <= threshold_of(confirmation.suspect.series)


def with_answers_of_other_runs(
    store: Store, judgements: Sequence[Judgement], threshold_of: Callable[[Series], float]
) -> list[Judgement]:
    """Return the judgements; an unconfirmed change of code gets the newest confirmation of the same two binaries.

    A/B pairs compare two binaries, not two runs. A confirmation therefore holds for all runs that had these binaries,
    or binaries with the same code. A night uses only its own confirmations, because a confirmation also depends on the
    GPU.
    """
    asked = {judgement.series: judgement for judgement in judgements if judgement.cause in OTHER_CODE}
    if not asked:
        return list(judgements)
    answers = [
        answer
        for answer in store.confirmations.of_series(asked)
        if _is_answer(answer, threshold_of)
        and judge.MOVES.get(asked[answer.suspect.series].verdict) is answer.suspect.direction
    ]
    binaries = _binaries_of(store, [*asked.values(), *(answer.suspect.judgement for answer in answers)])
    answers = [
        answer for answer in answers if binaries.keys() >= {asked[answer.suspect.series], answer.suspect.judgement}
    ]

    def pairs(answer: Confirmation) -> Iterator[CodeOfPair]:
        """Yield two pairs: the confirmed and the judged binary of the baseline, then those of the candidate."""
        yield from zip(binaries[answer.suspect.judgement], binaries[asked[answer.suspect.series]], strict=True)

    different = {pair for answer in answers for pair in pairs(answer) if pair[0] != pair[1]}
    same_code = {pair for pair, sides in compare_code(store, different).items() if sides.code}
    newest = {  # the last confirmation stays if a series has several
        answer.suspect.series: answer
        for answer in answers
        if all(old == new or (old, new) in same_code for old, new in pairs(answer))
    }
    of_series: dict[Series, list[Confirmation]] = defaultdict(list)
    for answer in answers:
        of_series[answer.suspect.series].append(answer)
    by_steps = {
        series: judgement
        for series, known in of_series.items()
        if series not in newest and (judgement := _by_steps(asked[series], known, binaries, threshold_of))
    }
    return [
        by_steps.get(judgement.series) or answered(judgement, newest.get(judgement.series)) for judgement in judgements
    ]


def _by_steps(
    judgement: Judgement,
    answers: Sequence[Confirmation],
    binaries: Mapping[Judgement, CodeOfPair],
    threshold_of: Callable[[Series], float],
) -> Judgement | None:
    """Explain a judgement by a chain of confirmed changes from its old binary to its new one; None without a chain.

    The product of the changes' ratios may differ from the judgement's ratio by the threshold at most.
    """
    code, last = binaries[judgement]
    steps: list[Confirmation] = []
    for answer in answers:
        before, after = binaries[answer.suspect.judgement]
        if code != last and before == code and answer.confirmed and answer.ratio:
            steps.append(answer)
            code = after
    if code != last or not steps or not judgement.ratio:
        return None
    left = judgement.ratio / prod(answer.ratio or 1.0 for answer in steps)
    if abs(log(left)) > log1p(threshold_of(judgement.series)):
        return None
    shares = ", ".join(
        f"{units.percent(answer.ratio or 1.0)} from run {answer.suspect.judgement.baseline_run} "
        f"to run {answer.suspect.judgement.candidate_run}"
        for answer in steps
    )
    largest = max(steps, key=lambda answer: abs(log(answer.ratio or 1.0)))
    return replace(
        judgement, cause=largest.cause, reason=f"{judgement.reason}; confirmed in A/B pairs step by step: {shares}"
    )


def how_to_confirm(store: Store, judgements: Iterable[Judgement]) -> list[str]:
    """Return the commands that measure the unconfirmed changes again in A/B pairs.

    ``perfsvc confirm`` measures a run against its baseline, so a change between other binaries gets no command.
    """
    unconfirmed = [
        judgement
        for judgement in judgements
        if judgement.cause is Cause.UNCONFIRMED and None not in {judgement.baseline_run, judgement.candidate_run}
    ]
    usual: dict[Judgement, Judgement] = {}
    for run in {judgement.candidate_run for judgement in unconfirmed if judgement.candidate_run is not None}:
        of_run = [judgement for judgement in unconfirmed if judgement.candidate_run == run]
        baselines = store.baselines.get([judgement.series for judgement in of_run], run)
        usual |= {judgement: replace(judgement, baseline_run=baselines.get(judgement.series)) for judgement in of_run}
    binaries = _binaries_of(store, {*usual, *usual.values()})
    commands: list[str] = []
    for judgement in unconfirmed:
        series = judgement.series
        if judgement in binaries and binaries.get(usual[judgement]) == binaries[judgement]:
            metric = [] if series.metric == TIME else ["--metric", series.metric]
            commands.append(
                shlex.join(["perfsvc", "confirm", series.case.id, "--run", str(judgement.candidate_run), *metric])
            )
    return list(dict.fromkeys(commands))


def answered(judgement: Judgement, answer: Confirmation | None) -> Judgement:
    """Return a judgement with the cause and the reason of a confirmation, which may belong to another run.

    A second call does not add the reason again.
    """
    if answer is None:
        return judgement
    if answer.reason in judgement.reason:
        return replace(judgement, cause=answer.cause)
    run = answer.suspect.judgement.candidate_run
    other = "" if run == judgement.candidate_run else f", as run {run} had it measured"
    reason = "; ".join(filter(None, [judgement.reason, f"{answer.reason}{other}"]))
    return replace(judgement, cause=answer.cause, reason=reason)


def _binaries_of(store: Store, judgements: Iterable[Judgement]) -> dict[Judgement, CodeOfPair]:
    """Return the old and the new binary of each judgement; a judgement is absent if one of them is not stored."""
    cases = {
        judgement: [
            (run, (judgement.series.device, judgement.series.case, judgement.series.cache))
            for run in (judgement.baseline_run or 0, judgement.candidate_run or 0)
        ]
        for judgement in judgements
    }
    built = store.binaries.of_cases({case for both in cases.values() for case in both}) if cases else {}
    binaries = {case: (code.binary, code.python) for case, code in built.items() if code.binary is not None}
    return {
        judgement: (binaries[old], binaries[new])
        for judgement, (old, new) in cases.items()
        if old in binaries and new in binaries
    }
