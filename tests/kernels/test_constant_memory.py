"""constant_memory: that its indices are what they are called, and that no coefficient can be taken for another."""

import numpy as np
import pytest

from perfsvc.measure.worker.check import error_of
from perfsvc.suite import Selection

WARP = 32


@pytest.fixture(scope="module")
def names(suite):
    """What its bench.py defines."""
    return suite.benchmark("constant_memory").names


def pieces_of_warps(names, index, n):
    """How many pieces of the curve the values of each whole warp lie on."""
    x = names["inputs"](np.random.default_rng(7), index, n)["x"]
    piece = np.floor(x * names["PIECES"])[: n // WARP * WARP].reshape(-1, WARP)
    return np.array([len(set(warp)) for warp in piece])


def test_a_uniform_index_is_equal_within_nearly_every_warp(names):
    several = pieces_of_warps(names, "uniform", 100_000) > 1
    assert several.sum() <= names["PIECES"] - 1


def test_a_divergent_index_brings_every_piece_into_nearly_every_warp(names):
    every = pieces_of_warps(names, "divergent", 100_000) == names["PIECES"]
    assert every.mean() > 0.99


def test_the_reference_is_the_polynomial_of_the_piece(names):
    x = np.array([0.0, 0.1, 0.25, 0.49, 0.5, 0.74, 0.75, 1 - 2**-24])
    coefficients = names["COEFFICIENTS"].astype(np.float64)
    expected = [np.polynomial.Polynomial(coefficients[int(4 * each)])(4 * each % 1) for each in x]
    assert names["reference"](x, coefficients) == pytest.approx(expected, rel=1e-14)


def test_one_coefficient_taken_for_its_neighbour_is_beyond_the_tolerance(suite, names):
    benchmark = suite.benchmark("constant_memory").benchmark
    for index in ("uniform", "divergent"):
        made = benchmark.inputs(np.random.default_rng(7), index, benchmark.smoke["n"])
        x, coefficients = made["x"].astype(np.float64), made["coefficients"].astype(np.float64)
        right = benchmark.reference(x, coefficients)
        for place in np.ndindex(coefficients.shape):
            wrong = coefficients.copy()
            wrong[place] += 1 / wrong.size
            assert error_of(benchmark.reference(x, wrong), right).max > benchmark.tolerance.max


def test_the_arguments_are_all_coefficients_in_their_order(suite, names):
    (spec,) = suite.resolve(Selection(("constant_memory/argument",)), "smoke")[0]
    values = [arg.value for arg in spec.steps[0].args if arg.kind == "scalar" and arg.dtype == "float32"]
    assert values == names["COEFFICIENTS"].ravel().tolist()
