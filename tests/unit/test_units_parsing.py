"""Parse durations and shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.units import duration_text, parse_duration, parse_share


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("90d", 7776000), ("1d2h3m4.5s", 93784.5), ("0.25s", 0.25)],
)
def test_a_duration_is_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1m1h", "1 s", "1e3s", "1S", "٣s", "0s", f"{'9' * 400}s"])
def test_an_invalid_duration_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="write 90s, 20m or 1h30m"):
        parse_duration(text)


def test_zero_is_a_duration_only_if_allowed():
    assert parse_duration("0s", zero=True) == 0


@given(st.integers(min_value=1, max_value=10**9))
def test_a_formatted_duration_parses_to_the_same_seconds(seconds):
    assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (60, "1m"), (90, "1m30s"), (7776000, "90d"), (0.15, "0.15s")])
def test_a_duration_is_formatted_with_its_units(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(("text", "fraction"), [("3%", 0.03), ("0.03", 0.03), ("250%", 2.5)])
def test_a_share_is_a_fraction(text, fraction):
    assert parse_share(text, below=10) == pytest.approx(fraction)


@pytest.mark.parametrize("text", ["0", "1001%", "-1%", "much", "nan", "inf", ""])
def test_an_invalid_share_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"write 1% or 0\.01"):
        parse_share(text, below=10)
