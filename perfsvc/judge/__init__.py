"""Pure functions on arrays: levels, comparisons, verdicts, causes and changes (docs/explanation/statistics.md)."""

from perfsvc.judge.causes import COMPARED, MOVES, SameOnBothSides, moved_together, with_causes
from perfsvc.judge.changes.detect import Alert, detect_changes, detect_changes_together, earliest_start
from perfsvc.judge.changes.hindsight import HistoryLevel, split_into_levels
from perfsvc.judge.comparison import Comparison, compare, compare_at_look
from perfsvc.judge.confirmation import LOOKS, cause_of, is_beyond, is_decided, midpoint
from perfsvc.judge.levels import estimate, level_of, level_of_metric, levels_of
from perfsvc.judge.noise import noise_of
from perfsvc.judge.static_checks import check_verdicts
from perfsvc.judge.thresholds import (
    ERROR_THRESHOLD,
    ThresholdOption,
    ThresholdRule,
    Thresholds,
    default_threshold,
    threshold_of,
    without_override,
)
from perfsvc.judge.verdicts import exit_code, verdicts

__all__ = [
    "COMPARED",
    "ERROR_THRESHOLD",
    "LOOKS",
    "MOVES",
    "Alert",
    "Comparison",
    "HistoryLevel",
    "SameOnBothSides",
    "ThresholdOption",
    "ThresholdRule",
    "Thresholds",
    "cause_of",
    "check_verdicts",
    "compare",
    "compare_at_look",
    "default_threshold",
    "detect_changes",
    "detect_changes_together",
    "earliest_start",
    "estimate",
    "exit_code",
    "is_beyond",
    "is_decided",
    "level_of",
    "level_of_metric",
    "levels_of",
    "midpoint",
    "moved_together",
    "noise_of",
    "split_into_levels",
    "threshold_of",
    "verdicts",
    "with_causes",
    "without_override",
]
