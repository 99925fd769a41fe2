import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc import units
from perfsvc.report.tables.history import BLOCKS, sparkline
from perfsvc.units import duration_text, parse_duration, parse_share


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.234e-5, "12.34 µs"),
        (2.7e-4, "270.0 µs"),
        (9.9994e-4, "999.9 µs"),
        (9.99996e-4, "1.000 ms"),
        (0.0031, "3.100 ms"),
        (1.0, "1.000 s"),
        (75.319, "75.32 s"),
        (12345.6, "12350 s"),
        (5e-9, "5.000 ns"),
        (1e-10, "0.1000 ns"),
        (0.0, "0 s"),
        (float("inf"), "inf s"),
    ],
)
def test_seconds_have_four_digits(value: float, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.99e12, "2.99 TB/s"), (1.6e10, "16.0 GB/s"), (999.6e9, "1.00 TB/s"), (12.0, "12.0 B/s"), (0.5, "0.500 B/s")],
)
def test_rates_have_three_digits(value: float, text: str) -> None:
    assert units.rate(value) == text


def test_operations_and_clocks_have_their_units() -> None:
    assert units.flop_rate(51.23e12) == "51.2 TFLOP/s"
    assert units.frequency(1.98e9) == "1.980 GHz"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (512, "512 B"), (233472, "228 KiB"), (50 << 20, "50 MiB"), (85_520_809_984, "79.65 GiB")],
)
def test_sizes_are_binary(value: int, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.05, "+5.0 %"), (1.0, "0.0 %"), (0.95, "-5.0 %"), (1.0004, "0.0 %"), (0.9996, "0.0 %"), (4.0, "+300.0 %")],
)
def test_a_ratio_is_shown_as_a_change(ratio: float, text: str) -> None:
    assert units.percent(ratio) == text


def test_errors_and_counts() -> None:
    assert (units.error(2.1e-7), units.error(0.0)) == ("2.1e-07", "0")
    assert [units.count(number, "regression") for number in range(3)] == [
        "0 regressions",
        "1 regression",
        "2 regressions",
    ]
    assert units.count(8, "unchanged", "unchanged") == "8 unchanged"


@given(st.floats(1e-12, 1e6))
def test_the_text_has_the_number_with_its_digits(value: float) -> None:
    number, unit = units.seconds(value).split(" ")
    scale = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    assert float(number) * scale == pytest.approx(value, rel=5.1e-4)
    assert unit in {"s", "ns"} or 1 <= float(number) < 1000


def test_units_import_nothing_heavy() -> None:
    program = "import sys, perfsvc.units; print({'numpy', 'pandas', 'rich', 'pydantic'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_a_sparkline_has_a_block_a_value_and_gaps() -> None:
    assert sparkline([1.0, 2.0, None, 8.0, float("nan")]) == "▁▂ █ "
    assert sparkline([]) == ""
    assert sparkline([None, None]) == "  "
    assert sparkline([3.0, 3.0]) == "▁▁"


@given(st.lists(st.none() | st.floats(1e-9, 1e9)))
def test_a_sparkline_is_as_long_as_its_history_and_rises_with_it(values: list[float | None]) -> None:
    line = sparkline(values)
    assert len(line) == len(values)
    known = sorted((value, BLOCKS.index(block)) for value, block in zip(values, line, strict=True) if value is not None)
    heights = [height for _, height in known]
    assert heights == sorted(heights)


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [
        (0.0312, "3.1 %"),
        (0.5, "50 %"),
        (0.994, "99 %"),
        (0.999, "a factor of 2"),
        (54.0, "a factor of 55"),
        (479, "a factor of 480"),
    ],
)
def test_a_change_that_doubles_is_a_factor(fraction, shown):
    assert units.change(fraction) == shown


# --- durations and shares that people write ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("90d", 7776000), ("1d2h3m4.5s", 93784.5), ("0.25s", 0.25)],
)
def test_a_duration_is_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1m1h", "1 s", "1e3s", "1S", "٣s", "0s", f"{'9' * 400}s"])
def test_an_invalid_duration_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="write 90s, 1h30m or 90d"):
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


@pytest.mark.parametrize("text", ["1", "1.0", "5", "2.5"])
def test_a_share_from_one_on_needs_its_unit(text):
    with pytest.raises(ValueError, match=rf"'{text}' has no unit, and would be \d+%; write 1% or 0\.01"):
        parse_share(text, below=10)


@pytest.mark.parametrize("text", ["0", "1001%", "-1%", "much", "nan", "inf", ""])
def test_an_invalid_share_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"write 1% or 0\.01"):
        parse_share(text, below=10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("~no-such-user/x", "the home folder ~no-such-user is unknown"),
        ("a\0b", "holds the character NUL"),
    ],
)
def test_a_text_that_can_be_no_path_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        units.parse_path(text)


def test_a_path_may_begin_with_a_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    assert units.parse_path("~/kernels") == Path("/home/ann/kernels")
    assert units.parse_path("kernels") == Path("kernels")
