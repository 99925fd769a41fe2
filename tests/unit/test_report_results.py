from dataclasses import replace
from pathlib import Path

import pytest

from perfsvc.model import Case, DeviceInfo, Judgement, Kind, Measurement, Mode, Series, Status, Tolerance, Verdict, Work
from perfsvc.report.results import rows
from perfsvc.suite import CaseSpec

DEVICE = DeviceInfo("fake", "fake:script.json", "FAKE-1", "Fake GPU", "fake")
CASE = Case("dot", "tree", (("n", 1024),))
SPEC = CaseSpec(
    case=CASE,
    kind=Kind.KERNEL,
    mode=Mode.COLD,
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


def test_replicas_become_one_row_with_their_spread_and_the_work_over_the_median() -> None:
    found = rows([DEVICE], {("FAKE-1", CASE.id): SPEC}, [measured(i, t, t, 9.0) for i, t in enumerate((1.0, 3.0, 2.0))])
    [row] = found
    assert (row.median_s, row.low_s, row.high_s) == (2.0, 1.0, 3.0)
    assert (row.bandwidth_bytes_per_s, row.flops_per_s) == (4098.0, 1024.0)
    assert row.max_error == pytest.approx(2e-7)
    assert (row.device_model, row.device_kind, row.status) == ("Fake GPU", "fake", Status.OK)


def test_one_replica_tells_no_spread() -> None:
    [row] = rows([DEVICE], {}, [measured(0, 1.0)])
    assert (row.median_s, row.low_s, row.high_s, row.bandwidth_bytes_per_s) == (1.0, None, None, None)


def test_the_worst_replica_gives_status_and_reason_and_no_time() -> None:
    wrong = measured(1, 0.1, status=Status.WRONG, reason="out differs")
    [row] = rows([DEVICE], {}, [measured(0, 1.0), wrong, measured(2, 1.0)])
    assert (row.status, row.reason, row.median_s) == (Status.WRONG, "out differs", 1.0)


def test_the_judgement_of_its_time_stands_beside_a_case() -> None:
    series = Series(CASE, "FAKE-1", "Fake GPU")
    of_time = Judgement(series, Verdict.REGRESSION)
    of_error = Judgement(replace(series, metric="max_error"), Verdict.UNCHANGED)
    [row] = rows([DEVICE], {}, [measured(0, 1.0)], [of_error, of_time])
    assert row.judgement is of_time


def test_rows_come_in_the_order_of_the_suite() -> None:
    other = replace(CASE, variant="atomic")
    specs = {("FAKE-1", case.id): replace(SPEC, case=case) for case in (CASE, other)}
    found = rows([DEVICE], specs, [replace(measured(0, 1.0), case=other), measured(0, 1.0)])
    assert [row.case for row in found] == [CASE.id, other.id]
