import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perfsvc.measure.worker import check as errors
from perfsvc.measure.worker.check import error_of, within, worst_of, wrong
from perfsvc.model import Error, Tolerance

FINITE = st.floats(-1e6, 1e6, width=32)


def naive(out, ref):
    rms = np.sqrt(np.mean(ref.astype(float) ** 2))
    errors = [
        0.0 if o == r else abs(float(o) - float(r)) / max(abs(float(r)), rms)
        for o, r in zip(out.ravel(), ref.ravel(), strict=True)
    ]
    return max(errors), sum(errors) / len(errors)


@given(arrays(np.float32, 37, elements=FINITE), arrays(np.float64, 37, elements=st.floats(-1e6, 1e6)))
def test_the_error_equals_a_naive_computation(out, ref):
    ref[0] = 1.0
    error = error_of(out, ref)
    assert (error.max, error.mean) == pytest.approx(naive(out, ref), rel=1e-12)


def test_the_error_does_not_depend_on_the_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    ref = rng.standard_normal(1000)
    out = (ref + rng.standard_normal(1000) * 1e-3).astype(np.float32)
    whole = error_of(out, ref)
    monkeypatch.setattr(errors, "CHUNK", 7)
    chunked = error_of(out, ref)
    assert (chunked.max, chunked.mean) == pytest.approx((whole.max, whole.mean), rel=1e-12)


def test_a_result_that_is_not_finite_is_infinitely_wrong():
    for bad in (np.nan, np.inf, -np.inf):
        out, ref = np.array([1, bad, 3], np.float32), np.array([1.0, 2.0, 3.0])
        assert error_of(out, ref).max == np.inf
        assert worst_of(out, ref) == 1


def test_an_equal_result_has_no_error_whatever_its_values():
    ref = np.array([np.inf, -np.inf, 0.0, 5e-324, 1e308])
    assert error_of(ref.copy(), ref) == error_of(np.append(ref, np.nan), np.append(ref, np.nan)) == Error(0.0, 0.0)


def test_a_reference_that_is_not_finite_excuses_no_other_element():
    ref = np.array([np.inf, 1.0, 2.0, -np.inf, np.nan])
    right = ref.astype(np.float32)
    assert error_of(right, ref).max == 0
    for index, bad in enumerate((-np.inf, 42.0, 42.0, np.inf, 0.0)):
        out = right.copy()
        out[index] = bad
        assert error_of(out, ref).max > 1
        assert worst_of(out, ref) == index


def test_huge_references_do_not_overflow_into_zero_errors():
    ref = np.array([1e300, 2e300, 1.0])
    assert error_of(np.array([1e300, 2.2e300, 1.0]), ref).max == pytest.approx(0.1)
    assert error_of(np.array([3e300, 2e300, 1.0]), ref).max > 0.5


def test_the_imaginary_part_counts():
    ref = np.array([1 + 1j, 2 + 2j])
    assert error_of(ref.astype(np.complex64), ref).max == 0
    assert error_of(ref.real.astype(np.complex64), ref).max > 0.3


def test_integers_beyond_float64_are_distinguished():
    ref = np.array([2**62, 5], np.int64)
    assert error_of(ref, ref).max == 0
    assert error_of(ref + np.array([1, 0]), ref).max > 0


def test_a_reference_of_zeros_allows_only_zeros():
    assert error_of(np.zeros(3, np.float32), np.zeros(3)).max == 0
    assert error_of(np.array([0, 1e-30, 0], np.float32), np.zeros(3)).max == np.inf


def test_integers_are_compared_exactly():
    assert error_of(np.array([2**31 - 1], np.int32), np.array([2**31 - 1], np.int64)).max == 0
    assert error_of(np.array([2**31 - 2], np.int32), np.array([2**31 - 1], np.int64)).max > 0


def test_the_worst_element_is_the_first_with_the_largest_error():
    ref = np.array([[1.0, 2.0], [4.0, 4.0]])
    out = np.array([[1.0, 2.5], [3.0, 5.0]])
    assert worst_of(out, ref) == 2


def test_a_wrong_result_names_the_element_and_the_tolerance():
    ref = np.arange(12.0).reshape(3, 4)
    out = ref.astype(np.float32)
    out[2, 1] = -9
    error = wrong("c", out, ref, Tolerance(1e-6, 1e-7))
    assert error.what == (
        "wrong result: c[2, 1] is -9, the reference says 9 (error maximum 2, mean 0.167; allowed 1e-06 and 1e-07)"
    )
    assert "widen the tolerance" in error.cure


def test_poison_left_in_the_output_is_reported_as_unwritten():
    out = np.ones(4, np.float32)
    out[1:] = np.full(3, 0xFFFFFFFF, np.uint32).view(np.float32)
    cure = wrong("c", out, np.ones(4), Tolerance(1, 1)).cure
    assert "75.00% of the elements are NaN" in cure
    assert "never written" in cure


def test_maximum_and_mean_each_have_a_tolerance():
    tolerance = Tolerance(max=1e-2, mean=1e-4)
    assert within(Error(1e-2, 1e-4), tolerance)
    for error in (Error(1.1e-2, 1e-4), Error(1e-2, 1.1e-4), Error(np.nan, 0.0), Error(0.0, np.nan)):
        assert not within(error, tolerance)
