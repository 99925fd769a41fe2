"""The smallest relevant change: by rule, by command, by kind of device."""

from perfsvc.judge import Thresholds, threshold_of, without_override
from perfsvc.model import Case

NAIVE = Case("transpose", "naive", (("n", 64),))
TILED = Case("transpose", "tiled", (("n", 64),))


def rules(option=None):
    """Return the rules of settings, which this package does not import, with a threshold of a command."""
    from perfsvc.config import Settings
    from perfsvc.service.compare.compare import thresholds

    configured = [
        {"change": "2%"},
        {"cases": "transpose/na*", "change": "5%"},
        {"cases": "transpose", "metric": "energy*", "change": "10%"},
        {"cases": "*/tiled[n=64]", "metric": "max_error", "change": "300%"},
    ]
    return thresholds(Settings(thresholds=configured), option)


def test_the_last_rule_that_applies_decides_unless_the_command_has_a_threshold():
    cases = {
        (TILED, "time", None): 0.02,
        (NAIVE, "time", None): 0.05,
        (NAIVE, "energy_j", None): 0.10,
        (Case("dot", "naive"), "energy_j", None): 0.02,
        (NAIVE, "time", 0.03): 0.03,
        (NAIVE, "max_error", None): 1.0,
        (NAIVE, "max_error", 0.03): 1.0,
        (TILED, "max_error", 0.03): 3.0,
    }
    found = {
        (case, metric, option): threshold_of(case, metric, "cuda", rules(option)) for case, metric, option in cases
    }
    assert found == cases
    assert without_override(0.3) == without_override(None) == Thresholds()
    option = rules(0.3)
    assert (without_override(option).rules, without_override(option).override) == (option.rules, None)


def test_without_a_rule_the_kind_of_device_decides():
    for kind, usual in {"cuda": 0.01, "cpu": 0.5, "fake": 0.01}.items():
        for option in (None, Thresholds()):
            assert threshold_of(NAIVE, "time", kind, option) == usual, kind
        assert threshold_of(NAIVE, "time", kind, 0.25) == 0.25


def test_a_rule_that_applies_to_no_case_is_reported():
    from perfsvc.service.compare.compare import unmatched_rules

    assert unmatched_rules(rules(), [NAIVE]) == ["thresholds[4]"]
    assert unmatched_rules(rules(), [NAIVE, TILED]) == unmatched_rules(0.1, [NAIVE]) == []
