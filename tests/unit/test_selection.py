import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.errors import UsageError
from perfsvc.model import Case
from perfsvc.selection import Selection, choose

CASES = [
    Case(benchmark, variant, (("n", n), ("dtype", dtype)))
    for benchmark, variants in {
        "transpose": ("naive", "tiled-TILE32-PAD0", "tiled-TILE32-PAD1"),
        "matmul": ("naive", "tiled-TILE16"),
    }.items()
    for variant in variants
    for n in (1024, 4096)
    for dtype in ("f32", "f64")
]
ELSEWHERE = [Case("transpose", "naive", (("n", 31), ("dtype", "f32")))]
NAMES = st.text("abXY01_.+-", min_size=1, max_size=8)


def ids(*select, exclude=(), cases=CASES, broken=()):
    return [case.id for case in choose(Selection(select, exclude), cases, ELSEWHERE, broken)]


def test_nothing_selected_is_everything():
    assert ids() == [case.id for case in CASES]


def test_a_glob_selects_benchmarks_variants_and_points():
    counts = {
        "transpose": 12,
        "trans*": 12,
        "*": 20,
        "*/naive": 8,
        "transpose/tiled*": 8,
        "transpose/tiled-TILE32-PAD?": 8,
        "*/naive[n=4096]": 4,
        "*[n=4*]": 10,
        "*[dtype=f32, n=4096]": 5,
        "transpose/naive[n=1024,dtype=f32]": 1,
    }
    assert {glob: len(ids(glob)) for glob in counts} == counts


def test_several_globs_are_a_union_in_the_order_of_the_suite():
    assert ids("matmul/naive", "transpose/naive") == ids("*/naive")


def test_exclude_comes_after_select():
    assert ids("transpose", exclude=("*/tiled*", "*[n=1024]", "*[dtype=f64]")) == ["transpose/naive[n=4096,dtype=f32]"]


def test_the_full_name_of_each_case_selects_the_case():
    assert [ids(case.id) for case in CASES] == [[case.id] for case in CASES]


def test_a_dot_or_plus_stands_for_itself():
    cases = [Case("a.b", "c+d"), Case("aXb", "ccd")]
    assert ids("a.b/c+d", cases=cases) == ["a.b/c+d"]


HALF_BRACKETS = ("transpose/*4096]", "transpose/*[n=4096", "*[n=4096]*", "a[n=1", "a[n=1]b")
NO_NAMES = ("", "/", "a/", "/b", "a/b/c", "a[n]", "a[n=]", "a[=1]", "a[n=1][n=2]", "transpos[a-z]")
SELECTS_NOTHING = {
    "*f32": "",  # a star stays within its part of the name
    "transpose/*f32*": "",
    "transpose/*n=4096*": "",
    "*naive": "",
    "*[rows=*]": "",
    "transpose/tilde": "transpose/tiled-TILE32-PAD",
    "@@@@": "perfsvc list",
    "transpose[n=31]": "transpose/naive[n=31,dtype=f32]",  # it is measured elsewhere
}
"""Globs that match no case here, with a part of the cure."""


def test_a_glob_that_matches_nothing_is_a_usage_error_with_similar_names():
    for glob in (*HALF_BRACKETS, *NO_NAMES):
        with pytest.raises(UsageError, match="can match no case"):
            ids("matmul", glob)
    for glob, cure in SELECTS_NOTHING.items():
        with pytest.raises(UsageError, match=f"'{re.escape(glob)}' selects no case") as caught:
            ids("matmul", glob)
        assert cure in caught.value.cure


def test_everything_excluded_is_a_usage_error():
    with pytest.raises(UsageError, match="every selected case is excluded"):
        ids("transpose", exclude=("*",))


@pytest.mark.parametrize(("others", "cure"), [(ELSEWHERE, "--points"), ((), "only=")])
def test_a_suite_without_a_case_at_these_points_is_a_usage_error(others, cure):
    with pytest.raises(UsageError, match="no case at these points") as caught:
        choose(Selection(), (), others, ())
    assert cure in caught.value.cure
    assert choose(Selection(), (), others, ["broken"]) == ()


def test_a_glob_for_a_broken_benchmark_may_match_nothing():
    assert ids("reduce/*", "matmul/naive[n=1024,dtype=f32]", broken=["reduce"]) == ["matmul/naive[n=1024,dtype=f32]"]


@settings(max_examples=30)
@given(st.lists(st.builds(Case, NAMES, NAMES, st.just(()) | st.tuples(st.tuples(st.just("n"), NAMES))), unique=True))
def test_every_id_selects_its_own_case(cases):
    for case in cases:
        assert case in choose(Selection((case.id,)), cases, (), ())


@given(st.sampled_from(CASES), st.data())
def test_an_id_with_any_part_replaced_by_a_star_still_selects_its_case(case, data):
    start = data.draw(st.integers(0, len(case.variant)))
    glob = f"{case.benchmark}/{case.variant[:start]}*[{case.point_text}]"
    assert case in choose(Selection((glob,)), CASES, (), ())
