"""Variants whose steps are captured in a CUDA graph, on the CPU device and on the fake device."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "measure-a-cuda-graph.md"
GRAPH = "smooth/graph[n=10007]"
LAUNCHES = 10


def test_every_kind_of_graph_is_right_and_replays_have_the_sum_of_their_steps(perfsvc):
    ended = perfsvc.cpu("--replicas", "2", "--samples", "5", "--format", "json", suite="graphs", code=0)
    rows = {row["variant"]: row for row in ended.json["results"]}
    assert set(rows) == {"launches", "graph", "cold-steps"}
    for row in rows.values():
        assert (row["status"], row["reason"]) == ("ok", "")
        assert row["median_s"] > 0
        assert row["max_error"] < 1e-5
    query = "select distinct variant from metrics join measurements on measurements.id = measurement_id "
    query += "join cases on cases.id = case_id where metrics.name = 'steps_s' and value > 0"
    assert perfsvc.rows(query) == [("graph",)]
    assert "steps_s" in perfsvc("show", GRAPH, code=0).out


def test_the_list_says_which_cases_use_a_graph(perfsvc):
    select = ("list", "--suite", perfsvc.suites / "graphs", "--points", "smoke")
    assert [row["graph"] for row in perfsvc(*select, "--format", "json", code=0).json] == ["", "replay", "cold steps"]
    shown = perfsvc(*select, code=0).out
    assert re.search(r"launches\S+\s+kernel  ", shown)
    assert re.search(r"graph\[\S+\s+kernel, graph  ", shown)
    assert "kernel, graph (cold steps)" in shown


def test_a_slower_graph_is_confirmed_as_a_graph_and_both_graphs_are_profiled(perfsvc):
    suite = perfsvc.own("graphs")
    perfsvc.play({"*": {"seconds": 1e-5}})
    select = ("--select", "smooth/graph", "--replicas", "2")
    perfsvc.fake(*select, suite=suite, code=0)
    ((old,),) = perfsvc.rows("select distinct sha256 from binary_files where role = 'module'")
    perfsvc.rebuild(suite)
    times = {"*": {"duration_s": 2e-6, "sm_clock_hz": 1e9}, old: {"duration_s": 1e-6, "sm_clock_hz": 2e9}}
    perfsvc.play({"*": {"seconds": 2e-5}, old: {"seconds": 1e-5}}, profiler={"metrics": times})
    ended = perfsvc.fake(*select, "--confirm", "--profile", "--format", "json", suite=suite, code=1)
    (confirmed,) = ended.json["confirmations"]
    assert (confirmed["case"], confirmed["cause"], confirmed["ratio"]) == (GRAPH, "kernel", pytest.approx(2))
    (why,) = ended.json["explained"]
    assert why["sentence"].startswith("2.0 × slower: lower clocks")


def test_a_profile_lists_all_kernels_of_a_graph_with_their_times(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-5}}, profiler={"metrics": {"*": {"duration_s": 1.5e-6}}})
    perfsvc.fake("--select", "smooth/graph", suite="graphs", code=0)
    device = ("--device", f"fake:{perfsvc.script}")
    found = perfsvc("profile", GRAPH, *device, "--format", "json", code=0).json
    assert found["profile"]["kernel"] == "smooth"
    assert found["profile"]["kernels"] == [{"name": "smooth", "duration_s": 1.5e-6}] * LAUNCHES
    out = perfsvc("profile", GRAPH, *device, "--stored", code=0).out
    assert len(re.findall(r"^\s*\d+\s+smooth\s+1\.500 µs", out, re.MULTILINE)) == LAUNCHES
    assert re.search(r"^\s*sum\s+15\.00 µs", out, re.MULTILINE)


def test_another_use_of_the_graph_is_a_change_of_the_code(perfsvc):
    suite = perfsvc.own("graphs")
    perfsvc.play({"*": {"seconds": 1e-5}})
    select = ("--select", "smooth/graph", "--replicas", "2")
    perfsvc.fake(*select, suite=suite, code=0)
    bench = suite / "smooth" / "bench.py"
    bench.write_text(bench.read_text().replace('variant("graph", True)', 'variant("graph", "cold steps")'))
    perfsvc.play({"*": {"seconds": 2e-5}})
    ended = perfsvc.fake(*select, "--confirm", "--format", "json", suite=suite, code=None)
    (confirmed,) = ended.json["confirmations"]
    assert confirmed["same_code"] is False


def test_the_guide_has_the_files_of_this_suite(perfsvc):
    files = re.findall(r"```(?:cuda|python)\n(?://|#) mygraphs/(\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [path for path, _ in files] == ["smooth/smooth.cu", "smooth/bench.py"]
    for path, text in files:
        assert text == (perfsvc.suites / "graphs" / path).read_text()
