"""The command line on a GPU: the built-in suite, and every fault costing its case alone."""

import json
import statistics
from pathlib import Path

import pytest

from perfsvc.store import Store
from tests.gpu.commands import perfsvc

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
FAULTY = ROOT / "tests" / "e2e" / "suites" / "faulty"
LETHAL = Path(__file__).parent / "suites" / "lethal"


@pytest.fixture
def run(gpus, tmp_path):
    def start(*arguments):
        done = perfsvc(tmp_path, "run", "--device", gpus[0].spec, "--format", "json", *arguments, limit_s=115)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["results"]

    return start


def by_variant(rows):
    return {row["variant"]: row for row in rows}


def test_every_case_of_the_built_in_suite_is_right_and_timed_or_skipped_with_a_reason(run):
    code, rows = run("--suite", ROOT / "kernels", "--points", "smoke", "--replicas", "2", "--samples", "20")
    assert code == 0
    assert {row["status"] for row in rows} <= {"ok", "skipped"}
    assert all(row["reason"] for row in rows if row["status"] == "skipped")
    assert all(row["median_s"] > 0 for row in rows if row["status"] == "ok" and row["benchmark"] != "jit")


def test_a_hang_an_overrun_a_wrong_result_and_a_compile_error_fail_only_their_cases(run):
    code, found = run("--suite", FAULTY, "--limit", "8", "--replicas", "1")
    rows = by_variant(found)
    assert code == 4
    reasons = {
        "endless": "time limit",
        "overrun": "'out', up to 10 elements (40 bytes) from its end",
        "wrong": "out[77] is",
        "uncompilable": "undeclared_name",
    }
    for name, reason in reasons.items():
        assert reason in rows[name]["reason"]
    assert {name for name, row in rows.items() if row["status"] == "ok"} == {"good", "also_good"}


def test_a_lost_context_and_a_refused_launch_fail_only_their_cases(run):
    code, found = run("--suite", LETHAL, "--replicas", "2")
    rows = by_variant(found)
    assert code == 4
    reasons = {
        "stray": "illegal memory access",
        "crooked": "misaligned address",
        "trap": "launch failure",
        "greedy": "invalid argument",
        "crowded": "invalid argument",
    }
    reported = {name: row["reason"] for name, row in rows.items() if row["status"] != "ok"}
    assert set(reported) == set(reasons)
    assert {name: reasons[name] in reported[name] for name in reasons} == dict.fromkeys(reasons, True), reported
    assert all(row["cure"] for row in rows.values() if row["status"] != "ok")


@pytest.mark.parametrize(("options", "places"), [((), 8), (("--places", "3"), 3), (("--places", "1"), 0)])
def test_a_case_is_measured_at_several_places_of_its_arrays(run, tmp_path, options, places):
    suite = ROOT / "tests" / "benchmarks" / "levels"
    code, rows = run("--suite", suite, "--points", "smoke", "--replicas", "2", *options)
    assert (code, {row["status"] for row in rows}) == (0, {"ok"})
    with Store.open(str(tmp_path / "perfsvc.db")) as store:
        (opened,) = store.runs.list()
        measured = store.measurements.of_run(opened.id)
        noise = store.measurements.columns([opened.id])["noise_places"]
    assert {len(measurement.places_s) for measurement in measured} == {places}
    assert {level is None for level in noise} == {not places}
    for measurement in measured if places else ():
        mean = statistics.mean(measurement.places_s)
        assert statistics.median(measurement.samples_s) == pytest.approx(mean, rel=0.02)
