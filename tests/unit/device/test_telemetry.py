# ruff: noqa: N802, N815 (the scripted library has NVML's names)
import ast
import itertools
import os
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsvc.device import telemetry
from perfsvc.device.telemetry import GpuTelemetry, InstalledGpu
from perfsvc.model import Conditions, Slowdown

GPU, INSTANCE, OTHER_INSTANCE = "GPU-1", "MIG-a", "MIG-b"
WHOLE = 0xFFFFFFFF
NOT_SUPPORTED, NOT_FOUND, TIMEOUT, GPU_IS_LOST = 3, 6, 10, 15
OUR_HOST_PID, NOTEBOOK = 40170, 555

FIELDS = {
    "NVML_FI_DEV_ECC_DBE_VOL_TOTAL": 4,
    "NVML_FI_DEV_PERF_POLICY_POWER": 74,
    "NVML_FI_DEV_PERF_POLICY_THERMAL": 75,
    "NVML_FI_DEV_POWER_INSTANT": 186,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": 269,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": 270,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": 271,
}
REASONS = {
    "nvmlClocksEventReasonSwPowerCap": 0x4,
    "nvmlClocksEventReasonHwSlowdown": 0x8,
    "nvmlClocksEventReasonSwThermalSlowdown": 0x20,
    "nvmlClocksEventReasonHwThermalSlowdown": 0x40,
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": 0x80,
}
ERRORS = {
    "NVML_SUCCESS": 0,
    "NVML_ERROR_NOT_FOUND": NOT_FOUND,
    "NVML_ERROR_INSUFFICIENT_SIZE": 7,
    "NVML_ERROR_TIMEOUT": TIMEOUT,
    "NVML_ERROR_IN_USE": 19,
    "NVML_ERROR_NO_DATA": 21,
    "NVML_ERROR_NOT_READY": 27,
}


class RefusedError(Exception):
    def __init__(self, value):
        super().__init__(f"refused with {value}")
        self.value = value


def gets(call, answer):
    """A function of the library that answers a call about a GPU."""
    return lambda library, gpu, *_: library.of_gpu(gpu, call, answer(library))


class Library(types.ModuleType):
    """A management library with one GPU, or with one in MIG mode: a test changes its answers and refusals."""

    NVMLError = RefusedError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, nvmlEventTypeXidCriticalError = 1, 2, 0, 8
    NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1

    def __init__(self):
        super().__init__("pynvml")
        vars(self).update(FIELDS | REASONS | ERRORS)
        self.open, self.sets, self.calls = 0, 0, []
        self.refusals = {}  # by name of the call, the error's number
        self.gpus, self.migs = [GPU], {}
        self.counters = dict.fromkeys(FIELDS.values(), 0) | {186: 345_000}
        self.no_field = {}  # by number of the field, the error's number
        self.clocks, self.temperature, self.reasons, self.millijoules = {1: 1980, 2: 2619}, 41, 0, 5_000_000
        self.xids, self.listed, self.samples = [], [], []

    def answer(self, call, answer):
        self.calls.append(call)
        if call in self.refusals:
            raise RefusedError(self.refusals[call])
        return answer

    def called(self, call):
        return self.calls.count(call)

    def nvmlInit(self):
        self.answer("nvmlInit", None)
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return self.answer("nvmlSystemGetDriverVersion", "580.159.04")

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in {*self.gpus, *itertools.chain(*self.migs.values())}:
            raise RefusedError(NOT_FOUND)
        return self.answer("nvmlDeviceGetHandleByUUID", uuid)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return next(gpu for gpu, instances in self.migs.items() if handle in instances)

    def nvmlDeviceGetGpuInstanceId(self, handle):
        if handle in self.gpus:
            raise RefusedError(NOT_SUPPORTED)
        return {INSTANCE: 7, OTHER_INSTANCE: 9}[handle]

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        if self.gpus[index] == "lost":
            raise RefusedError(GPU_IS_LOST)
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle):
        return handle

    def nvmlDeviceGetMigMode(self, gpu):
        return self.answer("nvmlDeviceGetMigMode", [int(gpu in self.migs)] * 2)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu, index):
        found = self.migs[gpu][index] if index < len(self.migs[gpu]) else None
        if found is None:
            raise RefusedError(NOT_FOUND)
        return found

    def of_gpu(self, handle, call, answer):
        return self.answer(call if handle in self.gpus else f"{call} of an instance", answer)

    nvmlDeviceGetPowerManagementLimit = gets("nvmlDeviceGetPowerManagementLimit", lambda _: 700_000)

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        values = [
            SimpleNamespace(
                fieldId=field,
                nvmlReturn=self.no_field.get(field, 0),
                valueType=1 if field == 186 else 3,
                value=SimpleNamespace(**{"uiVal" if field == 186 else "ullVal": self.counters[field]}),
            )
            for field in fields
        ]
        self.asked_fields = list(fields)
        return self.of_gpu(gpu, "nvmlDeviceGetFieldValues", values)

    def nvmlDeviceGetClockInfo(self, gpu, which):
        return self.of_gpu(gpu, f"clock {which}", self.clocks[which])

    nvmlDeviceGetTemperature = gets("nvmlDeviceGetTemperature", lambda library: library.temperature)
    nvmlDeviceGetPowerUsage = gets("nvmlDeviceGetPowerUsage", lambda _: 300_000)
    nvmlDeviceGetCurrentClocksEventReasons = gets("nvmlDeviceGetCurrentClocksEventReasons", lambda it: it.reasons)
    nvmlDeviceGetCurrentClocksThrottleReasons = gets("nvmlDeviceGetCurrentClocksThrottleReasons", lambda it: it.reasons)
    nvmlDeviceGetTotalEnergyConsumption = gets("nvmlDeviceGetTotalEnergyConsumption", lambda it: it.millijoules)

    def nvmlEventSetCreate(self):
        self.sets += 1
        return "events"

    def nvmlDeviceRegisterEvents(self, gpu, kinds, events):
        assert (kinds, events) == (8, "events")
        self.of_gpu(gpu, "nvmlDeviceRegisterEvents", None)

    def nvmlEventSetWait_v2(self, events, timeout_ms):
        assert (events, timeout_ms) == ("events", 0)
        self.answer("nvmlEventSetWait_v2", None)
        if not self.xids:
            raise RefusedError(TIMEOUT)
        xid, instance = self.xids.pop(0)
        return SimpleNamespace(eventData=xid, gpuInstanceId=instance)

    def nvmlEventSetFree(self, events):
        self.sets -= 1

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        self.processes_of = handle
        return self.answer("nvmlDeviceGetComputeRunningProcesses", [SimpleNamespace(pid=pid) for pid in self.listed])

    def nvmlDeviceGetProcessUtilization(self, handle, since):
        fresh = [
            SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=busy) for pid, stamp, busy in self.samples if stamp > since
        ]
        self.answer("nvmlDeviceGetProcessUtilization", None)
        if not fresh:
            raise RefusedError(NOT_FOUND)
        return fresh


@pytest.fixture
def nvml(monkeypatch):
    library = Library()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


@pytest.fixture
def mig(nvml):
    nvml.migs = {GPU: [None, INSTANCE, None, OTHER_INSTANCE]}
    nvml.refusals["nvmlDeviceGetProcessUtilization"] = NOT_SUPPORTED
    return nvml


def claimed(nvml):
    """A GPU on which this process has a context; a notebook was there before."""
    nvml.listed = [NOTEBOOK]
    gpu = GpuTelemetry(GPU)
    nvml.listed = [NOTEBOOK, OUR_HOST_PID]
    gpu.recognise_own_process()
    return gpu


# --- what is here ----------------------------------------------------------------------------------------------------


def test_driver_and_power_limit_come_from_nvml(mig):
    assert telemetry.driver_version() == "580.159.04"
    assert telemetry.power_limit_w(GPU) == telemetry.power_limit_w(INSTANCE) == 700
    assert mig.open == 0


def test_an_unknown_gpu_has_no_values_and_nvml_is_closed(nvml):
    assert telemetry.power_limit_w("GPU-2") == 0
    assert (nvml.called("nvmlInit"), nvml.open) == (1, 0)
    gpu = GpuTelemetry("GPU-2")
    assert (gpu.read(), gpu.energy_j(), nvml.open) == (Conditions(), None, 0)


def test_a_driver_that_does_not_answer_gives_empty_values(nvml):
    nvml.refusals["nvmlInit"] = 9
    assert (telemetry.driver_version(), telemetry.power_limit_w(GPU), telemetry.installed_gpus()) == ("", 0, [])
    assert GpuTelemetry(GPU).read() == Conditions()


def test_without_pynvml_all_values_are_empty(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (telemetry.driver_version(), telemetry.power_limit_w(GPU), telemetry.installed_gpus()) == ("", 0, [])
    gpu = GpuTelemetry(GPU)
    gpu.recognise_own_process()
    assert (gpu.read(), gpu.energy_j()) == (Conditions(), None)
    assert set(gpu.available_readings().values()) == {False}
    gpu.close()


def test_a_gpu_in_mig_mode_is_listed_as_its_instances(mig):
    mig.gpus = ["GPU-0", GPU, "GPU-2"]
    assert telemetry.installed_gpus() == [
        InstalledGpu("GPU-0", "GPU-0", 0),
        InstalledGpu(INSTANCE, GPU, 1),
        InstalledGpu(OTHER_INSTANCE, GPU, 1),
        InstalledGpu("GPU-2", "GPU-2", 2),
    ]
    assert [device.is_instance for device in telemetry.installed_gpus()] == [False, True, True, False]


def test_a_gpu_without_mig_is_whole_one_without_instances_is_not_listed_and_a_lost_one_hides_no_other(nvml):
    nvml.gpus = ["lost", GPU]
    assert telemetry.installed_gpus() == [InstalledGpu(GPU, GPU, 1)]
    nvml.migs[GPU] = []
    assert telemetry.installed_gpus() == []
    nvml.refusals["nvmlDeviceGetMigMode"] = NOT_SUPPORTED
    assert telemetry.installed_gpus() == [InstalledGpu(GPU, GPU, 1)]


# --- one GPU, look after look --------------------------------------------------------------------------------------


def test_a_reading_is_in_si_units(nvml):
    gpu = GpuTelemetry(GPU)
    assert gpu.read() == Conditions(
        sm_clock_hz=1980e6, memory_clock_hz=2619e6, temperature_c=41, power_w=345, slowdowns=(), ecc_errors=0
    )
    assert gpu.energy_j() == 5000
    gpu.close()
    assert (nvml.open, nvml.sets) == (0, 0)


def test_a_reading_makes_each_call_once(nvml):
    gpu = claimed(nvml)
    nvml.calls.clear()
    gpu.read()
    assert sorted(nvml.calls) == [
        "clock 1",
        "clock 2",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetTemperature",
        "nvmlEventSetWait_v2",
    ]


def test_closed_telemetry_reads_nothing(nvml):
    gpu = GpuTelemetry(GPU)
    gpu.close()
    gpu.close()
    assert (gpu.read(), gpu.energy_j(), nvml.open) == (Conditions(), None, 0)


def test_only_some_reasons_for_the_clocks_are_slowdowns(nvml):
    table = {
        0x4: (Slowdown.POWER_CAP,),
        0x20: (Slowdown.THERMAL,),
        0x8: (Slowdown.HARDWARE,),
        0x40: (Slowdown.HARDWARE,),
        0x80: (Slowdown.HARDWARE,),
        0x4 | 0x20 | 0x8 | 0x40: (Slowdown.POWER_CAP, Slowdown.THERMAL, Slowdown.HARDWARE),
        **dict.fromkeys((0x1, 0x2, 0x10, 0x100), ()),  # idle, application clocks, sync boost, display clocks
    }
    found = {}
    for reason in table:
        nvml.reasons = reason
        found[reason] = GpuTelemetry(GPU).read().slowdowns
    assert found == table


def test_a_slowdown_between_two_readings_is_reported_once(nvml):
    fields = {
        74: Slowdown.POWER_CAP,
        75: Slowdown.THERMAL,
        269: Slowdown.THERMAL,
        270: Slowdown.HARDWARE,
        271: Slowdown.HARDWARE,
    }
    for field, slowdown in fields.items():
        nvml.counters[field] = 1_000_000  # from before we came
        gpu = GpuTelemetry(GPU)
        assert gpu.read().slowdowns == ()
        nvml.counters[field] += 1
        assert gpu.read().slowdowns == (slowdown,)
        assert gpu.read().slowdowns == ()


def test_memory_errors_are_those_since_the_last_reading(nvml):
    nvml.counters[4] = 3
    gpu = GpuTelemetry(GPU)
    assert gpu.read().ecc_errors == 0
    nvml.counters[4] = 5
    assert [gpu.read().ecc_errors, gpu.read().ecc_errors] == [2, 0]
    nvml.counters[4] = 1  # the driver was loaded anew
    assert gpu.read().ecc_errors == 0


def test_xids_are_those_since_the_last_reading_and_endless_events_do_not_delay_it(nvml):
    gpu = GpuTelemetry(GPU)
    nvml.xids = [(31, WHOLE), (79, WHOLE)]
    assert gpu.read().xids == (31, 79)
    assert gpu.read().xids == ()
    nvml.xids = [(48, WHOLE)] * 1000
    assert 0 < len(gpu.read().xids) < 1000


# --- missing readings ---------------------------------------------------------------------------------------

REFUSABLE = {"clock 1": "sm_clock_hz", "clock 2": "memory_clock_hz", "nvmlDeviceGetTemperature": "temperature_c"}


def test_an_unsupported_reading_is_none_and_asked_once_and_a_temporary_refusal_is_asked_again(nvml):
    for call, reading in REFUSABLE.items():
        nvml.refusals = {call: NOT_SUPPORTED}
        nvml.calls.clear()
        gpu = GpuTelemetry(GPU)
        assert [getattr(gpu.read(), reading), getattr(gpu.read(), reading)] == [None, None]
        assert nvml.called(call) == 1
        assert len([value for value in (gpu.read().power_w, gpu.energy_j()) if value is not None]) == 2
        nvml.refusals = {call: TIMEOUT}
        gpu = GpuTelemetry(GPU)
        assert getattr(gpu.read(), reading) is None
        nvml.refusals.clear()
        assert getattr(gpu.read(), reading) is not None


def test_an_older_driver_has_an_older_name_for_the_reasons(nvml):
    nvml.refusals["nvmlDeviceGetCurrentClocksEventReasons"] = 13
    nvml.reasons = 0x20
    gpu = GpuTelemetry(GPU)
    assert [gpu.read().slowdowns for _ in range(2)] == [(Slowdown.THERMAL,)] * 2
    assert nvml.called("nvmlDeviceGetCurrentClocksEventReasons") == 1
    assert gpu.available_readings()["slowdowns"]


def test_without_reasons_there_are_no_slowdowns(nvml):
    nvml.refusals |= dict.fromkeys(
        ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"], NOT_SUPPORTED
    )
    gpu = GpuTelemetry(GPU)
    assert gpu.read().slowdowns == ()
    assert nvml.called("nvmlDeviceGetCurrentClocksThrottleReasons") == 1
    assert not gpu.available_readings()["slowdowns"]


def test_missing_counters_are_asked_for_once_and_the_others_still_count(nvml):
    nvml.no_field = dict.fromkeys([4, 269, 270, 271], NOT_SUPPORTED)
    gpu = GpuTelemetry(GPU)
    nvml.counters[74] += 1
    nvml.counters[4] += 1
    look = gpu.read()
    assert (look.slowdowns, look.ecc_errors) == ((Slowdown.POWER_CAP,), 0)
    assert nvml.asked_fields == [186, 74, 75]
    assert not gpu.available_readings()["ECC errors"]


def test_a_counter_that_is_unavailable_now_is_asked_for_again(nvml):
    gpu = GpuTelemetry(GPU)
    nvml.no_field[4] = 21
    nvml.counters[4] = 1
    assert gpu.read().ecc_errors == 0
    nvml.no_field.clear()
    assert gpu.read().ecc_errors == 1


def test_a_gpu_without_counters_is_not_asked_for_counters_again(nvml):
    nvml.no_field = dict.fromkeys(FIELDS.values(), NOT_SUPPORTED)
    gpu = GpuTelemetry(GPU)
    assert gpu.read().slowdowns == ()
    assert nvml.called("nvmlDeviceGetFieldValues") == 1
    assert not gpu.available_readings()["slowdown counters"]
    nvml.calls.clear()
    nvml.refusals["nvmlDeviceGetFieldValues"] = 13  # the driver has no such call
    gpu = GpuTelemetry(GPU)
    assert (gpu.read().slowdowns, gpu.read().power_w) == ((), 300)
    assert nvml.called("nvmlDeviceGetFieldValues") == 1


def test_without_present_power_the_mean_of_the_last_second_is_read(nvml):
    nvml.no_field[186] = NOT_SUPPORTED
    assert GpuTelemetry(GPU).read().power_w == 300
    nvml.refusals["nvmlDeviceGetPowerUsage"] = NOT_SUPPORTED
    assert GpuTelemetry(GPU).read().power_w is None


def test_an_older_pynvml_still_reports_other_processes(nvml):
    for name in ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", "NVML_ERROR_NOT_READY"):
        delattr(nvml, name)
    gpu = GpuTelemetry(GPU)
    nvml.counters[271] += 1
    assert gpu.read().slowdowns == (Slowdown.HARDWARE,)


def test_a_call_that_pynvml_does_not_have_is_unsupported(nvml, monkeypatch):
    monkeypatch.delattr(Library, "nvmlDeviceGetCurrentClocksEventReasons")
    nvml.reasons = 0x8
    assert GpuTelemetry(GPU).read().slowdowns == (Slowdown.HARDWARE,)


def test_without_registered_events_there_are_no_xids(nvml):
    nvml.refusals["nvmlDeviceRegisterEvents"] = NOT_SUPPORTED
    gpu = GpuTelemetry(GPU)
    nvml.xids = [(31, WHOLE)]
    assert gpu.read().xids == ()
    assert (nvml.sets, nvml.called("nvmlEventSetWait_v2")) == (0, 0)
    assert not gpu.available_readings()["Xids"]
    gpu.close()
    assert nvml.open == 0


def test_a_lost_gpu_has_empty_conditions(nvml):
    gpu = claimed(nvml)
    nvml.xids = [(79, WHOLE)]
    assert gpu.read().xids == (79,)
    unasked = ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"]
    nvml.refusals |= dict.fromkeys([*nvml.calls, *unasked], GPU_IS_LOST)
    assert (gpu.read(), gpu.energy_j()) == (Conditions(), None)
    gpu.close()


def test_there_is_no_energy_without_a_counter(nvml):
    nvml.refusals["nvmlDeviceGetTotalEnergyConsumption"] = NOT_SUPPORTED
    gpu = GpuTelemetry(GPU)
    assert [gpu.energy_j(), gpu.energy_j()] == [None, None]
    assert nvml.called("nvmlDeviceGetTotalEnergyConsumption") == 1


# --- others ----------------------------------------------------------------------------------------------------------


def test_others_are_processes_that_worked(nvml):
    nvml.samples = [(NOTEBOOK, 100, 90)]  # before we came
    gpu = claimed(nvml)
    nvml.samples += [(OUR_HOST_PID, 200, 99), (NOTEBOOK, 200, 0)]
    assert gpu.read().others == ()
    nvml.samples += [(NOTEBOOK, 300, 1)]
    assert gpu.read().others == (NOTEBOOK,)
    assert gpu.read().others == ()


def test_without_utilisation_a_listed_process_is_at_work(nvml):
    nvml.refusals["nvmlDeviceGetProcessUtilization"] = NOT_SUPPORTED
    gpu = claimed(nvml)
    assert [gpu.read().others, gpu.read().others] == [(NOTEBOOK,)] * 2
    assert nvml.called("nvmlDeviceGetProcessUtilization") == 1
    assert not gpu.available_readings()["process utilisation"]


def test_without_utilisation_now_no_process_is_reported(nvml):
    gpu = claimed(nvml)
    nvml.refusals["nvmlDeviceGetProcessUtilization"] = 0  # the package raises success where the list is empty
    assert gpu.read().others == ()
    del nvml.refusals["nvmlDeviceGetProcessUtilization"]
    nvml.samples = [(NOTEBOOK, 100, 5)]
    assert gpu.read().others == (NOTEBOOK,)


def test_without_a_list_no_other_process_is_reported(nvml):
    nvml.refusals["nvmlDeviceGetComputeRunningProcesses"] = 4
    gpu = claimed(nvml)
    nvml.samples = [(NOTEBOOK, 100, 5)]
    assert gpu.read().others == ()


# --- instances -------------------------------------------------------------------------------------------------------


def test_an_instance_has_its_gpus_clocks_slowdowns_and_xids_besides_its_own_and_no_energy(mig):
    mig.reasons = 0x8
    gpu = GpuTelemetry(INSTANCE)
    mig.xids = [(43, 9), (31, 7), (79, WHOLE)]
    look = gpu.read()
    assert (look.sm_clock_hz, look.temperature_c, look.power_w) == (1980e6, 41, 345)
    assert look.slowdowns == (Slowdown.HARDWARE,)
    assert look.xids == (31, 79)
    assert gpu.energy_j() is None
    assert mig.called("nvmlDeviceGetTotalEnergyConsumption") == 0


def test_an_instance_has_its_own_processes(mig):
    mig.listed = [NOTEBOOK]
    gpu = GpuTelemetry(INSTANCE)
    assert mig.processes_of == INSTANCE
    mig.listed = [NOTEBOOK, os.getpid()]
    gpu.recognise_own_process()
    assert gpu.read().others == (NOTEBOOK,)


# --- what can be asked -----------------------------------------------------------------------------------------------


def test_all_readings_are_available(nvml):
    assert telemetry.available_readings(GPU) == dict.fromkeys(
        [
            "clocks",
            "temperature",
            "power",
            "slowdowns",
            "slowdown counters",
            "ECC errors",
            "Xids",
            "energy",
            "process utilisation",
        ],
        True,
    )
    assert nvml.open == 0


def test_an_unavailable_reading_is_listed(nvml):
    missing = {
        "clock 2": ["clocks"],
        "nvmlDeviceGetTemperature": ["temperature"],
        "nvmlDeviceGetTotalEnergyConsumption": ["energy"],
        "nvmlDeviceGetProcessUtilization": ["process utilisation"],
    }
    found = {}
    for call in missing:
        nvml.refusals = {call: NOT_SUPPORTED}
        found[call] = [topic for topic, here in telemetry.available_readings(GPU).items() if not here]
    assert found == missing


def test_every_nvml_name_exists_in_pynvml():
    pynvml = pytest.importorskip("pynvml")
    tree = ast.parse(Path(telemetry.__file__).read_text(encoding="utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    texts = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = {
        name for name in attributes | texts if name.lower().startswith(("nvml_", "nvmld", "nvmle", "nvmlc", "nvmls"))
    }
    assert len(names) > 40
    assert {name for name in names if not hasattr(pynvml, name)} == set()
