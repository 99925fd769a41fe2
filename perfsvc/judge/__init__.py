"""Pure functions on arrays: what a level is, how two compare, what a verdict is (docs/statistics.md)."""

from perfsvc.judge.beginnings import may_begin
from perfsvc.judge.causes import COMPARED, MOVES, Sides, together, with_causes
from perfsvc.judge.change_points import ChangePoint, change_points
from perfsvc.judge.checks import check_verdicts
from perfsvc.judge.comparison import Comparison, compare
from perfsvc.judge.confirmation import LOOKS, cause_of, settled
from perfsvc.judge.estimates import estimate, estimate_level, estimate_metric, level_of
from perfsvc.judge.halves import beyond, boundary
from perfsvc.judge.noise import noises
from perfsvc.judge.sequential import interim
from perfsvc.judge.thresholds import (
    ERROR_THRESHOLD,
    Asked,
    Rule,
    Thresholds,
    default_threshold,
    lasting,
    threshold_of,
)
from perfsvc.judge.verdicts import exit_code, verdicts
from perfsvc.judge.watch import watch, watch_many
from perfsvc.judge.watcher import Alert

__all__ = [
    "COMPARED",
    "ERROR_THRESHOLD",
    "LOOKS",
    "MOVES",
    "Alert",
    "Asked",
    "ChangePoint",
    "Comparison",
    "Rule",
    "Sides",
    "Thresholds",
    "beyond",
    "boundary",
    "cause_of",
    "change_points",
    "check_verdicts",
    "compare",
    "default_threshold",
    "estimate",
    "estimate_level",
    "estimate_metric",
    "exit_code",
    "interim",
    "lasting",
    "level_of",
    "may_begin",
    "noises",
    "settled",
    "threshold_of",
    "together",
    "verdicts",
    "watch",
    "watch_many",
    "with_causes",
]
