"""The pool with faulty workers: each costs its case alone, or ends the run if none can start."""

import re
import time
from pathlib import Path

import pytest

from perfsvc.errors import NoDeviceError
from perfsvc.measure.host import device_queue, worker_handle
from perfsvc.measure.plan.order import Plan
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import Status
from perfsvc.process import child
from perfsvc.process.fork_servers import END_LIMIT_S

ANOTHER = (
    "send(Measured(Measurement(Case('scale', f'{case}'), device.uuid, job.replica, Status.OK, cache=job.cache, "
    "samples_s={times}), True, None)); wait_for(lambda: False)"
)
"""A worker that sends another reply than it was asked."""
MEASUREMENT = "Measurement(job.record.case, device.uuid, job.replica, Status.OK, cache=job.cache, samples_s=(1.0,))"


FAULTS = {
    "frames.send(pool, b'no json')": "the worker process sent a message that cannot be read: b'no json'",
    'frames.send(pool, b\'{"body": {"message": "hello"}}\')': "sent a message that cannot be read",
    "send(Ready(device))": "sent a message that cannot be read: 'ready' was not asked",
    ANOTHER.format(case="other", times="(1.0,)"): "it answers 'scale/other'",
    ANOTHER.format(case="{variant}", times="(float(9) ** 999,)"): "",
    "frames.send(pool, codec.encode(Reply(Ready(device))), (b'blob',))": "1 files came with it",
    "pool.sendall(b'-\\0\\0\\0\\1' + (1 << 42).to_bytes(8, 'big'))": "a message of 4398046511104 bytes",
    "os._exit(9)": "the worker process died (exit status 9): output of {variant}",
    "os.kill(os.getpid(), signal.SIGSEGV)": "the worker process died (killed by SIGSEGV): output of {variant}",
    "pool.sendall(b'-\\0\\0\\0'); os._exit(0)": "the worker process died (exit status 0): output of {variant}",
    "raise RuntimeError('a bug of ours')": "RuntimeError: a bug of ours",
}
"""What a worker does instead of an answer, and the reason of the case's failure."""


def test_a_faulty_worker_costs_its_case_alone(work):
    bad = {f"bad{number}": fault for number, fault in enumerate(FAULTS)}
    does = "".join(f"\n    if variant == {name!r}:\n        {fault}" for name, fault in bad.items())
    measurements = work("good", *bad, "fine", each=does)
    right = {key for key, measurement in measurements.items() if measurement.status is Status.OK}
    assert right == {(variant, replica) for variant in ("good", "fine") for replica in (0, 1)}
    failed = {key: measurement for key, measurement in measurements.items() if measurement.status is Status.FAILED}
    assert len(failed) == len(measurements) - len(right) == len(bad)  # none was tried again in the other replica
    reasons = {variant: measurement.reason for (variant, _), measurement in failed.items()}
    assert {
        fault: reasons[variant]
        for variant, fault in bad.items()
        if FAULTS[fault].format(variant=variant) not in reasons[variant]
    } == {}
    printed = {variant: set(re.findall("output of (?!the)\\w+", reasons[variant])) for variant in bad}
    assert {variant: lines for variant, lines in printed.items() if lines - {f"output of {variant}"}} == {}
    assert all(measurement.cure for measurement in failed.values())


MANY = tuple(f"case{number}" for number in range(6))


@pytest.mark.slow
@pytest.mark.parametrize(
    "after",
    [
        "os._exit(0)",
        "frames.send(pool, codec.encode(Reply(Measured(measurement, True, None))))",
        "send(Ready(device))",
        "pool.sendall(b'-\\0\\0')",
        "pool.sendall(b'garbage'); time.sleep(1)",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    ],
)
def test_what_a_worker_does_after_its_reply_costs_no_other_case(work, monkeypatch, after):
    monkeypatch.setattr(worker_handle, "MESSAGE_LIMIT_S", 0.3)
    work.play(after=after)
    measurements = work.measure(Plan(tuple(map(work.task, MANY)), 1, 1, 20.0), work.devices("only"))
    assert [(measurement.status, measurement.reason) for measurement in measurements] == [(Status.OK, "")] * len(MANY)
    assert {measurement.case.variant for measurement in measurements} == set(MANY)


@pytest.mark.parametrize("drips", ["pool.sendall(b'-')", "pool.sendall(b'-\\0\\0\\0\\1' + b'\\0' * 7 + b'\\x40')"])
def test_a_message_that_drips_ends_in_time(work, monkeypatch, drips):
    monkeypatch.setattr(worker_handle, "MESSAGE_LIMIT_S", 0.2)
    started = time.monotonic()
    measurements = work(bad=f"{drips}; [(pool.sendall(b'x'), time.sleep(0.15)) for _ in range(80)]", replicas=1)
    assert time.monotonic() - started < 6
    assert "did not end in time" in measurements["bad", 0].reason
    assert measurements["good", 0].status is measurements["fine", 0].status is Status.OK


def test_a_worker_that_closes_its_socket_and_lives_on_costs_its_case(work, monkeypatch):
    monkeypatch.setattr(child, "CLOSED_LIMIT_S", 0.2)
    started = time.monotonic()
    measurements = work(bad="pool.close(); time.sleep(60)", replicas=1)
    assert time.monotonic() - started < END_LIMIT_S
    assert "killed, because it stopped exchanging messages" in measurements["bad", 0].reason
    assert "closes files that it did not open" in measurements["bad", 0].cure
    assert measurements["good", 0].status is measurements["fine", 0].status is Status.OK


def test_a_text_that_is_too_long_is_not_decoded(work, monkeypatch):
    monkeypatch.setattr(worker_handle, "MOST_TEXT_BYTES", 10_000)
    spaces = "frames.send(pool, codec.encode(Reply(Measured(measurement, True, None))) + b' ' * 10_000)"
    measurements = work(bad=f"measurement = {MEASUREMENT}; {spaces}; wait_for(lambda: False)", replicas=1)
    assert "a message that cannot be read: a text of 10" in measurements["bad", 0].reason
    assert measurements["good", 0].status is measurements["fine", 0].status is Status.OK


def test_descriptors_that_a_worker_sends_are_closed(work):
    before = len(list(Path("/proc/self/fd").iterdir()))
    text = "codec.encode(Reply(Measured(measurement, True, None)))"
    work.play(after=f"frames.send(pool, {text}, (), (0, 1))")
    work.measure(Plan(tuple(map(work.task, MANY)), 1, 1, 20.0), work.devices("only"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_worker_past_its_limit_and_the_time_for_recovery_is_killed(work):
    measurements = work(bad="time.sleep(60)", replicas=1, limit_s=0.15, sampling=Sampling(recovery_s=0.25))
    assert "still running after 0.4 s" in measurements["bad", 0].reason
    assert 0.4 <= measurements["bad", 0].wall_s < 0.8
    assert measurements["good", 0].status is measurements["fine", 0].status is Status.OK


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("os._exit(3)", "died (exit status 3): output of the worker"),
        ("frames.send(pool, b'garbage'); time.sleep(60)", "sent a message that cannot be read: b'garbage'"),
    ],
)
def test_a_worker_that_does_not_start_ends_the_run(work, start, reason):
    with pytest.raises(NoDeviceError) as error:
        work(start=start)
    assert "did not start" in error.value.what
    assert reason in error.value.what
    assert error.value.cure


def test_a_worker_that_never_opens_its_device_ends_the_run(work, monkeypatch):
    monkeypatch.setattr(device_queue, "START_LIMIT_S", 0.2)
    with pytest.raises(NoDeviceError, match=r"was not open within 0\.2 s") as error:
        work(start="time.sleep(60)")
    assert "nvidia-smi" in error.value.cure


def test_a_device_that_cannot_be_opened_again_costs_its_remaining_cases(work, tmp_path):
    marker = tmp_path / "opened"
    start = f"os._exit(3) if os.path.exists({str(marker)!r}) else open({str(marker)!r}, 'w').close()"
    measurements = work(start=start, bad="os._exit(9)")
    by_status = {
        status: {key for key, measurement in measurements.items() if measurement.status is status} for status in Status
    }
    assert measurements["bad", 0].status is Status.FAILED
    assert by_status[Status.OK] | by_status[Status.FAILED] == set(measurements)
    lost = [
        measurement
        for measurement in measurements.values()
        if measurement.status is Status.FAILED and measurement.case.variant != "bad"
    ]
    assert {measurement.case.variant for measurement in lost} == {"good", "fine"}
    assert all("did not start" in measurement.reason and measurement.cure for measurement in lost)


@pytest.mark.slow
def test_making_arrays_does_not_count_against_the_limit_of_a_case(work):
    measurements = work(limit_s=2.0, replicas=1, preparation_s=3.0)
    assert {measurement.status for measurement in measurements.values()} == {Status.OK}
