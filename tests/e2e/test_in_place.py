"""Sorts in place on the CPU device: each sample sorts what the inputs were, in runs, A/B pairs and comparisons."""

from tests.e2e.history import git

SORTED_S = 1e-4
"""More than the time of any case on an array that is sorted already."""


def test_a_sort_in_place_is_timed_on_unsorted_data_and_its_slowdown_is_found(perfsvc):
    suite = perfsvc.own("in_place")
    git(suite, "init", "-q", "-b", "main")
    places = ("--suite", suite, "--device", "cpu", "--format", "json")

    def commit(subject):
        git(suite, "add", "-A")
        git(suite, "commit", "-q", "-m", subject)

    commit("a sort")
    rows = perfsvc("run", *places, code=0).json["results"]
    assert len(rows) == 7
    assert {row["variant"]: row["median_s"] for row in rows if row["median_s"] < SORTED_S} == {}
    source = suite / "sort.cu"
    slow = "moved = true; for (volatile int round = 0; round < 300; ++round) {}"
    source.write_text(source.read_text().replace("moved = true;\n            }", f"{slow}\n            }}"))
    commit("each exchange is slower")
    select = ("--select", "in_place/kernel")
    run = perfsvc("run", *places, *select, "--confirm", code=1).json
    compared = perfsvc("compare", "--interleaved", "HEAD~1", "HEAD", *places, *select, code=1).json
    for row in (*run["confirmations"], *compared["verdicts"]):
        assert (row["verdict"], row["cause"], row["ratio"] > 3) == ("regression", "kernel", True)
    assert len(run["confirmations"]) == len(compared["verdicts"]) == 2  # cold and warm
