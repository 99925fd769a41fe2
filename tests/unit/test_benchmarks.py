"""How the scripts of tests/benchmarks evaluate their results; tests/e2e/test_benchmarks.py runs them."""

import fcntl
import importlib
import json
import lzma
import math
import random
import runpy
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from perfsvc import suite
from perfsvc.device.cpu import CpuDevice
from perfsvc.errors import MissingPackageError
from perfsvc.model import Array, Buffer, ReasonKind, Role
from perfsvc.profile.explain import explain
from perfsvc.profile.reports import read

BENCHMARKS = Path(__file__).parents[2] / "tests" / "benchmarks"
H100 = Path(__file__).parents[1] / "data" / "ncu" / "pairs"


@pytest.fixture
def script(monkeypatch):
    """Return a function that imports a script with its own folder on the path, as Python runs it."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.mark.parametrize(
    "name",
    [
        *(
            "side_by_side",
            "host_delay",
            "pitfalls",
            "overhead",
            "gpus",
            "cluster",
            "sanitize",
            "slowdown",
            "explain_pairs",
            "profile_session",
        ),
        *("competing_load", "searches", "simulated_nights", "killed_commands", "eviction", "places", "same_code"),
        *("hostile_results", "import_speed", "comparison_page", "page_speed", "server_load", "slurm_faults"),
    ],
)
def test_help_shows_how_a_script_is_used(script, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 0
    assert f"python tests/benchmarks/{name}.py" in capsys.readouterr().out


# --- real series -----------------------------------------------------------------------------------------------------


def test_the_detector_raises_only_relevant_alerts_on_the_real_series_and_all_are_drawn(script, monkeypatch, tmp_path):
    sheet, results = tmp_path / "sheet.png", tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["real_series.py", "--sheet", str(sheet), "--json", str(results)])
    assert script("real_series").main() == 0
    found = json.loads(results.read_text())
    assert len({row["name"] for row in found["alerts"]}) >= 40
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_an_alert_is_measured_from_the_end_of_the_plateau_before_it(script):
    noise = 0.01 * np.random.default_rng(1).standard_normal(160)
    values = 100 * (1 + noise)
    values[60:70] *= 1.1
    values[120:] *= 1.05
    plateau, step = script("real_series").watched("1", values)
    assert (plateau.alert.end, plateau.size) == (70, pytest.approx(0.1, abs=0.02))
    assert (step.first, step.size) == (70, pytest.approx(0.05, abs=0.02))


# --- statistics and claims -------------------------------------------------------------------------------------------


def test_the_step_of_a_clock_is_the_smallest_difference_of_two_times(script):
    tick_of = script("workbench").tick_of
    assert tick_of([1.28e-4, 1.28032e-4, 1.28096e-4, 1.28032e-4]) == pytest.approx(32e-9)
    assert tick_of([1.28e-4, 1.28e-4 + 1e-13]) == 1e-9


def test_a_spread_is_no_smaller_than_the_error_of_rounding(script):
    spread_of = script("workbench").spread_of
    assert spread_of([1e-4, 1.01e-4, 1.02e-4], tick_s=0.0) == pytest.approx(1 / 101)
    assert spread_of([1e-5, 1e-5], tick_s=32e-9) == pytest.approx(3.2e-3 / math.sqrt(12))


def test_a_claim_without_a_number_does_not_hold(script):
    claim = script("workbench").Claim
    assert claim("ratio", 1.15, 1.15).holds
    assert not claim("ratio", 1.16, 1.15).holds
    assert not claim("ratio", None, 1.15).holds
    assert str(claim("medians differ by", 0.123456, 0.5, " %")) == "PASS  medians differ by: 0.1235 % (at most 0.5 %)"


def test_claims_are_written_with_the_results_and_decide_the_exit_status(script, tmp_path):
    workbench = script("workbench")
    path = tmp_path / "made" / "found.json"
    assert workbench.finish([workbench.Claim("a", 1.0, 2.0)], path, seconds=3.0) == 0
    assert json.loads(path.read_text()) == {
        "claims": [{"what": "a", "value": 1.0, "limit": 2.0, "unit": "", "holds": True}],
        "seconds": 3.0,
    }
    assert workbench.finish([workbench.Claim("a", 1.0, 2.0), workbench.Claim("b", 3.0, 2.0)], None) == 1


def test_the_first_column_of_a_table_is_flush_left_and_the_others_flush_right(script):
    lines = script("workbench").table(("case", "µs"), [["a", "10.5"], ["longer", "9"]]).splitlines()
    assert lines == ["case      µs", "------  ----", "a       10.5", "longer     9"]


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


def test_rows_compare_medians_and_spreads(script, found):
    long, short = script("side_by_side").compare(found, tick_s=0.0)
    assert (long.case, short.case) == ("long", "short")
    assert long.ratio == pytest.approx(1.02 / 1.01)
    assert long.spread_ratio == pytest.approx((0.01 / 1.02) / (0.02 / 1.01))
    assert short.alike_ratio == pytest.approx(1.02)


def test_claims_compare_medians_with_the_same_eviction_and_place(script, found):
    side_by_side = script("side_by_side")
    rows = side_by_side.compare(found, tick_s=32e-9)
    claims = side_by_side.claims(rows, found)
    assert [claim.value for claim in claims] == pytest.approx([100 * (1 - 1 / 1.01), 2.0, 0.05])
    assert [claim.holds for claim in claims] == [False, True, True]


def test_a_case_without_a_median_from_every_process_is_skipped(script, found):
    del found["NVBench"][1].medians_s["short"]
    assert [row.case for row in script("side_by_side").compare(found, tick_s=0.0)] == ["long"]


def test_without_a_second_process_nothing_is_claimed(script, found):
    side_by_side = script("side_by_side")
    found["NVBench"].clear()
    assert side_by_side.compare(found, tick_s=0.0) == []
    assert [claim.value for claim in side_by_side.claims([], found)] == [None] * 3


def test_a_case_that_nvbench_measured_twice_is_refused(script):
    sittings = script("nvbench.sittings")
    twice = [{"name": "copy", "states": [{"summaries": []}]}] * 2
    with pytest.raises(sittings.SittingError, match="twice"):
        sittings.read_nvbench({"benchmarks": twice}, 1.0)


def test_a_case_without_a_median_of_nvbench_is_named(script):
    once = {"benchmarks": [{"name": "copy", "states": [{"summaries": None}]}]}
    sitting = script("nvbench.sittings").read_nvbench(once, 1.0)
    assert (sitting.medians_s, sitting.failed) == ({}, {"copy": "NVBench has no median of it"})


# --- a host that stalls ----------------------------------------------------------------------------------------------


@pytest.fixture
def stalled(script):
    """A case of 4 µs whose medians behind the blocking kernel differ between conditions."""
    module = script("host_delay")

    def make(delayed_s, busy_s):
        found = module.Found("copy")
        for host, shift_s in (("quiet", 0.0), ("delayed", delayed_s), ("busy", busy_s)):
            found.add((host, True), (4e-6 + shift_s,) * 3, kept_ahead=host != "busy")
        return found

    return make


def test_a_short_kernel_may_move_by_a_tenth_of_a_microsecond(stalled):
    found = stalled(0.09e-6, -0.12e-6)
    assert found.moved("delayed", blocked=True) == pytest.approx(0.9)
    assert found.moved("busy", blocked=True) == pytest.approx(1.2)
    assert found.cells(blocked=True) == [
        "copy", "4.000", "1.0225", "+0.090", "0", "PASS", "0.9700", "-0.120", "1", "FAIL"
    ]  # fmt: skip


def test_a_long_kernel_may_move_by_half_a_percent(script):
    found = script("host_delay").Found("copy")
    found.add(("quiet", True), (1e-4,), kept_ahead=True)
    found.add(("busy", True), (1.004e-4,), kept_ahead=True)
    assert found.moved("busy", blocked=True) == pytest.approx(0.8)


def test_half_of_the_calls_are_delayed(script, monkeypatch):
    module = script("host_delay")
    slept, queued = [], []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    late = module.delaying(lambda: queued.append(len(slept)), random.Random(1))
    for _ in range(1000):
        late()
    assert len(queued) == 1000
    assert len(slept) == pytest.approx(500, abs=50)
    assert set(slept) == {1e-3}


# --- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(script):
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
    return script("workbench").Ran(began, began + timedelta(seconds=10), columns)


def test_a_run_names_the_cases_that_failed(ran):
    assert ran.failed == ["b: wrong: sum[0] is nan"]


def test_the_parts_of_a_run_add_up_to_its_wall_time(script, ran):
    parts = script("overhead").taken_apart(ran)
    assert list(parts.values()) == pytest.approx([2.0, 1.5, 0.75, 0.75, 2.0, 1.0, 2.0])
    assert sum(parts.values()) == pytest.approx(ran.wall_s)


def test_medians_are_compared_with_those_of_the_same_gpu_alone(script, ran):
    boards = script("gpus")
    slower = script("workbench").Ran(ran.began, ran.ended, ran.columns | {"median_s": [1e-4, 4e-4]})
    elsewhere = script("workbench").Ran(ran.began, ran.ended, ran.columns | {"device": ["GPU-1"] * 2})
    compared = boards.compared({"first GPU": ran, "second GPU": elsewhere, "both": slower}, "both", 0.03)
    assert {key: comparison.ratio for key, comparison in compared.items()} == pytest.approx(
        {("a", "cold", "GPU-0"): 1.0, ("b", "cold", "GPU-0"): 2.0}
    )


def test_two_gpus_are_compared_with_the_faster_gpu_alone(script, ran):
    Ran = type(ran)  # noqa: N806 - the class itself
    quicker = Ran(ran.began, ran.began + timedelta(seconds=8), {})
    both = Ran(ran.began, ran.began + timedelta(seconds=4), {})
    runs = {"first GPU": ran, "second GPU": quicker, "all, each-model, second night": both}
    assert script("gpus").ratio(runs) == 0.5
    del runs["second GPU"]
    assert script("gpus").ratio(runs) is None


# --- compute-sanitizer -----------------------------------------------------------------------------------------------


BUFFERS = [
    Buffer(Array("a", "float32", (5,)), Role.INPUT),
    Buffer(Array("out", "uint8", (3,)), Role.OUTPUT),
    Buffer(Array("partials", "uint8", (4,)), Role.SCRATCH),
]


@pytest.fixture
def device():
    device = CpuDevice()
    yield device
    device.close()


def test_each_buffer_under_the_sanitizer_is_an_allocation_of_just_its_size(script, device, monkeypatch):
    allocated = {}
    allocate = device.allocate_untimed
    monkeypatch.setattr(device, "allocate_untimed", lambda nbytes: allocated.setdefault(nbytes, allocate(nbytes)))
    with script("sanitize").Bare(device, BUFFERS, poison=True) as memory:
        assert allocated == {20: memory.address("a"), 3: memory.address("out"), 4: memory.address("partials")}


@pytest.mark.parametrize(("poison", "left"), [(True, 255), (False, 7)])
def test_only_inputs_are_written_for_initcheck(script, device, poison, left):
    with script("sanitize").Bare(device, BUFFERS, poison=poison) as memory:
        for buffer in BUFFERS:
            memory.write(buffer.array.name, np.uint8([7]))
        memory.reset(lambda name, address: device.upload(address, np.full(5, 9, np.float32)))
        assert set(memory.read("a")) == {9}
        assert {*memory.read("out"), *memory.read("partials")} == {left}


def test_a_missing_sanitizer_is_an_error(script, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(MissingPackageError, match="compute-sanitizer was not found"):
        script("sanitize").sanitizer()


# --- explain_pairs.py ------------------------------------------------------------------------------------------------


def test_the_pairs_are_cases_of_the_suite_and_cover_all_reasons(script):
    pairs = script("explain_pairs")
    cases = {f"{listed.case.benchmark}/{listed.case.variant}" for listed in suite.discover(pairs.SUITE).cases}
    assert {case for pair in pairs.PAIRS for case in pair.cases} == cases
    assert len(pairs.PAIRS) >= 24
    # A script has no clocks to lower; a stall that no other reason explains is none that a pair can plant.
    expected = set(ReasonKind) - {ReasonKind.CLOCKS, ReasonKind.STALLS}
    assert {reason for pair in pairs.PAIRS for reason in pair.reasons} == expected
    assert [len(pair.reasons) for pair in pairs.PAIRS].count(2) == 2
    assert [len(pair.reasons) for pair in pairs.PAIRS].count(0) == 2


def test_the_expected_line_of_a_pair_is_in_its_sources(script):
    pairs = script("explain_pairs")
    for pair in pairs.PAIRS:
        sources = [file.read_text() for file in (pairs.SUITE / pair.benchmark).glob("*.cu")]
        assert any((pair.line or "") in source for source in sources), pair


def h100_profile(case):
    """Return the profile of a case in tests/data/ncu/pairs; None if there is none."""
    report = H100 / f"{case.replace('/', '-')}.ncu-rep.xz"
    if not report.is_file():
        return None
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder, "launch.ncu-rep")
        unpacked.write_bytes(lzma.decompress(report.read_bytes()))
        return read(unpacked)


def test_pairs_profiled_on_an_h100_are_explained_by_their_difference_both_ways(script):
    explained = 0
    for pair in script("explain_pairs").PAIRS:
        before, after = map(h100_profile, pair.cases)
        if before is None or after is None:
            continue
        slower, faster = explain(before, after), explain(after, before)
        assert (slower.factor > 1) == (faster.factor < 1) == bool(pair.reasons)
        assert slower.reasons[0].kind == faster.reasons[0].kind == pair.reasons[0]
        explained += 1
    assert explained >= 12


# --- killed commands -------------------------------------------------------------------------------------------------


def test_what_a_killed_command_leaves_is_found(script, tmp_path, monkeypatch):
    killed_commands = script("killed_commands")
    monkeypatch.setattr(killed_commands, "ENDING_S", 0.0)
    place = killed_commands.Place(tmp_path / "place")
    place.temporary.mkdir(parents=True)
    (place.folder / "repository").mkdir()
    place.git("init", "-q")
    place.git("commit", "-q", "--allow-empty", "-m", "first")
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
    killed_commands = script("killed_commands")
    faults = (
        "exit code 3",
        "2 measurements are lost",
        "perfsvc.db: torn",
        "process 7",
        "2 worktrees",
        "file a",
        "lock b",
        "2 imported runs",
    )
    assert all(claim.holds for claim in killed_commands.claims([killed_commands.Kill("run", 0.1, ())]))
    for number, fault in enumerate(faults):
        kill = killed_commands.Kill("run", 0.1, (fault,))
        failed = [at for at, claim in enumerate(killed_commands.claims([kill])) if not claim.holds]
        assert failed == [number]
