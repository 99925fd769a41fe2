"""pitched: what its two layouts hold, and that what lies between the rows stays out of the sums."""

import numpy as np
import pytest

from perfsvc.measure.worker.check import error_of
from perfsvc.model import Status
from perfsvc.suite import Selection
from perfsvc.suite.arrays import make_arrays


@pytest.fixture(scope="module")
def layouts(suite):
    """The smoke point's case, both of its arrays, and the sums."""
    (spec,) = suite.resolve(Selection(("pitched/rows_pitched",)), "smoke")[0]
    inputs, expected = make_arrays(spec)
    return spec, inputs["packed"], inputs["pitched"], expected["sums"]


def test_rows_are_a_multiple_of_512_bytes_apart_in_the_pitched_layout_alone(layouts):
    _, packed, pitched, _ = layouts
    assert [stride % 512 for stride in pitched.strides[:2]] == [0, 0]
    assert all(stride % 128 for stride in packed.strides[:2])


def test_both_layouts_hold_the_same(layouts):
    _, packed, pitched, _ = layouts
    assert np.array_equal(pitched[:, :, : packed.shape[2]], packed)


def test_padding_is_no_more_than_it_takes(suite):
    pitch = suite.benchmark("pitched").names["pitch"]
    assert [pitch(width) for width in (1, 127, 128, 129, 1001)] == [128, 128, 128, 256, 1024]


def test_one_element_of_padding_in_a_sum_is_beyond_the_tolerance(layouts):
    spec, packed, pitched, sums = layouts
    wrong = sums + pitched[:, :, packed.shape[2]]
    assert error_of(wrong, sums).max > spec.tolerance.max


def test_one_element_left_out_of_a_sum_is_beyond_the_tolerance(layouts):
    spec, packed, _, sums = layouts
    wrong = sums.copy()
    wrong.flat[0] -= packed.min()
    assert error_of(wrong, sums).max > spec.tolerance.max


@pytest.mark.slow
def test_every_variant_is_right_with_any_share_of_padding(check):
    for width in (*range(1, 6), 127, 128, 129, 512, 1001):
        found = check("pitched", slices=2, rows=11, width=width)
        assert {result.status for result in found.values()} == {Status.OK}


def test_the_full_points_are_such_that_a_pitch_matters(suite):
    assert all(4 * point["width"] % 128 for point in suite.benchmark("pitched").benchmark.points)
