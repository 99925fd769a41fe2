import functools

import numpy as np
import pytest

from perfsvc.suite.points import is_value
from perfsvc.suite.values import Problem, evaluate, invoke, line_of, nearest

NAMES = {"n": 8, "TILE": 4}


def test_a_function_gets_what_it_asks_for_everything_if_it_has_keywords_and_its_defaults_otherwise():
    assert evaluate((1, 2), NAMES, "grid", 3) == (1, 2)
    assert evaluate(lambda n, more=1: n + more, NAMES, "grid", 3) == 9
    assert evaluate(lambda **names: names, NAMES, "grid", 3) == NAMES
    assert invoke(lambda generator, n: (generator, n), NAMES, "inputs", 3, "rng") == ("rng", 8)


def test_partial_functions_and_wrapped_ones_keep_their_names():
    @functools.wraps(nearest)
    def wrapper(*args):
        return nearest(*args)

    assert evaluate(functools.partial(lambda n, k: n * k, k=2), NAMES, "grid", 3) == 16
    assert line_of(wrapper, 0) == nearest.__code__.co_firstlineno


def test_an_error_is_a_problem_at_the_line_that_raised_or_that_named_a_builtin_with_the_values_it_had():
    def broken(n):
        return n / 0

    with pytest.raises(Problem, match=r"grid raised ZeroDivisionError: division by zero \(at n=8, TILE=4\)") as caught:
        evaluate(broken, NAMES, "grid", 3)
    assert caught.value.line == broken.__code__.co_firstlineno + 1
    with pytest.raises(Problem, match="grid raised TypeError") as caught:
        evaluate(len, {"obj": 3}, "grid", 7)
    assert caught.value.line == 7


def test_the_cure_is_the_nearest_name_or_all_names():
    assert nearest("TILES", NAMES) == "did you mean 'TILE'?"
    assert nearest("zzz", NAMES) == "known names: n, TILE"
    assert nearest("zzz", ()) == "there are no names to ask for"


def test_integers_of_64_bits_floats_and_texts_are_values_of_an_axis_and_nothing_else_is():
    assert all(map(is_value, (0, -(2**63), 2**63 - 1, np.int32(7), 0.5, "bf16")))
    assert not any(map(is_value, (2**63, -(2**63) - 1, 2**64 + 2, True, None, (1, 2))))
