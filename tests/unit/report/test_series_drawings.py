"""The numbers and the sparklines of the pages of series, against plain ways to compute them."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.utils import htmlsafe_json_dumps

from perfsvc.report.pages.details import drawn_samples, rounded
from perfsvc.report.pages.render import _script_data
from perfsvc.report.pages.spark import EDGE, HEIGHT, LEAST_RANGE, MOST_VALUES, WIDTH, spark
from perfsvc.text import json_of_numbers


@pytest.mark.parametrize("value", [{"a": "</script><!-- & 'x' \""}, {"µs": [1.5, None]}, ["plain"]])
def test_data_of_scripts_are_escaped_as_jinja_does(value):
    assert _script_data(value) == htmlsafe_json_dumps(value, dumps=json_of_numbers)


def test_measured_numbers_are_rounded_as_their_texts_are():
    values = np.exp(np.random.default_rng(1).uniform(-60, 60, 5000))
    assert rounded(values, 1.0).tolist() == [float(f"{value:.6g}") for value in values.tolist()]


@given(
    st.lists(st.floats() | st.integers(-(10**9), 10**9).map(float), max_size=20),
    st.sampled_from([1.0, 1e3, 1e9, 1e-9, 1e-12, 100.0]),
)
def test_numbers_are_rounded_to_six_digits(numbers, factor):
    values = np.array(numbers, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        scaled = (values * factor).tolist()
        found = rounded(values, factor).tolist()
    assert len(found) == len(numbers)
    for exact, number in zip(scaled, found, strict=True):
        if not math.isfinite(exact):
            assert math.isnan(number)
            continue
        assert number == float(f"{number:.6g}")  # no further digit
        assert number == pytest.approx(float(f"{exact:.6g}"), rel=1.01e-5, abs=0)


def test_samples_are_thinned_and_rounded_replica_by_replica():
    random = np.random.default_rng(0)
    samples = {
        7: [(1e-5 * (1 + 0.1 * random.standard_normal(size))).astype(np.float32) for size in (1000, 3, 1)],
        9: [np.zeros(4, np.float32), np.empty(0, np.float32)],
    }
    found = drawn_samples(samples, 1e6)
    assert list(found) == [7, 9]
    for run, replicas in samples.items():
        for times, drawn in zip(replicas, found[run], strict=True):
            every = -(-len(times) // 200) or 1
            scaled = [1e6 * float(time) for time in times[::every]]
            decimals = 5 - math.floor(math.log10(max(scaled))) if scaled and max(scaled) else 0
            assert drawn.tolist() == pytest.approx([round(time, decimals) for time in scaled], rel=1e-12)
    assert drawn_samples({}, 1e6) == {}


def drawn_lines(values):
    """Return the points of each line of a sparkline as text, computed one by one."""
    shown = values[max(len(values) - MOST_VALUES, 0) :]
    known = [value for value in shown if value is not None]
    center = (min(known) + max(known)) / 2
    half = max((max(known) - min(known)) / 2, LEAST_RANGE / 2 * abs(min(known) + max(known)) / 2) or 1.0
    step = (WIDTH - 2 * EDGE) / max(len(shown) - 1, 1)
    lines = [[]]
    for index, value in enumerate(shown):
        if value is None:
            lines.append([])
        else:
            y = HEIGHT / 2 - (value - center) / half * (HEIGHT / 2 - EDGE)
            lines[-1].append((f"{EDGE + index * step:.1f}", y))
    return [line for line in lines if line]


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=2 * MOST_VALUES))
def test_a_sparkline_has_a_point_for_each_known_value_and_a_gap_for_the_others(values):
    found = re.findall(r'points="([^"]*)"', spark(values))
    expected = drawn_lines(values) if any(value is not None for value in values[-MOST_VALUES:]) else []
    for line, points in zip(found, expected, strict=True):
        for point, (across, down) in zip(line.split(), points, strict=True):
            assert point.split(",")[0] == across
            assert abs(float(point.split(",")[1]) - down) < 0.0501  # rounded to tenths
    for limits in ([1e308, 1.7e308], [-1.7e308, 1.7e308], [0.0, 0.0], [5e-324, 0.0]):
        with np.errstate(over="ignore", invalid="ignore"):
            assert spark(limits).count("<polyline") == 1, limits
