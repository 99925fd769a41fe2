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

BOARD, INSTANCE, OTHER_INSTANCE = "GPU-1", "MIG-a", "MIG-b"
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


class Library(types.ModuleType):
    """A management library with one GPU, or with one in MIG mode: a test changes what it says and what it refuses."""

    NVMLError = RefusedError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, nvmlEventTypeXidCriticalError = 1, 2, 0, 8
    NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1

    def __init__(self):
        super().__init__("pynvml")
        vars(self).update(FIELDS | REASONS | ERRORS)
        self.open, self.sets, self.calls = 0, 0, []
        self.refusals = {}  # by name of the call, the error's number
        self.boards, self.migs = [BOARD], {}
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
        if uuid not in {*self.boards, *itertools.chain(*self.migs.values())}:
            raise RefusedError(NOT_FOUND)
        return self.answer("nvmlDeviceGetHandleByUUID", uuid)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return next(board for board, instances in self.migs.items() if handle in instances)

    def nvmlDeviceGetGpuInstanceId(self, handle):
        if handle in self.boards:
            raise RefusedError(NOT_SUPPORTED)
        return {INSTANCE: 7, OTHER_INSTANCE: 9}[handle]

    def nvmlDeviceGetCount(self):
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index):
        if self.boards[index] == "lost":
            raise RefusedError(GPU_IS_LOST)
        return self.boards[index]

    def nvmlDeviceGetUUID(self, handle):
        return handle

    def nvmlDeviceGetMigMode(self, board):
        return self.answer("nvmlDeviceGetMigMode", [int(board in self.migs)] * 2)

    def nvmlDeviceGetMaxMigDeviceCount(self, board):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, board, index):
        found = self.migs[board][index] if index < len(self.migs[board]) else None
        if found is None:
            raise RefusedError(NOT_FOUND)
        return found

    def of_board(self, handle, call, answer):
        return self.answer(call if handle in self.boards else f"{call} of an instance", answer)

    def nvmlDeviceGetPowerManagementLimit(self, board):
        return self.of_board(board, "nvmlDeviceGetPowerManagementLimit", 700_000)

    def nvmlDeviceGetFieldValues(self, board, fields):
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
        return self.of_board(board, "nvmlDeviceGetFieldValues", values)

    def nvmlDeviceGetClockInfo(self, board, which):
        return self.of_board(board, f"clock {which}", self.clocks[which])

    def nvmlDeviceGetTemperature(self, board, sensor):
        return self.of_board(board, "nvmlDeviceGetTemperature", self.temperature)

    def nvmlDeviceGetPowerUsage(self, board):
        return self.of_board(board, "nvmlDeviceGetPowerUsage", 300_000)

    def nvmlDeviceGetCurrentClocksEventReasons(self, board):
        return self.of_board(board, "nvmlDeviceGetCurrentClocksEventReasons", self.reasons)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, board):
        return self.of_board(board, "nvmlDeviceGetCurrentClocksThrottleReasons", self.reasons)

    def nvmlDeviceGetTotalEnergyConsumption(self, board):
        return self.of_board(board, "nvmlDeviceGetTotalEnergyConsumption", self.millijoules)

    def nvmlEventSetCreate(self):
        self.sets += 1
        return "events"

    def nvmlDeviceRegisterEvents(self, board, kinds, events):
        assert (kinds, events) == (8, "events")
        self.of_board(board, "nvmlDeviceRegisterEvents", None)

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
    nvml.migs = {BOARD: [None, INSTANCE, None, OTHER_INSTANCE]}
    nvml.refusals["nvmlDeviceGetProcessUtilization"] = NOT_SUPPORTED
    return nvml


def claimed(nvml):
    """A GPU that this process has opened a context on, beside a notebook that was there before."""
    nvml.listed = [NOTEBOOK]
    board = GpuTelemetry(BOARD)
    nvml.listed = [NOTEBOOK, OUR_HOST_PID]
    board.recognise_own_process()
    return board


# --- what is here ----------------------------------------------------------------------------------------------------


def test_the_driver_and_the_power_limit_are_what_nvml_says(nvml):
    assert telemetry.driver_version() == "580.159.04"
    assert telemetry.power_limit_w(BOARD) == 700
    assert nvml.open == 0


def test_a_board_that_nvml_does_not_know_has_no_limit_and_nvml_is_closed_again(nvml):
    assert telemetry.power_limit_w("GPU-2") == 0
    assert (nvml.called("nvmlInit"), nvml.open) == (1, 0)


def test_a_machine_whose_driver_does_not_answer_says_nothing(nvml):
    nvml.refusals["nvmlInit"] = 9
    assert (telemetry.driver_version(), telemetry.power_limit_w(BOARD), telemetry.installed_gpus()) == ("", 0, [])
    assert GpuTelemetry(BOARD).read() == Conditions()


def test_a_machine_without_the_package_says_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (telemetry.driver_version(), telemetry.power_limit_w(BOARD), telemetry.installed_gpus()) == ("", 0, [])
    board = GpuTelemetry(BOARD)
    board.recognise_own_process()
    assert (board.read(), board.energy_j()) == (Conditions(), None)
    assert set(board.available_readings().values()) == {False}
    board.close()


def test_the_limit_of_an_instance_is_its_boards(mig):
    assert telemetry.power_limit_w(INSTANCE) == 700


def test_a_board_in_mig_mode_is_its_instances(mig):
    mig.boards = ["GPU-0", BOARD, "GPU-2"]
    assert telemetry.installed_gpus() == [
        InstalledGpu("GPU-0", "GPU-0", 0),
        InstalledGpu(INSTANCE, BOARD, 1),
        InstalledGpu(OTHER_INSTANCE, BOARD, 1),
        InstalledGpu("GPU-2", "GPU-2", 2),
    ]
    assert [device.is_instance for device in telemetry.installed_gpus()] == [False, True, True, False]


def test_a_board_in_mig_mode_without_instances_is_nothing(mig):
    mig.migs[BOARD] = []
    assert telemetry.installed_gpus() == []


def test_boards_that_have_no_such_mode_are_whole(nvml):
    nvml.refusals["nvmlDeviceGetMigMode"] = NOT_SUPPORTED
    assert telemetry.installed_gpus() == [InstalledGpu(BOARD, BOARD, 0)]


def test_a_lost_board_takes_no_other_with_it(nvml):
    nvml.boards = ["lost", BOARD]
    assert telemetry.installed_gpus() == [InstalledGpu(BOARD, BOARD, 1)]


# --- one GPU, look after look --------------------------------------------------------------------------------------


def test_a_look_tells_what_the_board_is_like_in_si_units(nvml):
    board = GpuTelemetry(BOARD)
    assert board.read() == Conditions(
        sm_clock_hz=1980e6, memory_clock_hz=2619e6, temperature_c=41, power_w=345, slowdowns=(), ecc_errors=0
    )
    assert board.energy_j() == 5000
    board.close()
    assert (nvml.open, nvml.sets) == (0, 0)


def test_a_look_asks_each_thing_once(nvml):
    board = claimed(nvml)
    nvml.calls.clear()
    board.read()
    assert sorted(nvml.calls) == [
        "clock 1",
        "clock 2",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetTemperature",
        "nvmlEventSetWait_v2",
    ]


def test_a_closed_board_sees_nothing(nvml):
    board = GpuTelemetry(BOARD)
    board.close()
    board.close()
    assert (board.read(), board.energy_j(), nvml.open) == (Conditions(), None, 0)


def test_a_board_that_nvml_does_not_know_sees_nothing_and_leaves_nvml_closed(nvml):
    board = GpuTelemetry("GPU-2")
    assert (board.read(), board.energy_j(), nvml.open) == (Conditions(), None, 0)


@pytest.mark.parametrize(
    ("reason", "slowdown"),
    [
        (0x4, (Slowdown.POWER_CAP,)),
        (0x20, (Slowdown.THERMAL,)),
        (0x8, (Slowdown.HARDWARE,)),
        (0x40, (Slowdown.HARDWARE,)),
        (0x80, (Slowdown.HARDWARE,)),
        (0x4 | 0x20 | 0x8 | 0x40, (Slowdown.POWER_CAP, Slowdown.THERMAL, Slowdown.HARDWARE)),
        (0x1, ()),  # idle
        (0x2, ()),  # application clocks
        (0x10, ()),  # sync boost
        (0x100, ()),  # display clocks
    ],
)
def test_the_reasons_for_the_present_clocks_are_slowdowns_or_none(nvml, reason, slowdown):
    nvml.reasons = reason
    assert GpuTelemetry(BOARD).read().slowdowns == slowdown


@pytest.mark.parametrize(
    ("field", "slowdown"),
    [
        (74, Slowdown.POWER_CAP),
        (75, Slowdown.THERMAL),
        (269, Slowdown.THERMAL),
        (270, Slowdown.HARDWARE),
        (271, Slowdown.HARDWARE),
    ],
)
def test_a_slowdown_between_two_looks_is_seen_once(nvml, field, slowdown):
    nvml.counters[field] = 1_000_000  # of before we came
    board = GpuTelemetry(BOARD)
    assert board.read().slowdowns == ()
    nvml.counters[field] += 1
    assert board.read().slowdowns == (slowdown,)
    assert board.read().slowdowns == ()


def test_errors_of_the_memory_are_those_since_the_last_look(nvml):
    nvml.counters[4] = 3
    board = GpuTelemetry(BOARD)
    assert board.read().ecc_errors == 0
    nvml.counters[4] = 5
    assert [board.read().ecc_errors, board.read().ecc_errors] == [2, 0]
    nvml.counters[4] = 1  # the driver was loaded anew
    assert board.read().ecc_errors == 0


def test_xids_are_those_since_the_last_look(nvml):
    board = GpuTelemetry(BOARD)
    nvml.xids = [(31, WHOLE), (79, WHOLE)]
    assert board.read().xids == (31, 79)
    assert board.read().xids == ()


def test_a_board_that_reports_without_end_does_not_hold_up_the_look(nvml):
    board = GpuTelemetry(BOARD)
    nvml.xids = [(48, WHOLE)] * 1000
    assert 0 < len(board.read().xids) < 1000


# --- what cannot be said ---------------------------------------------------------------------------------------------

REFUSABLE = [
    ("clock 1", "sm_clock_hz"),
    ("clock 2", "memory_clock_hz"),
    ("nvmlDeviceGetTemperature", "temperature_c"),
]


@pytest.mark.parametrize(("call", "reading"), REFUSABLE)
def test_what_is_not_supported_is_none_and_asked_once(nvml, call, reading):
    nvml.refusals[call] = NOT_SUPPORTED
    board = GpuTelemetry(BOARD)
    assert [getattr(board.read(), reading), getattr(board.read(), reading)] == [None, None]
    assert nvml.called(call) == 1
    assert len([value for value in (board.read().power_w, board.energy_j()) if value is not None]) == 2


@pytest.mark.parametrize(("call", "reading"), REFUSABLE)
def test_what_cannot_be_said_at_the_moment_is_asked_again(nvml, call, reading):
    nvml.refusals[call] = TIMEOUT
    board = GpuTelemetry(BOARD)
    assert getattr(board.read(), reading) is None
    del nvml.refusals[call]
    assert getattr(board.read(), reading) is not None


def test_an_older_driver_tells_the_reasons_under_their_older_name(nvml):
    nvml.refusals["nvmlDeviceGetCurrentClocksEventReasons"] = 13
    nvml.reasons = 0x20
    board = GpuTelemetry(BOARD)
    assert [board.read().slowdowns for _ in range(2)] == [(Slowdown.THERMAL,)] * 2
    assert nvml.called("nvmlDeviceGetCurrentClocksEventReasons") == 1
    assert board.available_readings()["slowdowns"]


def test_no_reasons_at_all_are_no_slowdowns(nvml):
    nvml.refusals |= dict.fromkeys(
        ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"], NOT_SUPPORTED
    )
    board = GpuTelemetry(BOARD)
    assert board.read().slowdowns == ()
    assert nvml.called("nvmlDeviceGetCurrentClocksThrottleReasons") == 1
    assert not board.available_readings()["slowdowns"]


def test_counters_that_a_board_lacks_are_asked_for_once_and_the_others_still_count(nvml):
    nvml.no_field = dict.fromkeys([4, 269, 270, 271], NOT_SUPPORTED)
    board = GpuTelemetry(BOARD)
    nvml.counters[74] += 1
    nvml.counters[4] += 1
    look = board.read()
    assert (look.slowdowns, look.ecc_errors) == ((Slowdown.POWER_CAP,), 0)
    assert nvml.asked_fields == [186, 74, 75]
    assert not board.available_readings()["ECC errors"]


def test_a_counter_that_is_not_there_at_the_moment_is_asked_for_again(nvml):
    board = GpuTelemetry(BOARD)
    nvml.no_field[4] = 21
    nvml.counters[4] = 1
    assert board.read().ecc_errors == 0
    nvml.no_field.clear()
    assert board.read().ecc_errors == 1


def test_a_board_without_any_counter_is_not_asked_for_none(nvml):
    nvml.no_field = dict.fromkeys(FIELDS.values(), NOT_SUPPORTED)
    board = GpuTelemetry(BOARD)
    assert board.read().slowdowns == ()
    assert nvml.called("nvmlDeviceGetFieldValues") == 1
    assert not board.available_readings()["slowdown counters"]


def test_a_driver_without_counters_is_asked_once(nvml):
    nvml.refusals["nvmlDeviceGetFieldValues"] = 13
    board = GpuTelemetry(BOARD)
    assert (board.read().slowdowns, board.read().power_w) == ((), 300)
    assert nvml.called("nvmlDeviceGetFieldValues") == 1


def test_a_board_without_the_power_of_the_instant_tells_that_of_the_last_second(nvml):
    nvml.no_field[186] = NOT_SUPPORTED
    assert GpuTelemetry(BOARD).read().power_w == 300
    nvml.refusals["nvmlDeviceGetPowerUsage"] = NOT_SUPPORTED
    assert GpuTelemetry(BOARD).read().power_w is None


def test_an_older_package_has_fewer_names_and_no_fewer_others(nvml):
    for name in ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", "NVML_ERROR_NOT_READY"):
        delattr(nvml, name)
    board = GpuTelemetry(BOARD)
    nvml.counters[271] += 1
    assert board.read().slowdowns == (Slowdown.HARDWARE,)


def test_a_call_that_the_package_does_not_have_is_not_supported(nvml, monkeypatch):
    monkeypatch.delattr(Library, "nvmlDeviceGetCurrentClocksEventReasons")
    nvml.reasons = 0x8
    assert GpuTelemetry(BOARD).read().slowdowns == (Slowdown.HARDWARE,)


def test_events_that_cannot_be_registered_are_none(nvml):
    nvml.refusals["nvmlDeviceRegisterEvents"] = NOT_SUPPORTED
    board = GpuTelemetry(BOARD)
    nvml.xids = [(31, WHOLE)]
    assert board.read().xids == ()
    assert (nvml.sets, nvml.called("nvmlEventSetWait_v2")) == (0, 0)
    assert not board.available_readings()["Xids"]
    board.close()
    assert nvml.open == 0


def test_a_lost_board_says_nothing_more_and_raises_nothing(nvml):
    board = claimed(nvml)
    nvml.xids = [(79, WHOLE)]
    assert board.read().xids == (79,)
    unasked = ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"]
    nvml.refusals |= dict.fromkeys([*nvml.calls, *unasked], GPU_IS_LOST)
    assert (board.read(), board.energy_j()) == (Conditions(), None)
    board.close()


def test_no_energy_is_counted_where_the_board_does_not(nvml):
    nvml.refusals["nvmlDeviceGetTotalEnergyConsumption"] = NOT_SUPPORTED
    board = GpuTelemetry(BOARD)
    assert [board.energy_j(), board.energy_j()] == [None, None]
    assert nvml.called("nvmlDeviceGetTotalEnergyConsumption") == 1


# --- others ----------------------------------------------------------------------------------------------------------


def test_others_are_those_that_worked_and_not_those_that_are_there(nvml):
    nvml.samples = [(NOTEBOOK, 100, 90)]  # before we came
    board = claimed(nvml)
    nvml.samples += [(OUR_HOST_PID, 200, 99), (NOTEBOOK, 200, 0)]
    assert board.read().others == ()
    nvml.samples += [(NOTEBOOK, 300, 1)]
    assert board.read().others == (NOTEBOOK,)
    assert board.read().others == ()


def test_where_utilisation_is_not_told_another_that_is_there_is_at_work(nvml):
    nvml.refusals["nvmlDeviceGetProcessUtilization"] = NOT_SUPPORTED
    board = claimed(nvml)
    assert [board.read().others, board.read().others] == [(NOTEBOOK,)] * 2
    assert nvml.called("nvmlDeviceGetProcessUtilization") == 1
    assert not board.available_readings()["process utilisation"]


def test_utilisation_that_is_not_told_at_the_moment_is_nobodys(nvml):
    board = claimed(nvml)
    nvml.refusals["nvmlDeviceGetProcessUtilization"] = 0  # the package raises success where the list is empty
    assert board.read().others == ()
    del nvml.refusals["nvmlDeviceGetProcessUtilization"]
    nvml.samples = [(NOTEBOOK, 100, 5)]
    assert board.read().others == (NOTEBOOK,)


def test_processes_that_cannot_be_listed_are_no_others(nvml):
    nvml.refusals["nvmlDeviceGetComputeRunningProcesses"] = 4
    board = claimed(nvml)
    nvml.samples = [(NOTEBOOK, 100, 5)]
    assert board.read().others == ()


# --- instances -------------------------------------------------------------------------------------------------------


def test_an_instance_has_its_boards_clocks_and_slowdowns_and_no_energy(mig):
    mig.reasons = 0x8
    board = GpuTelemetry(INSTANCE)
    look = board.read()
    assert (look.sm_clock_hz, look.temperature_c, look.power_w) == (1980e6, 41, 345)
    assert look.slowdowns == (Slowdown.HARDWARE,)
    assert board.energy_j() is None
    assert mig.called("nvmlDeviceGetTotalEnergyConsumption") == 0


def test_an_instance_hears_of_its_own_and_the_whole_boards_xids(mig):
    board = GpuTelemetry(INSTANCE)
    mig.xids = [(43, 9), (31, 7), (79, WHOLE)]
    assert board.read().xids == (31, 79)


def test_an_instance_has_its_own_processes(mig):
    mig.listed = [NOTEBOOK]
    board = GpuTelemetry(INSTANCE)
    assert mig.processes_of == INSTANCE
    mig.listed = [NOTEBOOK, os.getpid()]
    board.recognise_own_process()
    assert board.read().others == (NOTEBOOK,)


# --- what can be asked -----------------------------------------------------------------------------------------------


def test_a_board_tells_everything(nvml):
    assert telemetry.available_readings(BOARD) == dict.fromkeys(
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


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("clock 2", "clocks"),
        ("nvmlDeviceGetTemperature", "temperature"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy"),
        ("nvmlDeviceGetProcessUtilization", "process utilisation"),
    ],
)
def test_what_a_board_does_not_tell_is_told(nvml, call, missing):
    nvml.refusals[call] = NOT_SUPPORTED
    assert [topic for topic, told in telemetry.available_readings(BOARD).items() if not told] == [missing]


def test_every_name_that_is_asked_for_is_one_of_the_packages():
    pynvml = pytest.importorskip("pynvml")
    tree = ast.parse(Path(telemetry.__file__).read_text(encoding="utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    texts = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = {
        name for name in attributes | texts if name.lower().startswith(("nvml_", "nvmld", "nvmle", "nvmlc", "nvmls"))
    }
    assert len(names) > 40
    assert {name for name in names if not hasattr(pynvml, name)} == set()
