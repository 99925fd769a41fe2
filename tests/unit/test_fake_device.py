"""The fake device's script, and that it plays it."""

import json

import pytest

from perfsvc.device import fake
from perfsvc.device.fake import Entry, FakeDevice, Script
from perfsvc.errors import NoDeviceError
from perfsvc.model import Case, Kind, ReplayRecord

CASE = Case("dot", "tree", (("n", 1000),))


def entries(*keys):
    return Script(cases={key: Entry(seconds=float(number)) for number, key in enumerate(keys, 1)})


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (("*", "dot", "dot/tree", "dot/tree[n=1000]"), 4.0),
        (("dot/tree[n=1000]", "dot/tree", "dot", "*"), 1.0),
        (("*", "dot", "dot/tree", "dot/tree[n=9]"), 3.0),
        (("*", "dot", "dot/other"), 2.0),
        (("*", "transpose"), 1.0),
        ((), 1e-4),
    ],
)
def test_the_most_special_entry_counts(keys, found):
    assert entries(*keys).entry(CASE).seconds == found


@pytest.mark.parametrize(
    ("seconds", "samples"),
    [
        (0.5, [(0.5,), (0.5,), (0.5,)]),
        ((0.1, 0.2), [(0.1,), (0.2,), (0.1,)]),
        (((0.1, 0.2), 0.3), [(0.1, 0.2), (0.3,), (0.1, 0.2)]),
    ],
)
def test_seconds_are_one_number_or_one_entry_a_replica(seconds, samples):
    assert [Entry(seconds).samples(replica) for replica in range(3)] == samples


@pytest.fixture
def device(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"model": "Fake H100", "cases": {"dot": {"seconds": [[1.0, 2.0, 3.0], 9.0]}}}))
    return FakeDevice(path)


def test_samples_are_played_in_order_over_all_batches(device):
    record = ReplayRecord(CASE, Kind.KERNEL, (), (), (), "", seed=0)
    ran = []
    with device.measuring(record, 0, {}):
        played = [device.time(lambda: ran.append(1), count, clock="device", cold=True) for count in (2, 2, 1)]
    assert played == [[1.0, 2.0], [3.0, 1.0], [2.0]]
    assert ran
    with device.measuring(record, 1, {}):
        assert device.time(lambda: None, 2, clock="host", cold=False) == [9.0, 9.0]


def test_a_script_describes_its_device(device, tmp_path):
    info = fake.describe(tmp_path / "script.json")
    assert info == device.info
    assert (info.kind, info.model, info.uuid, info.target) == ("fake", "Fake H100", "FAKE-0", "fake")
    assert info.spec == f"fake:{tmp_path / 'script.json'}"


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"cases": {"*": {"seconds": "long"}}}', '{"cases": {"*": {"second": 1}}}', '{"case": {}}']
)
def test_a_script_that_cannot_be_read_is_named(tmp_path, text):
    path = tmp_path / "script.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(NoDeviceError) as error:
        FakeDevice(path)
    assert str(path) in error.value.what
    assert "fake:script.json" in error.value.cure
