import os
import textwrap
from dataclasses import replace

import pytest

from perfsvc.device import telemetry
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
    """A whole GPU and two in MIG mode; what was asked of a process of its own is noted."""
    asked = []

    def alone(uuids):
        asked.extend(uuids)
        return [info for info in (WHOLE, A, B, C) if info.uuid in asked]

    monkeypatch.setattr(telemetry, "installed_gpus", lambda: MIXED)
    monkeypatch.setattr("perfsvc.device.find._describe_in_processes", alone)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return asked


def test_what_cuda_hides_is_asked_for_and_all_stand_in_the_order_of_the_boards(machine):
    assert add_hidden_devices([B]) == [WHOLE, A, B, C]
    assert machine == ["GPU-0", "MIG-a", "MIG-c"]


def test_an_instance_that_cuda_shows_under_the_wrong_name_is_asked_for_too(machine):
    assert add_hidden_devices([replace(A, uuid="GPU-a", spec="cuda:GPU-a")]) == [WHOLE, A, B, C]


def test_a_device_that_no_process_can_see_is_left_out(machine, monkeypatch):
    monkeypatch.setattr(
        "perfsvc.device.find._describe_in_processes", lambda uuids: [info for info in (A, C) if info.uuid in uuids]
    )
    assert add_hidden_devices([B]) == [A, B, C]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("MIG-c,MIG-a", [C, A]),
        ("mig-c", [C]),
        ("1", [A, B]),
        ("GPU-1", [A, B]),
        ("2, 0", [C, WHOLE]),
        ("MIG-b,1", [B, A]),
        ("0,9,1", [WHOLE]),  # as CUDA does it: what is there no device ends the list
        ("-1", []),
        ("", []),
        ("0,", [WHOLE]),
    ],
)
def test_what_the_user_made_visible_is_all_there_is(machine, monkeypatch, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert add_hidden_devices([replace(A, uuid="GPU-a")]) == expected


def test_a_machine_without_instances_is_what_cuda_shows(machine, monkeypatch):
    monkeypatch.setattr(telemetry, "installed_gpus", lambda: MIXED[:1])
    assert add_hidden_devices([WHOLE, replace(WHOLE, uuid="GPU-9")]) == [WHOLE, replace(WHOLE, uuid="GPU-9")]
    monkeypatch.setattr(telemetry, "installed_gpus", list)  # there is no NVML
    assert add_hidden_devices([WHOLE]) == [WHOLE]
    assert machine == []


def test_a_process_that_sees_what_it_was_given_does_not_wait_for_nvml(machine, monkeypatch):
    monkeypatch.setattr(telemetry, "installed_gpus", lambda: pytest.fail("NVML was asked"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-b")
    assert add_hidden_devices([B]) == [B]


@pytest.fixture
def children(monkeypatch, tmp_path):
    """Processes in which CUDA shows the one device that they were given, unless it is ``MIG-broken``."""
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
    boards = [
        InstalledGpu("MIG-a", "GPU-1", 0),
        InstalledGpu("MIG-broken", "GPU-1", 0),
        InstalledGpu("MIG-b", "GPU-1", 0),
    ]
    monkeypatch.setattr(telemetry, "installed_gpus", lambda: boards)
    found = add_hidden_devices([A])
    assert [info.uuid for info in found] == ["MIG-a", "MIG-b"]
    assert found[1] == DeviceInfo("cuda", "cuda:MIG-b", "MIG-b", "H100 MIG 1g.10gb", "sm_90", l2_bytes=1234)
