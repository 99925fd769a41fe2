"""A reply is stored only if it answers what the worker was asked, with values that are possible."""

import math
from dataclasses import replace

from perfsvc.measure.host.replies import Asked, problem
from perfsvc.measure.protocol.messages import CheckedResult, Measured, Ready, Refused
from perfsvc.model import Batch, CacheState, Case, Conditions, DeviceInfo, Error, Kind, Measurement, PythonCode, Status

CASE = Case("scale", "naive", (("n", 8),))
DEVICE = DeviceInfo("fake", "fake:x.json", "only", "Fake GPU", "fake")
ASKED = Asked(CASE, Kind.KERNEL, "only", 1, CacheState.COLD, places=8)
BATCH = Batch((1e-4,), conditions=Conditions(temperature_c=-3.0))
GOOD = Measurement(CASE, "only", 1, Status.OK, samples_s=(1e-4,), batches=(BATCH,), metrics={"level": -1.0})
HOST = replace(GOOD, samples_s=(), batches=())
FAILED = Measurement(CASE, "only", 1, Status.FAILED, reason="it crashed", cure="mend it")
PYTHON = PythonCode(modules=(("helpers", "d1"),))


def judged(measurement, *, kind=Kind.KERNEL, files=(), checked=None):
    return problem(Measured(measurement, usable=True, checked=checked), files, replace(ASKED, kind=kind))


def test_an_answer_to_what_was_asked_is_right():
    assert judged(GOOD) == ""
    assert judged(GOOD, checked=CheckedResult({}, Error(0, 0))) == ""
    assert judged(FAILED) == ""
    assert judged(replace(GOOD, samples_s=(1e-4,) * 16, places_s=(1e-4,) * 8)) == ""
    assert judged(HOST, kind=Kind.HOST) == ""
    assert judged(replace(GOOD, python=PYTHON), files=["d1"]) == ""


IMPOSSIBLE = [
    (replace(GOOD, case=Case("scale", "other", (("n", 8),))), {}, "it answers 'scale/other[n=8]'"),
    (replace(GOOD, case=Case("scale", "naive", (("n", 9),))), {}, "it answers"),
    (replace(GOOD, device="second"), {}, "it answers"),
    (replace(GOOD, replica=0), {}, "it answers"),
    (replace(GOOD, cache=CacheState.WARM), {}, "it answers"),
    (replace(GOOD, samples_s=()), {}, "it has no times, but is ok"),
    (replace(GOOD, reason="it failed"), {}, "a reason why it failed"),
    (replace(FAILED, reason=""), {}, "without a reason"),
    (replace(FAILED, samples_s=(1.0,)), {}, "it has results, but is failed"),
    (FAILED, {"checked": CheckedResult({}, Error(0, 0))}, "it has results"),
    (GOOD, {"kind": Kind.HOST}, "metrics and no times"),
    (replace(HOST, metrics={}), {"kind": Kind.HOST}, "metrics and no times"),
    (replace(GOOD, samples_s=(0.0,)), {}, "a sample of 0.0 s"),
    (replace(GOOD, samples_s=(-1.0,)), {}, "a sample of -1.0 s"),
    (replace(GOOD, samples_s=(math.nan,)), {}, "a sample of nan s"),
    (replace(GOOD, samples_s=(1e300,)), {}, "a sample of 1e+300 s"),
    (replace(GOOD, batches=(replace(BATCH, samples_s=(math.inf,)),)), {}, "a sample of inf s"),
    (replace(GOOD, samples_s=(1e-4,) * 16, places_s=(1e-4,) * 9), {}, "9 medians of places"),
    (replace(GOOD, places_s=(1e-4,) * 2), {}, "2 medians of places"),
    (replace(FAILED, places_s=(1e-4,)), {}, "1 medians of places"),
    (replace(GOOD, places_s=(-1.0,)), {}, "a sample of -1.0 s"),
    (replace(GOOD, wall_s=-1.0), {}, "a wall_s of -1.0"),
    (replace(GOOD, max_error=-1.0), {}, "an error of -1.0"),
    (replace(GOOD, max_error=math.inf), {}, "a number that is inf"),
    (replace(GOOD, batches=(replace(BATCH, conditions=Conditions(power_w=math.nan)),)), {}, "a number that is nan"),
    (replace(GOOD, warmup=1 << 31), {}, "a count of"),
    (replace(GOOD, warmup=10**400), {}, "a count without bounds"),
    (replace(GOOD, batches=(replace(BATCH, conditions=Conditions(xids=(-1,))),)), {}, "a count of -1"),
    (GOOD, {"checked": CheckedResult({}, Error(math.nan, 0))}, "a number that is nan"),
    (replace(GOOD, metrics={"level": math.inf}), {}, "a number that is inf"),
    (replace(GOOD, metrics={"a\0b": 1.0}), {}, "the metric name 'a\\x00b'"),
    (replace(GOOD, metrics={"\x1b[31m": 1.0}), {}, "the metric name"),
    (replace(GOOD, metrics={"": 1.0}), {}, "the metric name"),
    (replace(GOOD, metrics={"x" * 201: 1.0}), {}, "the metric name"),
    (replace(GOOD, metrics={"time": 1.0}), {}, "is a metric of perfsvc itself"),
    (GOOD, {"files": ["d1"]}, "1 files that it does not name"),
    (replace(GOOD, python=PYTHON), {}, "1 that it names did not"),
]
"""A measurement, what came with it, and why it is no answer."""


def test_a_measurement_that_cannot_be_is_no_answer():
    found = [(why, judged(measurement, **more)) for measurement, more, why in IMPOSSIBLE]
    assert [(why, judged) for why, judged in found if why not in judged or not judged] == []


def test_a_worker_answers_only_what_it_was_asked():
    table = [
        (Ready(DEVICE), DEVICE, ""),
        (Refused("no", "look"), DEVICE, ""),
        (Ready(replace(DEVICE, uuid="second")), DEVICE, "it opened 'second', not 'only'"),
        (Measured(GOOD, usable=True), DEVICE, "'measured' was not asked"),
        (Ready(DEVICE), ASKED, "'ready' was not asked"),
        (Refused("no", "look"), ASKED, "'refused' was not asked"),
        (Measured(GOOD, usable=True), None, "'measured' was not asked"),
        (Ready(DEVICE), None, "'ready' was not asked"),
    ]
    assert [problem(reply, (), asked) for reply, asked, _ in table] == [why for *_, why in table]
    assert problem(Ready(DEVICE), ["d1"], DEVICE) == "1 files came with it"
