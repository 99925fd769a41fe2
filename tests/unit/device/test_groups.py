"""Groups: which GPUs form one, what it is called, and what a device does that stands in for one."""

import numpy as np
import pytest

from perfsvc.device.cpu import CpuDevice
from perfsvc.device.find import find
from perfsvc.device.groups import best_group, group
from perfsvc.model import DeviceInfo
from perfsvc.service.prepare.targets import with_groups

GPUS = [DeviceInfo("cuda", f"cuda:GPU-{letter}", f"GPU-{letter}", "H100", "sm_90") for letter in "abcd"]


def linked(*pairs):
    """What connects two GPUs: NVLink between these, PCIe between all others."""
    return lambda first, second: "NVLink" if first[-1] + second[-1] in pairs else "PCIe"


def test_a_group_joins_the_names_of_its_gpus_and_counts_them():
    pair = group(GPUS[:2], "NVLink")
    assert (pair.spec, pair.uuid, pair.model) == ("cuda:GPU-a+GPU-b", "GPU-a+GPU-b", "2 × H100")
    assert (pair.gpus, pair.members, pair.interconnect) == (2, ("GPU-a", "GPU-b"), "NVLink")
    assert (GPUS[0].gpus, GPUS[0].members) == (1, ("GPU-a",))


def test_the_group_is_the_first_whose_slowest_connection_is_the_fastest():
    table = {
        ((), 2): "GPU-a+GPU-b",
        (("bd",), 2): "GPU-b+GPU-d",
        (("bc", "bd", "cd"), 3): "GPU-b+GPU-c+GPU-d",
        (("ab", "bc", "bd"), 3): "GPU-a+GPU-b+GPU-c",  # no three are all connected by NVLink
    }
    assert {(pairs, gpus): best_group(GPUS, gpus, linked(*pairs)).uuid for pairs, gpus in table} == table


def test_each_connection_is_asked_for_once():
    asked = []
    best_group(GPUS, 3, lambda first, second: asked.append((first, second)) or "PCIe")
    assert len(asked) == len(set(asked)) == 6


def test_a_group_is_formed_again_only_if_all_its_gpus_are_here():
    found = list(with_groups(find(["cpu"]) * 1, ["CPU-0+CPU-1"]))
    assert [device.gpus for device in found] == [1]


@pytest.fixture
def device():
    (info,) = find(["cpu+cpu"])
    assert info.gpus == 2
    opened = CpuDevice(info)
    yield opened
    opened.close()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_an_all_reduce_combines_the_arrays_of_all_gpus_on_each(device, dtype):
    arrays = [np.array(values).astype(dtype) for values in ([1, 2, 3], [3, 2, 1])]
    sources = [device.on(gpu).allocate(arrays[gpu].nbytes) for gpu in (0, 1)]
    targets = [device.on(gpu).allocate(arrays[gpu].nbytes) for gpu in (0, 1)]
    for source, array in zip(sources, arrays, strict=True):
        device.upload(source, array)
    for operation, expected in {"sum": [4, 4, 4], "min": [1, 2, 1], "max": [3, 2, 3]}.items():
        device.all_reduce(sources, targets, dtype, 3, operation)
        for target in targets:
            assert device.view(target, dtype, (3,)).astype(int).tolist() == expected


def test_a_copy_between_gpus_arrives(device):
    source, target = device.on(0).allocate(16), device.on(1).allocate(16)
    device.fill(source, 16, 7)
    device.fill(target, 16, 0)
    device.peer_copy((1, target), (0, source), 16)
    assert device.view(target, "uint8", (16,)).tolist() == [7] * 16
