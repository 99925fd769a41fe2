"""How the scripts of tests/benchmarks evaluate their results; tests/e2e/test_benchmarks.py runs them."""

import fcntl
import importlib
import json
import lzma
import math
import runpy
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from perfsvc import suite
from perfsvc.model import ReasonKind
from perfsvc.profile.explain import explain
from perfsvc.profile.reports import read

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
H100 = Path(__file__).parents[1] / "data" / "ncu" / "pairs"
SHARED = {"workbench", "hostile", "ray_nodes"}


@pytest.fixture
def script(monkeypatch):
    """Return a function that imports a script with its own folder on the path, as Python runs it."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_help_shows_how_each_script_is_used(script, monkeypatch, capsys):
    scripts = [path for path in sorted(BENCHMARKS.glob("*.py")) if path.stem not in SHARED]
    wrong = []
    for path in scripts:
        monkeypatch.setattr(sys, "argv", [path.name, "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
        if ended.value.code or f"python tests/benchmarks/{path.name}" not in capsys.readouterr().out:
            wrong.append(path.name)
    assert (wrong, len(scripts) > 30) == ([], True)


@pytest.mark.slow
def test_the_detector_raises_only_relevant_alerts_on_the_real_series(script, monkeypatch, tmp_path):
    results, sheet, module = tmp_path / "found.json", tmp_path / "sheet.png", script("real_series")
    monkeypatch.setattr(sys, "argv", ["real_series.py", "--json", str(results)])
    assert module.main() == 0
    assert len({row["name"] for row in json.loads(results.read_text())["alerts"]}) >= 40
    values = 100 * (1 + 0.01 * np.random.default_rng(1).standard_normal(160))
    values[60:70] *= 1.1
    values[120:] *= 1.05
    alerts = list(module.watched("1", values))
    plateau, step = alerts  # the step is measured from the end of the plateau
    assert (plateau.alert.end, plateau.size) == (70, pytest.approx(0.1, abs=0.02))
    assert (step.first, step.size) == (70, pytest.approx(0.05, abs=0.02))
    module.draw(alerts, {"1": values}, sheet, columns=2, width=2)
    assert sheet.read_bytes().startswith(b"\x89PNG")


# --- statistics and claims -------------------------------------------------------------------------------------------


def test_a_spread_is_no_smaller_than_the_error_of_rounding_to_the_step_of_the_clock(script):
    workbench = script("workbench")
    assert workbench.tick_of([1.28e-4, 1.28032e-4, 1.28096e-4, 1.28032e-4]) == pytest.approx(32e-9)
    assert workbench.tick_of([1.28e-4, 1.28e-4 + 1e-13]) == 1e-9
    assert workbench.spread_of([1e-4, 1.01e-4, 1.02e-4], tick_s=0.0) == pytest.approx(1 / 101)
    assert workbench.spread_of([1e-5, 1e-5], tick_s=32e-9) == pytest.approx(3.2e-3 / math.sqrt(12))


def test_a_claim_above_its_limit_or_without_a_number_decides_the_exit_status(script, tmp_path):
    workbench = script("workbench")
    path, claim = tmp_path / "made" / "found.json", workbench.Claim
    assert str(claim("medians differ by", 0.123456, 0.5, " %")) == "PASS  medians differ by: 0.1235 % (at most 0.5 %)"
    assert workbench.finish([claim("a", 2.0, 2.0)], path, seconds=3.0) == 0
    assert json.loads(path.read_text()) == {
        "claims": [{"what": "a", "value": 2.0, "limit": 2.0, "unit": "", "holds": True}],
        "problems": [],
        "seconds": 3.0,
    }
    assert [workbench.finish([claim("a", 1.0, 2.0), claim("b", value, 2.0)], None) for value in (2.01, None)] == [1, 1]


# --- side by side ----------------------------------------------------------------------------------------------------


@pytest.fixture
def found(script):
    """Two processes of each tool over a long and a short case."""
    sitting = script("nvbench.sittings").Sitting

    def sittings(wall_s, *medians):
        return [sitting({"long": long, "short": short}, wall_s) for long, short in medians]

    return {
        "NVBench": sittings(20.0, (1.0e-4, 4.0e-6), (1.02e-4, 4.0e-6)),
        "perfsvc": sittings(1.0, (1.015e-4, 5.0e-6), (1.025e-4, 5.0e-6)),
        "perfsvc, alike": sittings(2.0, (1.0e-4, 4.08e-6), (1.0e-4, 4.08e-6)),
        "perfsvc, first": sittings(9.0, (9e-4, 9e-6)),
    }


def test_medians_are_compared_with_the_same_eviction_and_place_if_every_process_has_them(script, found):
    module = script("side_by_side")
    long, short = rows = module.compare(found, tick_s=0.0)
    assert (long.case, short.case) == ("long", "short")
    assert (long.ratio, short.alike_ratio) == (pytest.approx(1.02 / 1.01), pytest.approx(1.02))
    assert long.spread_ratio == pytest.approx((0.01 / 1.02) / (0.02 / 1.01))
    claims = module.claims(rows, found)
    assert [claim.value for claim in claims] == pytest.approx([100 * (1 - 1 / 1.01), 2.0, 0.05])
    assert [claim.holds for claim in claims] == [False, True, True]
    del found["NVBench"][1].medians_s["short"]
    assert [row.case for row in module.compare(found, tick_s=0.0)] == ["long"]
    found["NVBench"].clear()
    assert module.compare(found, tick_s=0.0) == []
    assert [claim.value for claim in module.claims([], found)] == [None] * 3


def test_a_case_that_nvbench_measured_twice_is_refused_and_one_without_a_median_is_named(script):
    sittings = script("nvbench.sittings")
    twice = [{"name": "copy", "states": [{"summaries": []}]}] * 2
    with pytest.raises(sittings.SittingError, match="twice"):
        sittings.read_nvbench({"benchmarks": twice}, 1.0)
    once = {"benchmarks": [{"name": "copy", "states": [{"summaries": None}]}]}
    sitting = sittings.read_nvbench(once, 1.0)
    assert (sitting.medians_s, sitting.failed) == ({}, {"copy": "NVBench has no median of it"})


# --- a host that stalls, whole runs ----------------------------------------------------------------------------------


def test_a_median_may_move_by_half_a_percent_or_a_tenth_of_a_microsecond(script):
    module = script("host_delay")
    short, long = module.Found("copy"), module.Found("long")
    for host, seconds in (("quiet", 4e-6), ("delayed", 4.09e-6), ("busy", 3.88e-6)):
        short.add((host, True), (seconds,) * 3, kept_ahead=host != "busy")
    for host, seconds in (("quiet", 1e-4), ("busy", 1.004e-4)):
        long.add((host, True), (seconds,), kept_ahead=True)
    assert long.moved("busy", blocked=True) == pytest.approx(0.8)
    assert short.cells(blocked=True) == [
        "copy", "4.000", "1.0225", "+0.090", "0", "PASS", "0.9700", "-0.120", "1", "FAIL"
    ]  # fmt: skip


def test_the_parts_of_a_run_add_up_and_its_medians_are_compared_with_those_of_the_same_gpu_alone(script):
    """A run of 10 s with two cases of 3 s and 2 s that were stored 5 s and 8 s after its start."""
    began = datetime(2026, 11, 21, tzinfo=UTC)
    columns = {
        "case": ["a", "b"],
        "cache": ["cold", "cold"],
        "device": ["GPU-0", "GPU-0"],
        "status": ["ok", "wrong"],
        "reason": ["", "sum[0] is nan"],
        "median_s": [1e-4, 2e-4],
        "measured_at": [began + timedelta(seconds=5), began + timedelta(seconds=8)],
        "wall_s": [3.0, 2.0],
        "sampling_s": [2.5, 1.0],
        "check_s": [0.25, 0.5],
        "busy_s": [2.0, None],
    }

    def ran(seconds=10, **changed):
        return script("workbench").Ran(began, began + timedelta(seconds=seconds), columns | changed)

    boards = script("gpus")
    assert ran().failed == ["b: wrong: sum[0] is nan"]
    assert list(script("overhead").taken_apart(ran()).values()) == pytest.approx([2.0, 1.5, 0.75, 0.75, 2.0, 1.0, 2.0])
    runs = {"first GPU": ran(), "second GPU": ran(8, device=["GPU-1"] * 2), "both": ran(median_s=[1e-4, 4e-4])}
    assert {key: comparison.ratio for key, comparison in boards.compared(runs, "both", 0.03).items()} == pytest.approx(
        {("a", "cold", "GPU-0"): 1.0, ("b", "cold", "GPU-0"): 2.0}
    )
    runs["all, each-model, second night"] = ran(4)
    assert boards.ratio(runs) == 0.5, "the faster of both GPUs counts"
    del runs["second GPU"]
    assert boards.ratio(runs) is None


# --- explain_pairs.py ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_pairs_are_cases_of_the_suite_and_cover_all_reasons_and_their_lines_are_in_the_sources(script):
    module = script("explain_pairs")
    cases = {f"{listed.case.benchmark}/{listed.case.variant}" for listed in suite.discover(module.SUITE).cases}
    assert {case for pair in module.PAIRS for case in pair.cases} == cases
    # A script has no clocks to lower; a stall that no other reason explains is none that a pair can plant.
    expected = set(ReasonKind) - {ReasonKind.CLOCKS, ReasonKind.STALLS}
    assert {reason for pair in module.PAIRS for reason in pair.reasons} == expected
    assert sorted(len(pair.reasons) for pair in module.PAIRS) == [0] * 2 + [1] * 22 + [2] * 2
    for pair in module.PAIRS:
        sources = [file.read_text() for file in (module.SUITE / pair.benchmark).glob("*.cu")]
        assert any((pair.line or "") in source for source in sources), pair


@pytest.mark.slow
def test_pairs_profiled_on_an_h100_are_explained_by_their_difference_both_ways(script, tmp_path, elsewhere):
    profiles = {}
    for report in H100.glob("*.ncu-rep.xz"):
        unpacked = tmp_path / report.stem
        unpacked.write_bytes(lzma.decompress(report.read_bytes()))
        profiles[report.name.removesuffix(".ncu-rep.xz")] = elsewhere(read, unpacked)
    explained = 0
    for pair in script("explain_pairs").PAIRS:
        before, after = (profiles.get(case.replace("/", "-")) for case in pair.cases)
        if before is None or after is None:
            continue
        slower, faster = explain(before, after), explain(after, before)
        assert (slower.factor > 1) == (faster.factor < 1) == bool(pair.reasons)
        assert slower.reasons[0].kind == faster.reasons[0].kind == pair.reasons[0]
        explained += 1
    assert explained >= 12


# --- killed commands -------------------------------------------------------------------------------------------------


def test_what_a_killed_command_leaves_is_found(script, tmp_path, monkeypatch):
    module = script("killed_commands")
    monkeypatch.setattr(module, "ENDING_S", 0.0)
    place = module.Place(tmp_path / "place", None)
    place.temporary.mkdir(parents=True)
    (place.folder / "repository").mkdir()
    script("workbench").commit(place.folder / "repository", "first")
    assert place.left_behind() == []
    (place.temporary / "perfsvc-tmp-1").mkdir()
    (place.folder / "cache").mkdir()
    (place.folder / "cache" / ".perfsvc-new-1").touch()
    place.git("worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    (place.folder / "device.lock").touch()
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        (place.folder / "device.lock").open() as lock,
        subprocess.Popen(command, env=place.environment) as process,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        while not place.processes():
            assert process.poll() is None
        left = place.left_behind()
        process.kill()
    assert [entry.split()[0] for entry in left] == ["process", "temporary", "file", "file", "1", "lock"]


def test_each_fault_of_a_kill_fails_its_claim(script):
    module = script("killed_commands")
    faults = (
        *(
            "exit code 3",
            "2 measurements are lost",
            "main: torn",
            "levels of main: 2 differences",
            "process 7",
            "2 worktrees",
            "file a",
            "lock b",
        ),
        *("2 imported runs", "another result", "another run or seed", "0 keys", "3 measured again"),
    )

    def failed(*faults):
        kill = module.Kill("run", 0.1, faults)
        return [number for number, claim in enumerate(module.claims([kill])) if not claim.holds]

    assert failed() == []
    assert [failed(fault) for fault in faults] == [[number] for number in range(len(faults))]
