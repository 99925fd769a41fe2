"""The fake device plays its script."""

import json
import math
import random
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from perfsvc.device import fake
from perfsvc.device.fake import DeviceScript, FakeDevice, ScriptedCase
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.model import Array, Buffer, BufferArg, Case, Conditions, Kind, Launch, ReplayRecord, Role

CASE = Case("dot", "tree", (("n", 1000),))


def entries(*keys):
    return DeviceScript(cases={key: ScriptedCase(seconds=float(number)) for number, key in enumerate(keys, 1)})


def test_the_most_specific_entry_counts():
    table = {
        ("*", "dot", "dot/tree", "dot/tree[n=1000]"): 4.0,
        ("dot/tree[n=1000]", "dot/tree", "dot", "*"): 1.0,
        ("*", "dot", "dot/tree", "dot/tree[n=9]"): 3.0,
        ("*", "dot", "dot/other"): 2.0,
        ("*", "transpose"): 1.0,
        (): 1e-4,
    }
    assert {keys: entries(*keys).entry(CASE).seconds for keys in table} == table


def test_an_entry_for_a_binary_comes_before_one_for_its_case():
    script = entries("dot/tree[n=1000]", "ab12")
    assert script.entry(CASE, ["ab12"]).seconds == 2.0
    assert script.entry(CASE, ["cd34"]).seconds == 1.0


def test_seconds_are_a_number_or_a_list_with_an_item_for_each_replica():
    table = {
        0.5: [(0.5,), (0.5,), (0.5,)],
        (0.1, 0.2): [(0.1,), (0.2,), (0.1,)],
        ((0.1, 0.2), 0.3): [(0.1, 0.2), (0.3,), (0.1, 0.2)],
    }
    assert {seconds: [ScriptedCase(seconds).samples(replica) for replica in range(3)] for seconds in table} == table


@pytest.fixture
def play(tmp_path):
    """Open the fake device with a script."""

    def opened(cases, **script):
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"cases": cases, **script}))
        return FakeDevice(path)

    return opened


@pytest.fixture
def device(play):
    return play({"dot": {"seconds": [[1.0, 2.0, 3.0], 9.0]}}, model="Fake H100")


OUT = Buffer(Array("out", "float32", (4,)), Role.OUTPUT)
OUT_BYTES = 16
RECORD = ReplayRecord(CASE, Kind.KERNEL, (OUT,), (), (), "", seed=0)
LAUNCH = Launch(0, "dot", (1, 1, 1), (1, 1, 1), (BufferArg("out"),))


def launching(device):
    """The work of a sample: one launch."""
    address = device.allocate(OUT_BYTES)
    return lambda: device.launch(b"", LAUNCH, (np.uint64(address),))


def batch(device, sample, count=1, *, clock="device", blocked=True):
    return device.batch(sample, count, clock=clock, evict_bytes=0, blocked=blocked)


def test_samples_are_played_in_order_over_all_batches(device):
    ran = []
    with device.measuring(RECORD, 0):
        played = [batch(device, lambda: ran.append(1), count) for count in (2, 2, 1)]
    assert [batch.samples_s for batch in played] == [(1.0, 2.0), (3.0, 1.0), (2.0,)]
    assert [batch.busy_s for batch in played] == [3.0, 4.0, 2.0]
    assert len(ran) == 3
    with device.measuring(RECORD, 1):
        assert batch(device, lambda: None, 2, clock="host").samples_s == (9.0, 9.0)


def test_the_clock_counts_only_samples_and_rests(device):
    with device.measuring(RECORD, 0):
        batch(device, lambda: None, 3)
        device.rest(100.0)
        device.conditions()
        assert device.now() == 106.0
        assert device.back_to_back(lambda: None, 3) == 2.0
        assert device.now() == 112.0


def test_a_sample_without_launches_takes_the_timer_overhead(play):
    device = play({"dot": {"seconds": 1e-4, "timer_overhead_s": 2e-6}})
    with device.measuring(RECORD, 0):
        assert batch(device, lambda: None).samples_s == (1e-4,)  # a Python step may launch what we do not see
        assert batch(device, launching(device)).samples_s == (1e-4,)
        assert batch(device, lambda: None, 2).samples_s == (2e-6, 2e-6)
    with device.measuring(RECORD, 1):
        assert batch(device, lambda: None).samples_s == (1e-4,)


def test_a_launch_fills_scratch_memory_with_zeros(device):
    parts = Buffer(Array("parts", "float32", (4,)), Role.SCRATCH)
    address = device.allocate(OUT_BYTES)
    device.fill(address, OUT_BYTES, 0xFF)
    with device.measuring(replace(RECORD, buffers=(OUT, parts)), 0):
        device.launch(b"", replace(LAUNCH, args=(BufferArg("parts"),)), (np.uint64(address),))
    assert device.view(address, "float32", (4,)).tolist() == [0, 0, 0, 0]


# --- conditions -------------------------------------------------------------------------------------------------------

HOT = {"slowdowns": ["thermal slowdown"], "temperature_c": 92, "sm_clock_hz": 1e9, "others": [17], "xids": [79]}


def test_an_idle_gpu_has_no_slowdowns_or_errors(play):
    assert play({"*": {"conditions": [HOT]}}).conditions() == Conditions()


# --- the blocking kernel ----------------------------------------------------------------------------------------------


def test_the_host_keeps_ahead_unless_more_is_queued_than_the_queue_takes(play):
    device = play({}, queue_depth=12)
    assert device.queue_depth == 12
    sample = launching(device)
    with device.measuring(RECORD, 0):
        held = batch(device, sample, 4)  # each a launch and two events
        assert (held.blocked, held.kept_ahead, device.now()) == (True, True, 4e-4)
        tripped = batch(device, sample, 5)
        assert (tripped.blocked, tripped.kept_ahead) == (True, False)
        assert device.now() == pytest.approx(9e-4 + fake.BLOCKING_LIMIT_S)


# --- results and faults -----------------------------------------------------------------------------------------------


def handed_out(device, expected):
    address = device.allocate(OUT_BYTES)
    out = np.zeros(4, np.float32)
    device.expect({"out": expected})
    device.launch(b"", LAUNCH, (np.uint64(address),))
    device.download(address, out)
    return out.tolist()


FIRST, OTHER = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 6.0, 7.0, 8.0])


def test_launches_write_what_is_expected_at_the_time(play):
    second = {None: [5.0, 6.0, 7.0, 8.0], "wrong": [6.0, 7.0, 8.0, 9.0], "caches": [1.0, 2.0, 3.0, 4.0]}
    for fault, expected in second.items():
        device = play({"dot": {"fault": fault}})
        with device.measuring(RECORD, 0):
            handed_out(device, FIRST)
            assert handed_out(device, OTHER) == expected
        with device.measuring(RECORD, 1):
            assert handed_out(device, FIRST) == [number + (fault == "wrong") for number in FIRST]


def test_the_scripted_fault_uses_other_streams(play):
    device = play({"dot": {"fault": "elsewhere", "replica": 1}})
    for replica in (0, 1):
        with device.measuring(RECORD, replica):
            assert device.uses_other_streams(lambda: None, 0.01, ()) is (replica == 1)


def test_a_lost_gpu_cannot_be_found_or_opened_until_its_marker_is_deleted(play, tmp_path):
    device = play({"dot": {"fault": "lost", "replica": 1}}, uuid="FAKE-7")
    script, marker = tmp_path / "script.json", tmp_path / "script.json.lost"
    with device.measuring(RECORD, 0):
        device.launch(b"", LAUNCH, (np.uint64(0),))
    assert not marker.exists()
    with device.measuring(RECORD, 1), pytest.raises(LaunchError, match="FAKE-7 was lost") as lost:
        device.launch(b"", LAUNCH, (np.uint64(0),))
    assert lost.value.fatal
    for refused in (fake.describe, FakeDevice):
        with pytest.raises(NoDeviceError, match="FAKE-7 is lost") as error:
            refused(script)
        assert str(marker) in error.value.cure
    marker.unlink()
    assert FakeDevice(script).info.uuid == "FAKE-7"


# --- the script -------------------------------------------------------------------------------------------------------


def test_a_script_describes_its_device(device, tmp_path):
    info = fake.describe(tmp_path / "script.json")
    assert info == device.info
    assert (info.kind, info.model, info.uuid, info.target) == ("fake", "Fake H100", "FAKE-0", "fake")
    assert info.spec == f"fake:{tmp_path / 'script.json'}"


def test_a_script_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "script.json"
    texts = (
        None,
        "",
        "[]",
        '{"case": {}}',
        '{"cases": {"*": {"seconds": "long"}}}',
        '{"cases": {"*": {"second": 1}}}',
        '{"cases": {"*": {"fault": "sulks"}}}',
        '{"cases": {"*": {"conditions": [{"temperature": 92}]}}}',
        '{"cases": {"*": {"conditions": [{"slowdowns": ["lunch"]}]}}}',
    )
    for text in texts:
        if text is not None:
            path.write_text(text)
        with pytest.raises(NoDeviceError) as error:
            FakeDevice(path)
        assert str(path) in error.value.what
        assert "fake:script.json" in error.value.cure


def test_the_noise_is_that_of_the_standard_library():
    noise = random.Random("7/dot/2")
    pace = math.exp(0.1 * noise.gauss())
    expected = [1e-4 * pace * math.exp(0.01 * noise.gauss()) for _ in range(1000)]
    assert list(islice(ScriptedCase(within=0.01, between=0.1).times(2, "7/dot"), 1000)) == expected
    scripted = ScriptedCase(seconds=((1e-4, 2e-4),), within=0.001)  # noise multiplies the scripted samples
    assert list(islice(scripted.times(0, ""), 4)) == pytest.approx([1e-4, 2e-4, 1e-4, 2e-4], rel=0.01)
