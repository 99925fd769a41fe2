"""Cold and warm are two series of one case, never mixed, on the fake device."""

import pytest

BOTH = "caches/both[n=4]"


@pytest.fixture(scope="module")
def twice(new_workplace):
    """A workplace in which a suite with both cache states was measured twice, and how the second run ended."""
    workplace = new_workplace()
    workplace.play({"*": {"seconds": 1e-4}})
    workplace.fake(suite="caches", code=0)
    return workplace, workplace.fake(suite="caches", code=0)


def test_a_case_in_both_cache_states_has_two_marked_rows(twice):
    lines = [line.split()[1:3] for line in twice[1].out.splitlines() if line.startswith("✓")]
    assert [words if words[1] in {"cold", "warm"} else words[:1] for words in lines] == [
        [BOTH, "cold"],
        [BOTH, "warm"],
        ["caches/hot[n=4]", "warm"],
        ["caches/usual[n=4]"],
    ]
    assert "run 2: 4 ok; 0 regressions, 0 improvements, 4 unchanged" in twice[1].out


def test_each_cache_state_has_its_own_measurements_noise_and_verdict(twice):
    workplace, _ = twice
    per_mode = [("cold", 2), ("warm", 2)]
    assert (
        workplace.rows("select cache, count(*) from noise where run_id = 2 group by cache order by cache") == per_mode
    )
    query = "select cache, count(*) from verdicts where run_id = 2 group by cache order by cache"
    assert workplace.rows(query) == per_mode
    ended = workplace("report", "--summary", "--format", "json", code=0)
    caches = [(row["variant"], row["cache"], row["replicas"]) for row in ended.json]
    assert caches == [("both", "cold", 3), ("both", "warm", 3), ("hot", "warm", 3), ("usual", "cold", 3)]


def test_a_history_and_a_comparison_keep_them_apart(twice):
    workplace, _ = twice
    rows = workplace("show", BOTH, "--format", "json", code=0).json
    assert [(row["run"], row["cache"]) for row in rows] == [(1, "cold"), (1, "warm"), (2, "cold"), (2, "warm")]
    assert [bool(row["details"]) for row in rows] == [False, False, True, True]
    for command in (("show", BOTH), ("compare", "1", "2")):
        out = workplace(*command, code=0).out
        assert f"{BOTH} cold " in out
        assert f"{BOTH} warm " in out
        assert "caches/usual[n=4] cold" not in out
    rows = workplace("list", "--suite", workplace.suites / "caches", "--format", "json", code=0).json
    assert [row["caches"] for row in rows] == [["cold", "warm"], ["warm"], ["cold"]]
