"""Times that a regular expression finds in any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.errors import FormatError
from perfsvc.formats.pattern import parse_pattern, problem_of_pattern

TIME = r"took (?P<time_ms>\S+) ms"


def test_the_matches_of_a_point_are_its_samples_in_the_unit_of_their_group_and_a_metric_has_their_median():
    (result,) = parse_pattern(b"took 1.5 ms\nnoise\ntook 2 ms, took 1e-3 ms", TIME)
    assert result.samples_s == pytest.approx((1.5e-3, 2e-3, 1e-6))
    assert result.point == ()
    for unit, seconds in {"s": 7, "ms": 7e-3, "us": 7e-6, "ns": 7e-9}.items():
        (result,) = parse_pattern(b"7", f"(?P<time_{unit}>.+)")
        assert result.samples_s == pytest.approx((seconds,)), unit
    (result,) = parse_pattern(b"1 s 10 kB\n2 s 1,000 kB\n3 s 20 kB", r"(?P<time_s>\d) s (?P<kb>\S+) kB", ["kb"])
    assert result.metrics == {"kb": 20.0}


def test_other_groups_are_axes():
    text = b"n=10 alg=ring t=1\nn=20 alg=ring t=2\nn=10 alg=ring t=3"
    results = parse_pattern(text, r"^n=(?P<n>\d+) alg=(?P<alg>\w+) t=(?P<time_s>\d+)$")
    assert [(result.point, result.samples_s) for result in results] == [
        ((("n", 10), ("alg", "ring")), (1.0, 3.0)),
        ((("n", 20), ("alg", "ring")), (2.0,)),
    ]
    results = parse_pattern(b"1 s\n2 s at 5", r"(?P<time_s>\d) s(?: at (?P<n>\d))?")
    assert [result.point for result in results] == [(), (("n", 5),)]  # without a group that took no part


def test_a_text_without_a_match_and_a_time_that_is_no_number_above_zero_are_errors():
    for text in ("", "hello", "took ms"):
        with pytest.raises(FormatError, match="the report: nothing matches"):
            parse_pattern(text.encode(), TIME, name="the report")
    no_number = dict.fromkeys(("nan", "x", "inf", "-inf", "1e999"), "no number")
    for time, why in ({"0": "no time", "-1": "no time"} | no_number).items():
        with pytest.raises(FormatError, match=f"the group 'time_ms' is '{time}', which is {why}"):
            parse_pattern(f"took {time} ms".encode(), TIME)


@given(st.binary(max_size=200))
def test_no_text_raises_anything_else(content):
    try:
        results = parse_pattern(content, r"(?P<time_s>\S+)(?P<axis>.)?")
    except FormatError:
        return
    assert all(0 < sample < float("inf") for result in results for sample in result.samples_s)


def test_an_expression_without_one_time_cannot_be_used():
    for pattern, metrics, problem in [
        ("(", (), "missing ), unterminated subpattern"),
        ("[0-9]+", (), "it needs one group with the time"),
        ("(?P<time_s>.)(?P<time_ms>.)", (), "and has 2"),
        (TIME, ("kb",), "it has no group for the metric 'kb'"),
    ]:
        assert problem in problem_of_pattern(pattern, metrics), (pattern, metrics, problem)
    assert problem_of_pattern(r"(?P<time_s>.)(?P<kb>.)", ["kb"]) == ""
