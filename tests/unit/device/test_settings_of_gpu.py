# ruff: noqa: N802, N815 (the scripted library has NVML's names)
"""The settings of a GPU for the full environment of a run, from a scripted NVML."""

import sys

import pytest

from perfsvc.device.telemetry import settings_of_gpu
from perfsvc.model import PARTS
from tests.unit.device.test_telemetry import GPU, INSTANCE, NOT_SUPPORTED, OTHER_INSTANCE, Library, RefusedError

REPORTED = {
    "gpu.application_memory_clock": "2619 MHz",
    "gpu.application_sm_clock": "1980 MHz",
    "gpu.compute_mode": "default",
    "gpu.ecc": "on",
    "gpu.mig": "off",
    "gpu.nvlinks": "2",
    "gpu.pcie_generation": "5",
    "gpu.pcie_width": "16",
    "gpu.persistence": "off",
    "gpu.vbios": "96.00.74.00.01",
}


def settings(call, answer):
    """A function of the library that answers a call about a setting."""
    return lambda library, gpu: library.setting(gpu, call, answer(library))


class Configured(Library):
    """A management library that also reports settings; the handle of an instance is refused."""

    NVML_NVLINK_MAX_LINKS = 18

    def __init__(self):
        super().__init__()
        self.links = [1, 0, 1]
        self.modes = {"Persistence": 0, "Compute": 0}

    def setting(self, gpu, call, answer):
        if gpu != GPU:
            raise RefusedError(NOT_SUPPORTED)
        return self.answer(call, answer)

    def nvmlDeviceGetApplicationsClock(self, gpu, which):
        return self.setting(gpu, "nvmlDeviceGetApplicationsClock", self.clocks[which])

    nvmlDeviceGetComputeMode = settings("nvmlDeviceGetComputeMode", lambda it: it.modes["Compute"])
    nvmlDeviceGetEccMode = settings("nvmlDeviceGetEccMode", lambda _: [1, 0])

    def nvmlDeviceGetNvLinkState(self, gpu, link):
        if link >= len(self.links):
            raise RefusedError(2)
        return self.setting(gpu, "nvmlDeviceGetNvLinkState", self.links[link])

    nvmlDeviceGetMaxPcieLinkGeneration = settings("nvmlDeviceGetMaxPcieLinkGeneration", lambda _: 5)
    nvmlDeviceGetCurrPcieLinkWidth = settings("nvmlDeviceGetCurrPcieLinkWidth", lambda _: 16)
    nvmlDeviceGetPersistenceMode = settings("nvmlDeviceGetPersistenceMode", lambda it: it.modes["Persistence"])
    nvmlDeviceGetVbiosVersion = settings("nvmlDeviceGetVbiosVersion", lambda _: "96.00.74.00.01")


@pytest.fixture
def nvml(monkeypatch):
    library = Configured()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_every_setting_is_reported_under_its_documented_name(nvml):
    assert settings_of_gpu(GPU) == REPORTED
    assert REPORTED.keys() <= PARTS.keys()
    assert nvml.open == 0


def test_a_changed_setting_is_reported_and_an_unknown_mode_is_absent(nvml):
    nvml.modes |= {"Persistence": 1, "Compute": 3}
    nvml.links = [1]
    changed = {"gpu.persistence": "on", "gpu.compute_mode": "exclusive process", "gpu.nvlinks": "1"}
    assert settings_of_gpu(GPU) == REPORTED | changed
    nvml.modes["Compute"] = 99
    assert "gpu.compute_mode" not in settings_of_gpu(GPU)


def test_a_setting_that_nvml_refuses_is_absent_and_hides_no_other(nvml):
    hidden = {
        "nvmlDeviceGetApplicationsClock": {"gpu.application_memory_clock", "gpu.application_sm_clock"},
        "nvmlDeviceGetComputeMode": {"gpu.compute_mode"},
        "nvmlDeviceGetEccMode": {"gpu.ecc"},
        "nvmlDeviceGetMigMode": {"gpu.mig"},
        "nvmlDeviceGetNvLinkState": {"gpu.nvlinks"},
        "nvmlDeviceGetMaxPcieLinkGeneration": {"gpu.pcie_generation"},
        "nvmlDeviceGetCurrPcieLinkWidth": {"gpu.pcie_width"},
        "nvmlDeviceGetPersistenceMode": {"gpu.persistence"},
        "nvmlDeviceGetVbiosVersion": {"gpu.vbios"},
    }
    for call, names in hidden.items():
        nvml.refusals = {call: NOT_SUPPORTED}
        assert settings_of_gpu(GPU).keys() == REPORTED.keys() - names


def test_a_package_without_a_call_hides_no_other_setting(nvml, monkeypatch):
    monkeypatch.delattr(Configured, "nvmlDeviceGetVbiosVersion")
    monkeypatch.delattr(Configured, "NVML_NVLINK_MAX_LINKS")
    assert settings_of_gpu(GPU).keys() == REPORTED.keys() - {"gpu.vbios", "gpu.nvlinks"}


def test_the_settings_of_an_instance_are_its_gpus(nvml):
    nvml.migs = {GPU: [None, INSTANCE, OTHER_INSTANCE]}
    assert settings_of_gpu(INSTANCE) == REPORTED | {"gpu.mig": "on"}


def test_an_unknown_gpu_has_no_settings_and_no_gpu_has_any_without_nvml(nvml, monkeypatch):
    assert settings_of_gpu("GPU-2") == {}
    assert nvml.open == 0
    nvml.refusals["nvmlInit"] = 9
    assert settings_of_gpu(GPU) == {}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert settings_of_gpu(GPU) == {}
