"""The scripts of tests/benchmarks on the fake device; tests/data/nvbench_stand_in replaces NVBench."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfsvc import build, suite
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.model import digest

pytestmark = pytest.mark.slow  # runs the benchmark scripts

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "data" / "nvbench_stand_in"
SUITE = Path(__file__).parent / "suites" / "scale"
SHORT = "vec_add/plain[n=10007]"


@pytest.fixture
def benchmark(tmp_path):
    """Return a function that runs a script and returns its exit status, its output and its JSON results."""

    def run(name, *arguments, **environment):
        path = tmp_path / "found.json"
        done = subprocess.run(
            [sys.executable, ROOT / "tests" / "benchmarks" / f"{name}.py", *map(str, arguments), "--json", path],
            cwd=tmp_path,
            env=os.environ | {"PERFSVC_CACHE": str(tmp_path / "cache"), "PERFSVC_LOCKS": str(tmp_path)} | environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert path.exists(), done.stdout
        return done.returncode, done.stdout, json.loads(path.read_text())

    return run


@pytest.fixture
def fake(tmp_path):
    """Return a function that writes a script for the fake device and returns its specification."""

    def write(cases, name="script", **more):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"cases": cases, **more}))
        return f"fake:{path}"

    return write


def with_nvbench(folder, **script):
    path = os.pathsep.join(filter(None, (str(STAND_IN), os.environ.get("PYTHONPATH"))))
    files = {"counter": str(folder / "counter"), "launched": str(folder / "launched.json")}
    return {"PYTHONPATH": path, "STAND_IN": json.dumps(files | script)}


def claims(found):
    return {claim["what"]: (claim["value"], claim["holds"]) for claim in found["claims"]}


def test_side_by_side_compares_fresh_processes_of_both(benchmark, fake, tmp_path):
    # Seconds by replica; the first is not counted.
    device = fake({"*": {"seconds": [9e-4, 1.0e-4, 1.02e-4]}, SHORT: {"seconds": [9e-6, 4.08e-6, 4.08e-6]}})
    medians = {"*": [1.0e-4, 1.04e-4], SHORT: [4.0e-6, 4.0e-6]}
    _, printed, found = benchmark(
        "side_by_side", "--device", device, "--processes", 2, **with_nvbench(tmp_path, medians_s=medians)
    )
    ours, alike, theirs = (
        [one["medians_s"]["copy/plain[n=10007]"] for one in found["sittings"][tool]]
        for tool in ("perfsvc", "perfsvc, alike", "NVBench")
    )
    assert ours == alike == pytest.approx([1.0e-4, 1.02e-4])
    assert theirs == pytest.approx([1.0e-4, 1.04e-4])
    assert all(len(one["medians_s"]) == 7 for tool in found["sittings"].values() for one in tool)
    shown = claims(found)
    assert shown["processes and cases that failed"] == (0, True)
    assert shown["medians over 50 µs, alike, differ by"] == (pytest.approx(100 * (1 - 1.01 / 1.02)), False)
    assert shown["medians under 10 µs, alike, differ by"] == (pytest.approx(2.0), True)
    assert "PASS  medians under 10 µs, alike, differ by: 2 % (at most 3 %)" in printed
    require_the_same_launches(json.loads((tmp_path / "launched.json").read_text()))


def require_the_same_launches(launched):
    """Require that NVBench launched what perfsvc launches, on memory that was filled to its end."""
    of_entry = {one["entry"]: one for one in launched}
    assert set(of_entry) == {"copy", "dot", "matmul", "transpose_naive", "transpose_tiled", "vec_add"}
    tiled = of_entry["transpose_tiled"]
    assert (tiled["grid"], tiled["block"], tiled["n"]) == ([4, 4, 1], [32, 8, 1], 97)
    assert len(of_entry["vec_add"]["begin"]) == 2
    assert all("00" * 64 not in one["begin"] + one["end"] for one in launched)


def test_a_failure_affects_neither_the_other_cases_nor_the_other_tool(benchmark, fake, tmp_path):
    device = fake({"dot": {"fault": "wrong"}})
    nvbench = with_nvbench(tmp_path, medians_s={"*": [1e-4]}, fails=1)
    code, printed, found = benchmark("side_by_side", "--device", device, "--processes", 2, **nvbench)
    assert code == 1
    assert "as the script says" in printed
    assert [len(found["sittings"][tool]) for tool in ("NVBench", "perfsvc", "perfsvc, alike")] == [1, 2, 2]
    for one in found["sittings"]["perfsvc"]:
        assert list(one["failed"]) == ["dot/blocks[n=10007]"]
        assert len(one["medians_s"]) == 6
    assert claims(found)["processes and cases that failed"] == (6, False)


def test_host_stalls_change_nothing_on_the_fake_device(benchmark, fake):
    code, printed, found = benchmark("host_delay", "--device", fake({}), "--rounds", 2, "--samples", 4, "--others", 1)
    assert code == 0, printed
    assert [len(case["conditions"]) for case in found["cases"]] == [6] * 7
    assert all(one["samples"] == 8 for case in found["cases"] for one in case["conditions"])
    assert [value for value, _ in claims(found).values()] == [0.0, 0.0]


def test_a_gpu_in_use_by_another_run_is_refused(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path))
    lock = DeviceLock("FAKE-0")
    assert lock.take()
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "benchmarks" / "host_delay.py", "--device", fake({})],
        capture_output=True,
        text=True,
        check=False,
    )
    lock.release()
    assert done.returncode == 1
    assert f"is in use by process {os.getpid()}" in done.stderr


def test_the_overhead_of_a_run_is_split_into_parts(benchmark, fake):
    device = fake({"scale/alpha": {"fault": "wrong"}})
    code, printed, found = benchmark("overhead", "--device", device, "--suite", SUITE, "--replicas", 1)
    parts = found["parts_s"]
    assert sum(parts.values()) == pytest.approx(found["wall_s"])
    (failed, _), (ratio, _) = claims(found).values()
    assert (code, failed) == (1, 1)
    assert ratio == pytest.approx(found["wall_s"] / parts["device busy with samples"])
    assert "PROBLEM  scale/alpha[n=100]: wrong" in printed


def test_two_gpus_share_a_plan(benchmark, fake):
    gpus = [fake({}, name=f"GPU{n}", uuid=f"FAKE-{n}") for n in range(2)]
    _, printed, found = benchmark("gpus", "--gpus", *gpus, "--suite", SUITE, "--replicas", 2)
    assert found["problems"] == [], printed
    dealt_runs = ["all, each-model, first night", "all, each-model, second night"]
    assert list(found["wall_s"]) == ["first GPU", "second GPU", *dealt_runs, "all, each-device"]
    dealt, everywhere = found["ratios"][dealt_runs[1]], found["ratios"]["all, each-device"]
    assert len(everywhere) == 2 * len(dealt)
    assert set(dealt) < set(everywhere)
    assert set(everywhere.values()) == {1.0}
    assert claims(found)["all, each-device: cases whose median changed"] == (0, True)


@pytest.fixture
def slowed(monkeypatch):
    """Return the digest of the fake binary of a slowed variant of tests/benchmarks/nights."""

    def of(case):
        variant = case.partition("/")[2]
        monkeypatch.setenv("SLOWED", variant)
        monkeypatch.setenv("PERCENT", "2")
        found = suite.discover(ROOT / "tests" / "benchmarks" / "nights" / "suite")
        (spec,) = found.resolve(suite.Selection((case,)), "smoke")[0]
        monkeypatch.delenv("SLOWED")
        return digest(build.toolchain_for("fake").compile(spec.units[0]))

    return of


def test_a_slowed_kernel_is_named_in_its_night_only(benchmark, fake, slowed):
    at_night = {slowed("add/plain"): {"seconds": 1.05e-4}}
    _, printed, found = benchmark("slowdown", "--device", fake({"*": {"seconds": 1e-4}} | at_night), "--nights", 4)
    assert [[one["case"] for one in night["moved"]] for night in found["nights"]] == [[], [], [], ["add/plain"]], (
        printed
    )
    assert found["nights"][3]["confirmations"]["add/plain"][0] == "kernel"
    assert found["nights"][3]["code"] == 1
    values = [value for value, _ in claims(found).values()]
    assert values == [0] + [None] * 5  # of the other slowed night, and of a shared GPU, it has seen nothing


def test_the_claims_of_nights_over_the_budget_are_not_measured(benchmark, fake):
    code, printed, found = benchmark("slowdown", "--device", fake({}), "--budget", 1)
    assert (code, found["nights"]) == (1, [])
    assert [value for value, _ in claims(found).values()] == [None] * 6
    assert "flat: skipped" in printed


@pytest.mark.timeout(300)
def test_a_bad_night_is_confirmed_together_and_keeps_its_budget(benchmark):
    _, _, found = benchmark("bad_night", "--gpus", 4, "--sizes", 1, "--singly", 1, "--budget", 0.2)
    eight, many = found["results"]["eight cases"], found["results"]["a hundred cases"]
    assert (eight["suspects"], eight["causes"], eight["applied"]) == (4 * 8, {"kernel": 32}, 3 * 8)
    assert (many["suspects"], many["causes"], many["applied"]) == (10, {"kernel": 10}, 0)
    shown = claims(found)
    assert shown["suspects whose cause is not the kernel"] == (0, True)
    assert shown["a short budget: suspects neither confirmed nor reported"] == (0, True)
    assert shown["eight cases on 4 GPUs"][1]
    assert shown["eight cases: time together over time singly"][1]
    short = found["short_budget"]
    assert sum(short["causes"].values()) < short["suspects"] == 10
    assert short["over_budget"] > 0


@pytest.mark.timeout(300)  # every killed command works on a database of its own nights
def test_killed_commands_lose_nothing_and_leave_nothing(benchmark):
    # Killed runs, nights, syncs, backups and prunes have tests of their own.
    code, printed, found = benchmark("killed_commands", "--kills", 1, "--only", "import")
    assert code == 0, printed
    assert [kill["command"] for kill in found["kills"]] == ["import"]
    assert all(value == (0, True) for value in claims(found).values())


def test_graphs_are_timed_beside_their_launches(benchmark, fake):
    code, out, found = benchmark("graphs", "--device", fake({"*": {"seconds": 2e-5}}))
    assert code == 0, out
    assert found["rows"] == [
        {"n": 10_007} | dict.fromkeys(("launches µs", "replay µs", "steps µs", "cold steps µs"), pytest.approx(20))
    ]
    assert claims(found) == {
        "replay over launches, the largest": (1.0, True),
        "replay over the sum of its steps, the largest": (1.0, True),
    }


def test_commands_are_timed_with_a_database_that_was_filled_with_copies_of_a_night(benchmark, tmp_path):
    size = ("size", tmp_path / "size", "--cases", "4")
    code, printed, found = benchmark(*size, "--nights", "5", "--only", "compare,judge")
    assert (code, found["nights"]) == (0, 5), printed
    assert [(row["command"], row["exit_code"]) for row in found["commands"]] == [("compare", 0)]
    assert {"judging night 5", "history of a case"} <= set(found["inside_s"])
    assert benchmark(*size, "--nights", "7", "--only", "help")[2]["nights"] == 7
