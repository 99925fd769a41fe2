"""Cold and warm are two series of one case, never mixed, on the fake device."""

BOTH = "caches/both[n=4]"


def test_a_case_in_both_cache_states_has_two_series(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(suite="caches", code=0)
    out = perfsvc.fake(suite="caches", code=0).out
    assert [line.split()[1:3] for line in out.splitlines() if line.startswith("✓")][:2] == [
        [BOTH, "cold"],
        [BOTH, "warm"],
    ]
    assert "run 2: 4 ok; 0 regressions, 0 improvements, 4 unchanged" in out
    judged = "select cache, count(noise_within), count(verdict) from levels join series on series.id = series_id"
    rows = perfsvc.rows(f"{judged} where run_id = 2 and metric = 'time' group by cache order by cache")
    assert rows == [("cold", 2, 2), ("warm", 2, 2)]
    ended = perfsvc("report", "--summary", "--format", "json", code=0)
    caches = [(row["variant"], row["cache"], row["replicas"]) for row in ended.json]
    assert caches == [("both", "cold", 3), ("both", "warm", 3), ("hot", "warm", 3), ("usual", "cold", 3)]
    rows = perfsvc("show", BOTH, "--format", "json", code=0).json
    assert [(row["run"], row["cache"]) for row in rows] == [(1, "cold"), (1, "warm"), (2, "cold"), (2, "warm")]
    for command in (("show", BOTH), ("compare", "1", "2")):
        out = perfsvc(*command, code=0).out
        assert f"{BOTH} cold " in out
        assert f"{BOTH} warm " in out
        assert "caches/usual[n=4] cold" not in out
    rows = perfsvc("list", "--suite", perfsvc.suites / "caches", "--format", "json", code=0).json
    assert [row["caches"] for row in rows] == [["cold", "warm"], ["warm"], ["cold"]]
