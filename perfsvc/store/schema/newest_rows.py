"""The newest points of all histories, chosen before the rows of many runs are joined and sorted."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.store.schema.shared_reading import Columns

_RUN_COLUMNS = 12
"""How many columns of a part belong to measurements; those of named metrics follow."""

_MOST_GAPS = 4
"""Ids are looked up in a table if there are at most so many numbers for each id."""

_Bools = NDArray[np.bool_]
_Ints = NDArray[np.int64]


def newest_rows(parts: Sequence[Columns], most: int) -> list[Columns]:
    """Return the rows that hold at least the newest ``most`` points of each series, in as many runs as it needs.

    Some series keep more points: a row is kept if any metric of its case needs it.

    Args:
        parts: the columns of ``store.histories`` for each run, the oldest run first: those of the measurements with the
            errors of results, and those of the named metrics.
        most: at least 1.
    """
    devices = 1 + max((int(part[3].max()) for part in parts if part[3].size), default=0)
    counts: dict[str, NDArray[np.int32]] = {}

    def counted(metric: str, cell: _Ints) -> _Bools:
        """Return which rows of a run belong to the newest points of a metric, and count the points."""
        of_metric = counts.get(metric, np.zeros(0, np.int32))
        if cell.size and cell.max() >= of_metric.size:
            of_metric = counts[metric] = np.pad(of_metric, (0, 2 * int(cell.max()) + 1 - of_metric.size))
        before = of_metric[cell]
        of_metric[cell] = before + 1  # the replicas of a cell all write the same number
        return before < most

    kept = []
    for part in reversed(parts):
        ids, _, case, device, state, _, _, ok, medians, _, _, errors, known, code, values, metrics = part
        cell = (case.astype(np.int64) * devices + device) * 2 + state
        bad = np.isin(cell, cell[ok != 1]) if (ok != 1).any() else np.zeros(ids.size, np.bool_)
        wanted = np.zeros(ids.size, np.bool_)
        for metric, has_point in ((" time", bad | ~np.isnan(medians)), (" error", ~bad & ~np.isnan(errors))):
            rows = np.flatnonzero(has_point)
            wanted[rows] |= counted(metric, cell[rows])
        at = places(ids, known)
        for number, name in enumerate(json.loads(metrics.tobytes())):
            rows = at[(code == number) & ~bad[at] & (ids[at] == known)]
            wanted[rows] |= counted(name, cell[rows])
        if not wanted.any():
            continue
        if not wanted.all():
            wanted = np.isin(cell, cell[wanted])  # a replica without this value belongs to its run all the same
        if wanted.all():
            kept.append(part)
        else:
            of_wanted = wanted[at]
            named: list[Any] = [column[of_wanted] for column in (known, code, values)]
            kept.append([*(column[wanted] for column in part[:_RUN_COLUMNS]), *named, metrics])
    return kept[::-1]


def places(ids: _Ints, known: _Ints) -> _Ints:
    """Return where each known id is among some different ids; any place for an id that is not among them."""
    lowest, highest = int(ids.min()), int(ids.max())
    if highest - lowest > _MOST_GAPS * ids.size:
        by_id = np.argsort(ids)
        found: _Ints = by_id[np.searchsorted(ids, known, sorter=by_id).clip(max=by_id.size - 1)]
        return found
    table = np.zeros(highest - lowest + 1, np.int64)  # takes a tenth of the time
    table[ids.astype(np.int64) - lowest] = np.arange(ids.size)
    return table.take(known.astype(np.int64) - lowest, mode="clip")
