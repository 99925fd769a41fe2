import functools

import pytest

from perfsvc.suite.values import Problem, evaluate, invoke, line_of, nearest, unknown_names

NAMES = {"n": 8, "TILE": 4}


def test_a_value_that_is_no_function_is_returned():
    assert evaluate((1, 2), NAMES, "grid", 3) == (1, 2)


def test_a_function_is_given_what_it_asks_for_by_name():
    assert evaluate(lambda TILE, n: (n, TILE), NAMES, "grid", 3) == (8, 4)  # noqa: N803 - a -D parameter


def test_defaults_hold_for_names_that_are_not_known():
    assert evaluate(lambda n, more=1: n + more, NAMES, "grid", 3) == 9


def test_a_function_with_keywords_gets_everything():
    assert evaluate(lambda **names: names, NAMES, "grid", 3) == NAMES


def test_the_first_arguments_are_passed_by_position():
    assert invoke(lambda generator, n: (generator, n), NAMES, "inputs", 3, "rng") == ("rng", 8)


def test_partial_functions_and_wrapped_ones_keep_their_names():
    @functools.wraps(nearest)
    def wrapper(*args):
        return nearest(*args)

    assert evaluate(functools.partial(lambda n, k: n * k, k=2), NAMES, "grid", 3) == 16
    assert line_of(wrapper, 0) == nearest.__code__.co_firstlineno


def test_a_function_without_a_signature_is_a_problem():
    (problem,) = unknown_names(dict, NAMES, "grid", 3)
    assert (problem.line, problem.cure) == (3, "wrap it in a lambda")


def test_an_error_in_a_function_is_a_problem_at_the_line_that_raised_with_the_values_it_had():
    def broken(n):
        return n / 0

    with pytest.raises(Problem, match=r"grid raised ZeroDivisionError: division by zero \(at n=8, TILE=4\)") as caught:
        evaluate(broken, NAMES, "grid", 3)
    assert caught.value.line == broken.__code__.co_firstlineno + 1


def test_an_error_in_a_builtin_is_a_problem_at_the_line_that_named_it():
    with pytest.raises(Problem, match="grid raised TypeError") as caught:
        evaluate(len, {"obj": 3}, "grid", 7)
    assert caught.value.line == 7


def test_the_cure_is_the_nearest_name_or_all_names():
    assert nearest("TILES", NAMES) == "did you mean 'TILE'?"
    assert nearest("zzz", NAMES) == "known names: n, TILE"
    assert nearest("zzz", ()) == "there are no names to ask for"
