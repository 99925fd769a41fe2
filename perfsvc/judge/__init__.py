"""Pure functions on arrays: levels, comparisons, verdicts, causes and changes (docs/explanation/statistics.md)."""

from perfsvc.judge.causes import (
    COMPARED,
    LOOKS,
    MOVES,
    SameOnBothSides,
    agrees,
    cause_of,
    is_beyond,
    is_decided,
    midpoint,
    move_of_one_replica,
    moved_together,
    settled,
    with_causes,
)
from perfsvc.judge.changes.detect import detect_changes, detect_changes_together, earliest_start
from perfsvc.judge.changes.detector import Alert
from perfsvc.judge.changes.hindsight import HistoryLevel, split_all_into_levels, split_into_levels
from perfsvc.judge.comparison import ALPHA, Comparison, compare, compare_levels, compare_with_each
from perfsvc.judge.levels import center_of, estimate, level_of_samples, levels_of, noise_of
from perfsvc.judge.siblings import (
    AGREEING_NIGHTS,
    RECOVERED_NIGHTS,
    SIBLING_DEVIATIONS,
    SIBLING_NIGHTS,
    SIBLING_SPREAD,
    MeanRatio,
    RatioToSiblings,
    is_as_fast_as_siblings,
    is_slower_than_siblings,
    mean_ratio,
    ratio_to_siblings,
    sibling_threshold,
)
from perfsvc.judge.static_checks import check_verdicts
from perfsvc.judge.thresholds import (
    ERROR_THRESHOLD,
    THRESHOLDS,
    ThresholdOption,
    ThresholdRule,
    Thresholds,
    threshold_of,
    without_override,
)
from perfsvc.judge.verdicts import exit_code, verdicts
