"""The newest points of all histories, chosen before the rows of many runs are joined and sorted."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.store.schema.shared_reading import Columns

_RUN_COLUMNS = 12
"""How many columns of a part belong to measurements; those of named metrics follow."""

_Bools = NDArray[np.bool_]


def newest_rows(parts: Sequence[Columns], most: int) -> list[Columns]:
    """Return the rows that hold at least the newest ``most`` points of each series, in as many runs as it needs.

    Some series keep more points: a row is kept if any metric of its case needs it, and a former name counts apart.

    Args:
        parts: the columns of ``store.histories`` for each run, the oldest run first: those of the measurements with the
            errors of results, and those of the named metrics.
        most: at least 1.
    """
    cases, devices = (1 + max((int(part[at].max()) for part in parts if part[at].size), default=0) for at in (2, 3))
    cells = cases * devices * 2
    counts: dict[str, NDArray[np.int32]] = {}

    def counted(metric: str, cell: NDArray[np.int64]) -> _Bools:
        """Return which rows of a run belong to the newest points of a metric, and count the points."""
        of_metric = counts.setdefault(metric, np.zeros(cells, np.int32))
        before = of_metric[cell]
        of_metric[cell] = before + 1  # the replicas of a cell all write the same number
        return before < most

    kept = []
    for part in reversed(parts):
        ids, _, case, device, state, _, _, ok, medians, _, _, errors, known, code, values, names = part
        cell = (case.astype(np.int64) * devices + device) * 2 + state
        bad = np.isin(cell, cell[ok != 1]) if (ok != 1).any() else np.zeros(ids.size, np.bool_)
        wanted = np.zeros(ids.size, np.bool_)
        for metric, has_point in ((" time", bad | ~np.isnan(medians)), (" error", ~bad & ~np.isnan(errors))):
            rows = np.flatnonzero(has_point)
            wanted[rows] |= counted(metric, cell[rows])
        by_id = np.argsort(ids, kind="stable")
        at = by_id[np.searchsorted(ids, known, sorter=by_id).clip(max=ids.size - 1)]
        for number, name in enumerate(json.loads(names.tobytes())):
            rows = at[(code == number) & ~bad[at] & (ids[at] == known)]
            wanted[rows] |= counted(name, cell[rows])
        if wanted.all():
            kept.append(part)
        elif wanted.any():
            of_wanted = wanted[at]
            metrics: list[Any] = [column[of_wanted] for column in (known, code, values)]
            kept.append([*(column[wanted] for column in part[:_RUN_COLUMNS]), *metrics, names])
    return kept[::-1]
