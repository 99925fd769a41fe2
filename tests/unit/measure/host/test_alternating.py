"""The pool with A/B pairs: decided cases leave, faults cost their case, and a lost device is passed on."""

from dataclasses import replace

import pytest

from perfsvc.errors import NoDeviceError
from perfsvc.measure.host import pool
from perfsvc.measure.plan.order import AlternatingPlan
from perfsvc.model import Status

PAIRS = 3


def plan(work, *variants, device="only", decided=(), **more):
    """Return a plan of pairs of each variant; ``decided`` has the variants that need no further process."""
    tasks = tuple(work.task(variant, device, **more) for variant in variants for _ in range(2))
    return AlternatingPlan(tasks, PAIRS, 1, 20.0, is_decided=lambda task: task.record.case.variant in decided)


def sent(work):
    """Return the variants that each worker measured."""
    found = {}
    for worker, variant in work.logged():
        found.setdefault(worker, []).append(variant)
    return [sorted(variants) for variants in found.values()]


def test_a_decided_case_leaves_and_no_worker_is_started_for_nothing(work):
    work.play(start="log('opened')", each="log(variant)")
    decided = set()
    seen = []
    for measurement in pool.measure(plan(work, "a", "b", decided=decided), work.devices("only")):
        seen.append(measurement.case.variant)
        if seen.count("a") == 2:
            decided.add("a")
        if seen.count("b") == 4:
            decided.add("b")
    assert sent(work) == [["a", "b", "opened"]] * 2 + [["b", "opened"]] * 2


def test_a_case_that_kills_its_worker_costs_only_itself(work):
    work.play(each="log(variant)", bad="os._exit(9)")
    measurements = work.measure(plan(work, "a", "bad", "b"), work.devices("only"))
    assert [measurement.case.variant for measurement in measurements if measurement.status is Status.FAILED] == ["bad"]
    for variant in ("a", "b"):
        ok = [measurement for measurement in measurements if measurement.case.variant == variant]
        assert [measurement.replica for measurement in ok] == list(range(2 * PAIRS))
    assert len(work.born()) <= 2 * PAIRS + 1


def test_a_lost_device_is_passed_on_and_its_cases_do_not_fail(work):
    work.play(start="if device.uuid == 'lost': send(Refused('gone', 'look')); sys.exit()")
    lost = []

    def on_loss(device, error):
        lost.append((device.uuid, error.what))

    here, gone = plan(work, "a"), plan(work, "b", device="lost")
    both = replace(here, tasks=here.tasks + gone.tasks)
    devices = work.devices("only", "lost")
    measurements = list(
        pool.measure(both, devices, on_loss=lambda device, error: lost.append((device.uuid, error.what)))
    )
    assert {measurement.case.variant for measurement in measurements} == {"a"}
    assert {uuid for uuid, _ in lost} == {"lost"}
    assert "gone" in lost[0][1]
    assert list(pool.measure(gone, {"lost": devices["lost"]}, on_loss=lambda *_: None)) == []
    with pytest.raises(NoDeviceError, match="gone"):
        list(pool.measure(gone, {"lost": devices["lost"]}))
