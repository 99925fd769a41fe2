"""How much slower a case may get: by rule, by command, by kind of device."""

import pytest

from perfsvc.config import Settings
from perfsvc.judge import threshold_of, without_override
from perfsvc.model import Case
from perfsvc.service.compare.compare import thresholds, unmatched_rules

NAIVE = Case("transpose", "naive", (("n", 64),))
TILED = Case("transpose", "tiled", (("n", 64),))

RULES = Settings(
    thresholds=[
        {"change": "2%"},
        {"cases": "transpose/na*", "change": "5%"},
        {"cases": "transpose", "metric": "energy*", "change": "10%"},
        {"cases": "*/tiled[n=64]", "metric": "max_error", "change": 3},
    ]
)


@pytest.mark.parametrize(
    ("case", "metric", "asked", "found"),
    [
        (TILED, "time", None, 0.02),
        (NAIVE, "time", None, 0.05),
        (NAIVE, "energy_j", None, 0.10),
        (Case("dot", "naive"), "energy_j", None, 0.02),
        (NAIVE, "time", 0.03, 0.03),
        (NAIVE, "max_error", None, 1.0),
        (NAIVE, "max_error", 0.03, 1.0),
        (TILED, "max_error", 0.03, 3.0),
    ],
)
def test_the_last_rule_that_takes_a_series_decides_where_no_command_asks_for_another(case, metric, asked, found):
    assert threshold_of(case, metric, "cuda", thresholds(RULES, asked)) == found


@pytest.mark.parametrize(("kind", "usual"), [("cuda", 0.01), ("cpu", 0.5), ("fake", 0.01)])
def test_without_a_rule_it_is_what_suits_the_kind_of_device(kind, usual):
    for asked in (None, thresholds(Settings())):
        assert threshold_of(NAIVE, "time", kind, asked) == usual
    assert threshold_of(NAIVE, "time", kind, 0.25) == 0.25


def test_what_a_command_asked_for_does_not_last():
    assert without_override(0.3) == without_override(None) == thresholds(Settings())
    asked = thresholds(RULES, 0.3)
    assert (without_override(asked).rules, without_override(asked).override) == (asked.rules, None)


def test_a_rule_that_takes_no_case_is_told_of():
    assert unmatched_rules(thresholds(RULES), [NAIVE]) == ["thresholds[4]"]
    assert unmatched_rules(thresholds(RULES), [NAIVE, TILED]) == unmatched_rules(0.1, [NAIVE]) == []
