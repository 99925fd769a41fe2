import numpy as np
import pytest

from perfsvc.suite.points import is_value


@pytest.mark.parametrize("value", [0, -(2**63), 2**63 - 1, np.int32(7), 0.5, "bf16"])
def test_integers_of_64_bits_floats_and_texts_are_values(value):
    assert is_value(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64 + 2, True, None, (1, 2)])
def test_what_no_kernel_or_data_frame_can_hold_is_no_value(value):
    assert not is_value(value)
