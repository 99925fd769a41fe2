import os
import textwrap
from dataclasses import replace

import pytest

from perfsvc.device import find, telemetry
from perfsvc.device.find import add_hidden_devices
from perfsvc.device.telemetry import InstalledGpu
from perfsvc.model import DeviceInfo

WHOLE = DeviceInfo("cuda", "cuda:GPU-0", "GPU-0", "NVIDIA H100 80GB HBM3", "sm_90", l2_bytes=50 << 20)


def instance(uuid):
    return replace(
        WHOLE, spec=f"cuda:{uuid}", uuid=uuid, model="NVIDIA H100 80GB HBM3 MIG 1g.10gb", memory_bytes=10 << 30
    )


A, B, C = instance("MIG-a"), instance("MIG-b"), instance("MIG-c")
MIXED = [
    InstalledGpu("GPU-0", "GPU-0", 0),
    InstalledGpu("MIG-a", "GPU-1", 1),
    InstalledGpu("MIG-b", "GPU-1", 1),
    InstalledGpu("MIG-c", "GPU-2", 2),
]


@pytest.fixture
def machine(monkeypatch):
    """A whole GPU and two in MIG mode; returns the devices that were described in processes of their own."""
    asked = []

    def alone(uuids):
        asked.extend(uuids)
        return [info for info in (WHOLE, A, B, C) if info.uuid in asked]

    monkeypatch.setattr(telemetry, "installed_gpus", lambda: MIXED)
    monkeypatch.setattr("perfsvc.device.find._describe_in_processes", alone)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return asked


def test_hidden_devices_are_described_and_sorted_by_gpu(machine):
    assert add_hidden_devices([B]) == [WHOLE, A, B, C]
    assert machine == ["GPU-0", "MIG-a", "MIG-c"]


def test_an_instance_under_a_wrong_uuid_is_described_again(machine):
    assert add_hidden_devices([replace(A, uuid="GPU-a", spec="cuda:GPU-a")]) == [WHOLE, A, B, C]


def test_a_device_that_no_process_can_describe_is_omitted(machine, monkeypatch):
    monkeypatch.setattr(
        "perfsvc.device.find._describe_in_processes", lambda uuids: [info for info in (A, C) if info.uuid in uuids]
    )
    assert add_hidden_devices([B]) == [A, B, C]


def test_only_visible_devices_are_listed(machine, monkeypatch):
    table = {
        "MIG-c,MIG-a": [C, A],
        "mig-c": [C],
        "1": [A, B],
        "GPU-1": [A, B],
        "2, 0": [C, WHOLE],
        "MIG-b,1": [B, A],
        "0,9,1": [WHOLE],  # as in CUDA, an entry without a device ends the list
        "-1": [],
        "": [],
        "0,": [WHOLE],
    }
    found = {}
    for visible in table:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found[visible] = add_hidden_devices([replace(A, uuid="GPU-a")])
    assert found == table


def test_without_instances_the_devices_are_those_of_cuda(machine, monkeypatch):
    monkeypatch.setattr(telemetry, "installed_gpus", lambda: MIXED[:1])
    assert add_hidden_devices([WHOLE, replace(WHOLE, uuid="GPU-9")]) == [WHOLE, replace(WHOLE, uuid="GPU-9")]
    monkeypatch.setattr(telemetry, "installed_gpus", list)  # there is no NVML
    assert add_hidden_devices([WHOLE]) == [WHOLE]
    assert machine == []


def test_a_process_that_sees_all_its_devices_does_not_use_nvml(machine, monkeypatch):
    monkeypatch.setattr(telemetry, "installed_gpus", lambda: pytest.fail("NVML was asked"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-b")
    assert add_hidden_devices([B]) == [B]


@pytest.fixture
def children(monkeypatch, tmp_path):
    """Processes in which CUDA shows the one visible device, unless it is ``MIG-broken``."""
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent("""
        import os, sys, types
        from perfsvc.model import DeviceInfo

        def devices():
            uuid = os.environ["CUDA_VISIBLE_DEVICES"]
            if uuid == "MIG-broken":
                raise RuntimeError("no such device")
            return [DeviceInfo("cuda", f"cuda:{uuid}", uuid, "H100 MIG 1g.10gb", "sm_90", l2_bytes=1234)]

        listing = types.ModuleType("perfsvc.device.cuda.listing")
        listing.devices = devices
        sys.modules[listing.__name__] = listing
        """)
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def test_each_hidden_device_describes_itself_to_a_process_that_sees_nothing_else(monkeypatch, children):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = [
        InstalledGpu("MIG-a", "GPU-1", 0),
        InstalledGpu("MIG-broken", "GPU-1", 0),
        InstalledGpu("MIG-b", "GPU-1", 0),
    ]
    monkeypatch.setattr(telemetry, "installed_gpus", lambda: gpus)
    found = add_hidden_devices([A])
    assert [info.uuid for info in found] == ["MIG-a", "MIG-b"]
    assert found[1] == DeviceInfo("cuda", "cuda:MIG-b", "MIG-b", "H100 MIG 1g.10gb", "sm_90", l2_bytes=1234)


def test_no_module_in_the_working_directory_runs(tmp_path, monkeypatch):
    """As in a clone that brings a folder ``perfsvc``: commands such as ``perfsvc doctor`` must run none of its code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perfsvc").mkdir()
    (tmp_path / "perfsvc" / "__init__.py").write_text("open('canary', 'w').close()")
    assert not list(find._describe_in_processes(["GPU-that-is-not-here"]))
    assert not (tmp_path / "canary").exists()
