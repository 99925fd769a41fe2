"""The baseline of several nights: all clean runs of the baseline's code in its environment."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from perfsvc.model import FIRST_RUNS, MAX_ERROR, Level, Series, Status
from perfsvc.service.compare.sides import CodeOfPair, compare_code
from perfsvc.store import Store, UsedCode
from perfsvc.store.baselines.nights import MOST_NIGHTS

MOST_CODES = 3
"""The most binaries of a case that are compared with the baseline's, those of most runs. A case that is built anew
every night would otherwise make each night compare hundreds of binaries."""


def with_nights(
    store: Store, levels: Mapping[Series, Level], run: int, series: Collection[Series]
) -> dict[Series, Level]:
    """Return the levels of baselines, some of them with the values of the further runs of the same code.

    See ``further_runs`` for the arguments.
    """
    runs = further_runs(store, levels, run, series)
    values = store.baselines.replica_levels(runs) if any(runs.values()) else {}
    further = {
        measured: tuple(of_run[number] for number in runs[measured] if number in of_run)
        for measured, of_run in values.items()
    }
    return {measured: replace(level, further=further.get(measured, ())) for measured, level in levels.items()}


def further_runs(
    store: Store, levels: Mapping[Series, Level], run: int, series: Collection[Series]
) -> dict[Series, list[int]]:
    """Return the further runs of the same code of each baseline that has any.

    These are the clean runs after the baseline's run and before ``run``, in the same environment. A baseline has at
    most ``MOST_NIGHTS``: its first ``FIRST_RUNS``, and the newest. A clean run has a correct result and committed code,
    and is not excluded. A run does not count if a finding reports that the case had moved in it: its GPU was slow, for
    example.

    Args:
        store: the database.
        levels: the level of the baseline's run, by series.
        run: the run that is judged.
        series: the series whose level gets further runs, if they have any.
    """
    baselines = {
        measured: level.run
        for measured, level in levels.items()
        if measured in series
        and level.status is Status.OK
        and len(level.medians)
        and measured.metric != MAX_ERROR  # errors hardly vary between runs of the same code
    }
    used = store.baselines.nights(baselines, run) if baselines else {}
    same = _same_code(store, {measured: (of_run[baselines[measured]], of_run) for measured, of_run in used.items()})
    return {
        measured: _first_and_newest(
            [
                number
                for number, code in sorted(of_run.items())
                if number != baselines[measured] and (of_run[baselines[measured]], code) in same
            ]
        )
        for measured, of_run in used.items()
    }


def _first_and_newest(runs: Sequence[int]) -> list[int]:
    """Return the first and the newest of the runs after a baseline's run."""
    first, later = runs[: FIRST_RUNS - 1], runs[FIRST_RUNS - 1 :]
    return [*first, *later[FIRST_RUNS - MOST_NIGHTS :]]


def _same_code(
    store: Store, used: Mapping[Series, tuple[UsedCode, Mapping[int, UsedCode]]]
) -> set[tuple[UsedCode, UsedCode]]:
    """Return the pairs of the baseline's code and the code of a further run that are the same code.

    The code of a case is unknown if the case calls Python functions and the store does not have their packages.
    Unknown code equals no other code: packages may have changed, although the binary is the same.

    Args:
        store: the database.
        used: for each series the code of the baseline's run, and the code of each run.
    """
    to_compare: set[tuple[UsedCode, UsedCode]] = set()
    equal: set[tuple[UsedCode, UsedCode]] = set()
    for own, by_run in used.values():
        (to_compare if own.python is None else equal).add((own, own))
        runs: dict[UsedCode, int] = defaultdict(int)
        for code in by_run.values():
            runs[code] += code != own
        by_runs = sorted((code for code in runs if code != own), key=lambda code: (-runs[code], -code.binary))
        to_compare |= {(own, code) for code in islice(by_runs, MOST_CODES)}
    if not to_compare:
        return equal
    ids = {code.python for pair in to_compare for code in pair if code.python is not None}
    python = store.binaries.python_codes(ids)
    pairs: dict[CodeOfPair, tuple[UsedCode, UsedCode]] = {}
    for old, new in to_compare:
        sides = [(code.binary, None if code.python is None else python.get(code.python)) for code in (old, new)]
        pairs[sides[0], sides[1]] = old, new
    return equal | {pairs[pair] for pair, sides in compare_code(store, pairs).items() if sides.code}
