"""Pure functions on arrays: what a level is, how two compare, what a verdict is (docs/statistics.md)."""

from perfsvc.judge.causes import COMPARED, MOVES, Sides, together, with_causes
from perfsvc.judge.comparison import Comparison, compare
from perfsvc.judge.estimates import estimate, estimate_level, estimate_metric, level_of
from perfsvc.judge.noise import noise
from perfsvc.judge.thresholds import default_threshold
from perfsvc.judge.verdicts import exit_code, verdicts

__all__ = [
    "COMPARED",
    "MOVES",
    "Comparison",
    "Sides",
    "compare",
    "default_threshold",
    "estimate",
    "estimate_level",
    "estimate_metric",
    "exit_code",
    "level_of",
    "noise",
    "together",
    "verdicts",
    "with_causes",
]
