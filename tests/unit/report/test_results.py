from dataclasses import replace
from pathlib import Path

import pytest

from perfsvc import judge
from perfsvc.model import (
    CacheState,
    Case,
    DeviceInfo,
    Judgement,
    Kind,
    Level,
    Measurement,
    Series,
    Status,
    Tolerance,
    Verdict,
    Work,
)
from perfsvc.report.results import rows
from perfsvc.report.rows import ResultRow
from perfsvc.service.run.record import levels
from perfsvc.suite import CaseSpec

DEVICE = DeviceInfo("fake", "fake:script.json", "FAKE-1", "Fake GPU", "fake")
CASE = Case("dot", "tree", (("n", 1024),))
SPEC = CaseSpec(
    case=CASE,
    kind=Kind.KERNEL,
    cache=CacheState.COLD,
    requires=(),
    units=(),
    buffers=(),
    steps=(),
    work=Work(read_bytes=8192, written_bytes=4, flops=2048),
    tolerance=Tolerance(1e-5, 1e-6),
    bench=Path("bench.py"),
    bench_text="",
    seed=0,
)


def measured(replica: int, *samples: float, status: Status = Status.OK, reason: str = "") -> Measurement:
    return Measurement(CASE, "FAKE-1", replica, status, reason=reason, samples_s=samples, max_error=replica * 1e-7)


def made(measurements: list[Measurement], **others: object) -> list[ResultRow]:
    return rows([DEVICE], {("FAKE-1", CASE.id, CacheState.COLD): SPEC}, measurements, levels(measurements), **others)  # type: ignore[arg-type]


def test_replicas_become_one_row_with_their_level_and_the_work_over_it() -> None:
    times = (1.0, 4.0, 2.0)
    [row] = made([measured(i, t, t, 9.0) for i, t in enumerate(times)])
    level = judge.level_of_metric(times)
    assert row.median_s == pytest.approx(2.0)
    assert (row.median_s, row.low_s, row.high_s) == (level.median_s, level.low_s, level.high_s)
    assert (row.bandwidth_bytes_per_s, row.flops_per_s) == (pytest.approx(4098.0), pytest.approx(1024.0))
    assert row.max_error == pytest.approx(2e-7)
    assert (row.device_model, row.device_kind, row.status, row.replicas) == ("Fake GPU", "fake", Status.OK, 3)


def test_a_row_has_its_share_of_the_anchor_at_its_point_and_in_its_mode() -> None:
    relative_to, point = replace(CASE, variant="copy"), replace(CASE, point=(("n", 8),))
    spec = replace(SPEC, relative_to="copy")
    places = [
        (CASE, CacheState.COLD),
        (CASE, CacheState.WARM),
        (relative_to, CacheState.COLD),
        (point, CacheState.COLD),
    ]
    specs = {("FAKE-1", case.id, cache): replace(spec, case=case, cache=cache) for case, cache in places}
    times = dict(zip(places, (4.0, 2.0, 1.0, 1.0), strict=True))
    measurements = [replace(measured(0, times[place]), case=place[0], cache=place[1]) for place in places]
    found = rows([DEVICE], specs, measurements, levels(measurements))
    assert [(row.relative_to, row.relative_speed) for row in found] == [
        ("copy", 0.25),
        ("copy", None),
        ("copy", 1.0),
        ("copy", None),
    ]


def test_a_wrong_anchor_is_nothing_to_be_held_against() -> None:
    relative_to = replace(CASE, variant="copy")
    specs = {
        ("FAKE-1", case.id, CacheState.COLD): replace(SPEC, case=case, relative_to="copy")
        for case in (CASE, relative_to)
    }
    measurements = [measured(0, 4.0), replace(measured(0, 1.0, status=Status.WRONG), case=relative_to)]
    row, _ = rows([DEVICE], specs, measurements, levels(measurements))
    assert (row.relative_to, row.relative_speed) == ("copy", None)


def test_the_level_of_a_row_is_the_one_that_its_verdict_compares() -> None:
    before, after = [(1.0,), (1.1,), (1.5,)], [(1.0,), (1.2,), (1.2,)]
    series = Series(CASE, "FAKE-1", "Fake GPU")
    [verdict] = judge.verdicts(
        {series: Level(1, Status.OK, replicas=tuple(before))},
        {series: Level(2, Status.OK, replicas=tuple(after))},
        threshold=0.03,
    )
    [row] = made([measured(i, *times) for i, times in enumerate(after)], judgements=[verdict])
    assert row.judgement is verdict
    assert row.median_s == verdict.candidate_s
    assert row.median_s == pytest.approx(verdict.baseline_s * verdict.ratio)


def test_one_sample_tells_no_spread_and_one_replica_its_own() -> None:
    [row] = made([measured(0, 1.0)])
    assert (row.median_s, row.low_s, row.high_s) == (1.0, None, None)
    [row] = made([measured(0, 1.0, 2.0, 3.0)])
    assert (row.median_s, row.low_s, row.high_s) == (2.0, 1.0, 3.0)


def test_the_worst_replica_gives_status_and_reason_and_no_time() -> None:
    wrong = measured(1, 0.1, status=Status.WRONG, reason="out differs")
    failed = measured(3, status=Status.FAILED, reason="gone")
    [row] = made([measured(0, 1.0), failed, wrong, measured(2, 1.0)])
    assert (row.status, row.reason, row.median_s, row.replicas) == (Status.WRONG, "out differs", None, 2)
    assert row.bandwidth_bytes_per_s is None


def test_judgements_stand_beside_their_case_and_metric() -> None:
    series = Series(CASE, "FAKE-1", "Fake GPU")
    of_time = Judgement(series, Verdict.REGRESSION)
    of_hops = Judgement(replace(series, metric="hops"), Verdict.UNCHANGED)
    gone = Judgement(replace(series, metric="overlap"), Verdict.MISSING)
    found = [replace(measured(i, 1.0), metrics={"hops": hops}) for i, hops in enumerate((0.0, 2.0))]
    [row] = made(found, judgements=[of_hops, of_time, gone])
    assert row.judgement is of_time
    hops, overlap = row.metrics
    assert (hops.metric, hops.value, hops.judgement) == ("hops", 1.0, of_hops)
    assert (overlap.metric, overlap.value, overlap.judgement) == ("overlap", None, gone)


def test_a_missing_case_has_a_row_of_its_own() -> None:
    gone = Judgement(Series(replace(CASE, variant="gone"), "FAKE-1", "Fake GPU"), Verdict.MISSING, "run 1 has it")
    row, missing = made([measured(0, 1.0)], judgements=[gone])
    assert (row.case, row.judgement) == (CASE, None)
    assert (missing.case.variant, missing.status, missing.reason) == ("gone", None, "run 1 has it")
    assert (missing.judgement, missing.median_s, missing.replicas) == (gone, None, 0)


def test_rows_come_in_the_order_of_the_suite() -> None:
    other = replace(CASE, variant="atomic")
    specs = {("FAKE-1", case.id, CacheState.COLD): replace(SPEC, case=case) for case in (CASE, other)}
    found = rows([DEVICE], specs, [replace(measured(0, 1.0), case=other), measured(0, 1.0)], {})
    assert [row.case for row in found] == [CASE, other]
