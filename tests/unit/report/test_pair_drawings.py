"""The drawings of A/B pairs, by their text: no browser."""

import math
import re
from dataclasses import replace

from perfsvc.model import Cause, Measurement, Status
from perfsvc.report.pages.pairs import WIDTH, drawn_change, drawn_pairs, levels, usual
from tests.unit.report.test_confirmations import CASE, confirmation


def processes(seconds):
    return tuple(
        Measurement(CASE, "GPU-1", number, Status.OK if time else Status.FAILED, samples_s=(time,) * bool(time))
        for number, time in enumerate(seconds)
    )


def measured(old=(1e-4, 1.01e-4), new=(1.1e-4, 1.12e-4), **values):
    given = {"ratio": 1.1, "low": 1.08, "high": 1.12, "threshold": 0.01} | values
    return replace(confirmation(Cause.KERNEL), baseline=processes(old), candidate=processes(new), **given)


def numbers(markup, *names):
    """Return the values of some attributes, in the order of the drawing."""
    return [float(value) for value in re.findall(rf'(?:{"|".join(names)})="(-?[\d.]+)"', markup)]


def test_each_pair_goes_from_the_old_level_to_the_new():
    drawing = drawn_pairs(measured())
    hollow = re.findall(r'class="before" cx="([\d.]+)" cy="([\d.]+)"', drawing)
    filled = re.findall(r'class="after" cx="([\d.]+)" cy="([\d.]+)"', drawing)
    assert len(hollow) == len(filled) == 2
    for (old_x, old_y), (new_x, new_y) in zip(hollow, filled, strict=True):
        assert float(old_x) < float(new_x)
        assert float(new_y) < float(old_y)  # slower is higher up
    assert 'aria-label="pair 1: 100.0 µs → 110.0 µs; pair 2: 101.0 µs → 112.0 µs"' in drawing


def test_a_pair_without_a_result_is_left_out():
    assert levels(measured(old=(1e-4, 0), new=(1.1e-4, 1.1e-4))) == [(1e-4, 1.1e-4)]
    assert drawn_pairs(measured(old=(0,), new=(1e-4,))) == ""
    same = drawn_pairs(measured(old=(1e-4,), new=(1e-4,)))
    assert same.count("100.0 µs") == 3  # twice in the description, once at the axis
    assert drawn_change(measured(ratio=None)) == ""


def test_the_change_lies_within_its_interval_and_beyond_the_threshold():
    drawing = drawn_change(measured())
    (start, end) = map(float, re.search(r'class="interval" x1="([\d.]+)".*?x2="([\d.]+)"', drawing).groups())
    change = float(re.search(r'class="change" cx="([\d.]+)"', drawing)[1])
    left, width = map(float, re.search(r'class="band" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawing).groups())
    assert left + width < start < change < end
    assert drawing.count('class="each"') == 2
    assert 'aria-label="change +10.0 %, interval +8.0 % to +12.0 %, threshold 1 %"' in drawing
    assert "threshold 0.5 %" in drawn_change(replace(measured(), threshold=0.005))


def test_nothing_is_drawn_outside_of_the_drawing():
    for ratio in [0.2, 0.99, 1.0, 1.004, 3.0, 1000.0]:
        for interval in [(None, None), (0.9, 1.1), (-math.inf, math.inf), (1.0, 1.0)]:
            low, high = (end and end * ratio for end in interval)
            confirmation = measured(ratio=ratio, low=low, high=high)
            for drawing in (drawn_change(confirmation), drawn_pairs(confirmation)):
                assert all(0 <= x <= WIDTH for x in numbers(drawing, "x", "x1", "x2", "cx")), (ratio, interval)
                assert "nan" not in drawing, (ratio, interval)
                assert "inf" not in drawing.replace("interval", ""), (ratio, interval)


def test_the_usual_level_is_the_median_of_the_processes_with_a_result():
    assert usual(processes((1.0, 0, 3.0, 9.0)), "time") == 3.0
    assert usual(processes((0,)), "time") is None
