"""The smallest relevant change: by rule, by command, by kind of device."""

import pytest

from perfsvc.config import Settings
from perfsvc.judge import default_threshold, threshold_of, without_override
from perfsvc.model import Case
from perfsvc.service.compare.compare import thresholds, unmatched_rules

NAIVE = Case("transpose", "naive", (("n", 64),))
TILED = Case("transpose", "tiled", (("n", 64),))

RULES = Settings(
    thresholds=[
        {"change": "2%"},
        {"cases": "transpose/na*", "change": "5%"},
        {"cases": "transpose", "metric": "energy*", "change": "10%"},
        {"cases": "*/tiled[n=64]", "metric": "max_error", "change": "300%"},
    ]
)


@pytest.mark.parametrize(
    ("case", "metric", "option", "expected"),
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
def test_the_last_rule_that_applies_decides_unless_the_command_has_a_threshold(case, metric, option, expected):
    assert threshold_of(case, metric, "cuda", thresholds(RULES, option)) == expected


@pytest.mark.parametrize(("kind", "usual"), [("cuda", 0.01), ("cpu", 0.5), ("fake", 0.01)])
def test_without_a_rule_the_kind_of_device_decides(kind, usual):
    for option in (None, thresholds(Settings())):
        assert threshold_of(NAIVE, "time", kind, option) == usual
    assert threshold_of(NAIVE, "time", kind, 0.25) == 0.25


def test_the_threshold_of_a_command_can_be_removed():
    assert without_override(0.3) == without_override(None) == thresholds(Settings())
    option = thresholds(RULES, 0.3)
    assert (without_override(option).rules, without_override(option).override) == (option.rules, None)


def test_a_rule_that_applies_to_no_case_is_reported():
    assert unmatched_rules(thresholds(RULES), [NAIVE]) == ["thresholds[4]"]
    assert unmatched_rules(thresholds(RULES), [NAIVE, TILED]) == unmatched_rules(0.1, [NAIVE]) == []


def test_the_cpu_device_has_a_wide_threshold_and_the_fake_device_that_of_a_gpu() -> None:
    assert (default_threshold("cuda"), default_threshold("fake"), default_threshold("cpu")) == (0.01, 0.01, 0.50)


def test_an_unknown_kind_of_device_has_no_threshold() -> None:
    with pytest.raises(ValueError, match="'tpu': the kinds are cpu, cuda, fake"):
        default_threshold("tpu")
