"""A run with a time budget, to exact numbers on the fake device."""

import contextlib
import sqlite3

CASES = [f"scale/{variant}[n=100]" for variant in ("alpha", "beta", "gamma")]
ROOM_FOR_ONE = ("--seconds", "100", "--limit", "200", "--budget", "5m")
"""A case that was never measured is assumed to need its time cap in each of two replicas."""


def test_cases_over_budget_are_named_and_a_generous_budget_buys_further_replicas(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    ended = perfsvc.fake(*ROOM_FOR_ONE, "--format", "json", code=0)
    assert [(row["case"], row["replicas"]) for row in ended.json["results"]] == [(CASES[0], 3)]
    over_budget = ended.json["over_budget"]
    assert [(row["case"], row["device"], row["cache"]) for row in over_budget] == [
        (case, "FAKE-0", "cold") for case in CASES[1:]
    ]
    reason = "2 replicas of about 1e+02 s did not fit the budget of 300 s"
    assert {row["reason"] for row in over_budget} == {reason}
    ended = perfsvc.fake("--budget", "1h", "--replicas", "2", "--format", "json", code=0)
    assert [row["replicas"] for row in ended.json["results"]] == [4, 4, 4]


def test_cases_never_measured_come_before_measured_ones(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake("--exclude", "*/beta", "--replicas", "1", code=0)
    with contextlib.closing(sqlite3.connect(perfsvc.database)) as connection, connection:
        connection.execute("update measurements set wall_s = 10")
    ended = perfsvc.fake("--budget", "25s", "--replicas", "2", "--format", "json", code=0)
    assert [(row["case"], row["replicas"]) for row in ended.json["results"]] == [(CASES[1], 2)]
    assert [row["case"] for row in ended.json["over_budget"]] == [CASES[0], CASES[2]]
    assert "2 replicas of about 10 s did not fit the budget of 25 s" in {
        row["reason"] for row in ended.json["over_budget"]
    }


def test_a_case_over_budget_is_not_missing_and_still_expected_later(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)
    ended = perfsvc.fake("--budget", "0.001s", "--format", "json", code=4)
    assert ended.json["results"] == []
    assert [row["case"] for row in ended.json["over_budget"]] == CASES
    assert perfsvc.rows("select count(verdict) from levels where run_id = 2") == [(0,)]
    assert "run 3: 3 over budget" in perfsvc.fake("--budget", "0.001s", code=4).out
    assert "3 unchanged" in perfsvc.fake(code=0).out
