import sys
import types

import pytest

from perfsvc.device import telemetry


class RefusedError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch):
    """A management library that knows one board and counts how often it was opened and closed."""
    module = types.ModuleType("pynvml")
    module.NVMLError, module.open, module.asked = RefusedError, 0, []

    def init():
        module.open += 1

    def shutdown():
        module.open -= 1

    def board(uuid):
        module.asked.append(uuid)
        if uuid != "GPU-1":
            raise RefusedError
        return 1

    module.nvmlInit, module.nvmlShutdown = init, shutdown
    module.nvmlSystemGetDriverVersion = lambda: "580.159.04"
    module.nvmlDeviceGetHandleByUUID = board
    module.nvmlDeviceGetPowerManagementLimit = lambda handle: 700_000
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_the_driver_and_the_power_limit_are_what_nvml_says(nvml):
    assert telemetry.driver_version() == "580.159.04"
    assert telemetry.power_limit_w("GPU-1") == 700
    assert nvml.open == 0


def test_a_board_that_nvml_does_not_know_has_no_limit_and_nvml_is_closed_again(nvml):
    assert telemetry.power_limit_w("GPU-2") == 0
    assert (nvml.asked, nvml.open) == (["GPU-2"], 0)


def test_a_machine_whose_driver_does_not_answer_says_nothing(nvml):
    def refuse():
        raise RefusedError

    nvml.nvmlInit = refuse
    assert (telemetry.driver_version(), telemetry.power_limit_w("GPU-1")) == ("", 0)


def test_a_machine_without_the_package_says_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (telemetry.driver_version(), telemetry.power_limit_w("GPU-1")) == ("", 0)
