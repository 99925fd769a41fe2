from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc import units
from perfsvc.report.tables.history import BLOCKS, sparkline
from perfsvc.units import duration_text, parse_duration, parse_share

SHOWN = {
    units.seconds: {
        1.234e-5: "12.34 µs",
        2.7e-4: "270.0 µs",
        9.9994e-4: "999.9 µs",
        9.99996e-4: "1.000 ms",
        0.0031: "3.100 ms",
        1.0: "1.000 s",
        75.319: "75.32 s",
        12345.6: "12350 s",
        5e-9: "5.000 ns",
        1e-10: "0.1000 ns",
        0.0: "0 s",
        float("inf"): "inf s",
    },
    units.rate: {2.99e12: "2.99 TB/s", 1.6e10: "16.0 GB/s", 999.6e9: "1.00 TB/s", 12.0: "12.0 B/s", 0.5: "0.500 B/s"},
    units.flop_rate: {51.23e12: "51.2 TFLOP/s"},
    units.frequency: {1.98e9: "1.980 GHz"},
    units.size: {0: "0 B", 512: "512 B", 233472: "228 KiB", 50 << 20: "50 MiB", 85_520_809_984: "79.65 GiB"},
    units.percent: {1.05: "+5.0 %", 1: "0.0 %", 0.95: "-5.0 %", 1.0004: "0.0 %", 0.9996: "0.0 %", 4: "+300.0 %"},
    units.error: {2.1e-7: "2.1e-07", 0.0: "0"},
    units.change: {
        0.0312: "3.1 %",
        0.5: "50 %",
        0.994: "99 %",
        0.999: "a factor of 2",
        54.0: "a factor of 55",
        479: "a factor of 480",
    },
    duration_text: {0: "0s", 60: "1m", 90: "1m30s", 7776000: "90d", 0.15: "0.15s"},
}


def test_each_value_is_shown_with_its_digits_and_its_unit() -> None:
    assert {show: {value: show(value) for value in table} for show, table in SHOWN.items()} == SHOWN


def test_counts_are_in_words() -> None:
    assert units.count(0, "regression") == "0 regressions"
    assert units.count(1, "regression") == "1 regression"
    assert units.count(8, "unchanged", "unchanged") == "8 unchanged"


@given(st.floats(1e-12, 1e6))
def test_the_text_has_the_number_with_its_digits(value: float) -> None:
    number, unit = units.seconds(value).split(" ")
    scale = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    assert float(number) * scale == pytest.approx(value, rel=5.1e-4)
    assert unit in {"s", "ns"} or 1 <= float(number) < 1000


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


# --- durations and shares that people write ---------------------------------------------------------------------------


def test_a_duration_is_seconds():
    seconds = {"90s": 90, "20m": 1200, "1h30m": 5400, "90d": 7776000, "1d2h3m4.5s": 93784.5, "0.25s": 0.25}
    seconds |= {"0.5h": 1800, "1h1m1s": 3661, "0h5m": 300}
    assert {text: parse_duration(text) for text in seconds} == seconds
    assert parse_duration("0s", zero=True) == 0


def refused(parse, texts):
    """Return the message of the ValueError with which a function refuses each text."""
    messages = {}
    for text in texts:
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is what is returned
            parse(text)
        messages[text] = str(error.value)
    return messages


def test_an_invalid_duration_is_refused_with_an_example():
    texts = ("", "5", "s", "-1s", "1m1h", "1 s", "1e3s", "1S", "٣s", "0s", f"{'9' * 400}s")
    messages = refused(parse_duration, texts)
    assert {text for text in texts if "write 90s, 1h30m or 90d" not in messages[text]} == set()


@given(st.integers(min_value=1, max_value=10**9))
def test_a_formatted_duration_parses_to_the_same_seconds(seconds):
    assert parse_duration(duration_text(seconds)) == seconds


def share(text):
    return parse_share(text, below=10)


def test_a_share_is_a_fraction():
    assert [share(text) for text in ("3%", "0.03", "250%")] == pytest.approx([0.03, 0.03, 2.5])


def test_an_invalid_share_is_refused_with_an_example():
    messages = refused(share, ("0", "1001%", "-1%", "much", "nan", "inf", "", "1", "1.0", "5", "2.5"))
    assert {text for text, message in messages.items() if "write 1% or 0.01" not in message} == set()
    without_unit = {text for text, message in messages.items() if f"'{text}' has no unit, and would be " in message}
    assert without_unit == {"1", "1.0", "5", "2.5"}


def test_a_text_that_can_be_no_path_is_refused():
    empty, unknown, nul = refused(units.parse_path, ("", "~no-such-user/x", "a\0b")).values()
    assert "it is empty" in empty
    assert "the home folder ~no-such-user is unknown" in unknown
    assert "holds the character NUL" in nul


def test_a_path_may_begin_with_a_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    assert units.parse_path("~/kernels") == Path("/home/ann/kernels")
    assert units.parse_path("kernels") == Path("kernels")
