import os
import re
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from perfsvc import installation
from perfsvc.device import telemetry
from perfsvc.errors import NoCompilerError, NoDeviceError
from perfsvc.installation import install_command
from perfsvc.model import DeviceInfo
from perfsvc.profile import profiler, reports
from perfsvc.service import doctor
from perfsvc.store import Store

CPU = DeviceInfo("cpu", "cpu", "CPU-1", "a processor", "cpu-x86_64")
GPU = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H100 80GB HBM3", "sm_90", compute_capability="9.0")


class Compiler:
    version, path, targets = "nvcc 13.0.88", "/opt/nvcc", ("sm_80", "sm_90")

    def __init__(self, target):
        self.target = target


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with everything; a test may take parts away."""
    gpus = [GPU]
    monkeypatch.setattr(doctor, "find", lambda specs: list(gpus) if specs == ["cuda"] else [CPU])
    monkeypatch.setattr(doctor, "toolchain_for", Compiler)
    monkeypatch.setattr(doctor, "NvccToolchain", Compiler)
    monkeypatch.setattr(doctor, "_has_driver", lambda: True)
    monkeypatch.setattr(telemetry, "driver_version", lambda: "580.159.04")
    monkeypatch.setattr(telemetry, "available_readings", lambda uuid: {"clocks": True, "energy": True})
    monkeypatch.setattr(installation, "version", lambda package: "1.2.3")
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "cache"))
    return gpus


def raising(error):
    def fail(*_):
        raise error

    return fail


def rows(database=None):
    return {row.check: row for row in doctor.checkup(database)}


def test_a_machine_with_everything_has_nothing_to_cure(machine, tmp_path):
    place = tmp_path / "perfsvc.db"
    Store.open(place).close()
    checked = rows(str(place))
    assert [name for name, row in checked.items() if row.ok is False] == []
    assert [name for name, row in checked.items() if row.ok and row.cure] == []
    assert "9.0" in checked["GPU"].found
    assert "--device cuda:GPU-1" in checked["GPU"].found
    assert checked["CUDA driver"].found == "580.159.04"
    assert checked["nvcc for sm_90"].ok
    assert checked["build cache"].found == str(tmp_path / "cache")
    assert "schema" in checked["database"].found


def test_a_gpu_that_nvcc_does_not_know_is_found(machine):
    machine.append(replace(GPU, target="sm_120"))
    checked = rows()
    assert (checked["nvcc for sm_90"].ok, checked["nvcc for sm_120"].ok) == (True, False)
    assert "toolkit" in checked["nvcc for sm_120"].cure


@pytest.mark.parametrize(("driver", "expected"), [(True, False), (False, None)])
def test_gpu_requirements_are_optional_without_a_driver(machine, monkeypatch, driver, expected):
    monkeypatch.setattr(doctor, "_has_driver", lambda: driver)
    monkeypatch.setattr(installation, "version", lambda package: "" if package == "pycuda" else "1.2.3")
    monkeypatch.setattr(doctor, "NvccToolchain", raising(NoCompilerError("no nvcc", cure="get it")))
    no_gpu = raising(NoDeviceError("none", cure="plug one in"))
    monkeypatch.setattr(doctor, "find", lambda specs: [CPU] if specs == ["cpu"] else no_gpu())
    checked = [rows()[name] for name in ("PyCUDA", "nvcc", "GPUs")]
    assert [row.ok for row in checked] == [expected] * 3
    assert [row.cure for row in checked] == [install_command("cuda"), "get it", "plug one in"]


def test_a_check_that_raises_becomes_a_row_and_stops_no_other_check(machine, monkeypatch):
    monkeypatch.setattr(doctor, "find", raising(RuntimeError("the driver is upset")))
    monkeypatch.setattr(doctor, "toolchain_for", raising(NoCompilerError("no compiler", cure="install g++")))
    checked = rows()
    assert checked["CPU device"].found == "RuntimeError: the driver is upset"
    assert (checked["C++ compiler"].ok, checked["C++ compiler"].cure) == (False, "install g++")
    assert checked["git"].ok is not False


def test_a_cache_that_cannot_be_written_is_found_and_missing_programs_are_optional(machine, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("PATH", "/nowhere")
    checked = rows()
    assert checked["build cache"].ok is False
    assert (checked["git"].ok, checked["Nsight Compute"].ok) == (None, None)


def test_an_unusable_database_is_reported_with_a_cure_and_one_that_does_not_exist_yet_is_no_fault(machine, tmp_path):
    row = rows(str(tmp_path / "none.db"))["database"]
    assert (row.ok, row.cure) == (None, "perfsvc run makes it")
    for content in (b"", b"no database at all, but long enough to be looked at" * 40):
        (tmp_path / "bad.db").write_bytes(content)
        row = rows(str(tmp_path / "bad.db"))["database"]
        assert row.ok is False
        assert row.cure


def test_missing_nvml_is_reported_with_the_command_that_installs_it(machine, monkeypatch):
    monkeypatch.setattr(telemetry, "driver_version", lambda: "")
    assert rows()["NVML"].ok is None
    monkeypatch.setattr(installation, "version", lambda package: "")
    assert install_command("cuda") in rows()["NVML"].cure


def test_what_nvml_reports_of_each_gpu_is_shown(machine, monkeypatch):
    second = replace(GPU, spec="cuda:MIG-2", uuid="MIG-2")
    machine.append(second)
    answers = {
        GPU.uuid: {"clocks": True, "power": True, "energy": True},
        second.uuid: {"clocks": True, "power": True, "energy": False},
    }
    monkeypatch.setattr(telemetry, "available_readings", answers.get)
    first, instance = (row for row in doctor.checkup(None) if row.check == "telemetry")
    assert (first.ok, first.found, first.cure) == (True, "cuda:GPU-1 reports clocks, power, energy", "")
    assert (instance.ok, instance.found) == (None, "cuda:MIG-2 reports clocks, power; it does not report energy")
    assert "utility" in instance.cure
    monkeypatch.setattr(telemetry, "available_readings", lambda uuid: {"clocks": False})
    nothing = rows()["telemetry"]  # and yet it can be measured
    assert (nothing.ok, nothing.found) == (None, "cuda:MIG-2 reports nothing; it does not report clocks")
    machine.clear()
    assert "telemetry" not in rows()


def test_devices_are_the_gpus_and_the_cpu(machine):
    assert doctor.devices() == [GPU, CPU]
    assert doctor.toolkit(GPU) == "nvcc 13.0.88"


def test_a_machine_without_gpus_has_the_cpu_device_and_no_toolkit(machine, monkeypatch):
    monkeypatch.setattr(doctor, "find", lambda specs: [CPU] if specs == ["cpu"] else raising(NoDeviceError("none"))())
    monkeypatch.setattr(doctor, "toolchain_for", raising(NoCompilerError("none")))
    assert doctor.devices() == [CPU]
    assert doctor.toolkit(GPU) == ""


def test_every_required_package_is_checked_and_a_missing_one_is_named(machine, monkeypatch):
    required = {re.match(r"[\w.-]+", text)[0] for text in metadata.requires("perfsvc") if "extra ==" not in text}
    assert required == set(installation.REQUIRED)
    monkeypatch.setattr(installation, "version", lambda package: "" if package == "structlog" else "1.2.3")
    assert (rows()["packages"].ok, rows()["packages"].found) == (False, "missing: structlog")


@pytest.fixture
def stand_in(machine, monkeypatch):
    """Nsight Compute's stand-in on PATH."""
    folder = Path(__file__).parents[2] / "data" / "ncu_stand_in"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_nsight_compute_is_found_and_needs_the_package_that_reads_its_reports(stand_in, monkeypatch):
    row = rows()["Nsight Compute"]
    assert (row.ok, row.found) == (True, f"2025.3.1.0 ({stand_in / 'ncu'})")
    monkeypatch.setattr(reports, "find_spec", lambda _: None)
    row = rows()["Nsight Compute"]
    assert row.ok is None
    assert install_command("profile") in row.cure


@pytest.mark.slow
def test_whether_this_user_may_read_counters(stand_in, monkeypatch, tmp_path):
    monkeypatch.setattr(profiler, "DRIVER_PARAMETERS", tmp_path / "params")
    monkeypatch.setattr(profiler, "PROCESS_STATUS", tmp_path / "status")
    assert profiler.counters_readable() is None  # the driver does not report it
    assert "GPU counters" not in rows()
    readable = {
        ("0", "0000000000000000"): True,
        ("1", "0000000000200000"): True,
        ("1", "0000004000000000"): True,
        ("1", "00000000a80425fb"): None,
    }
    for (restricted, capabilities), ok in readable.items():
        (tmp_path / "params").write_text(f"EnableMSI: 1\nRmProfilingAdminOnly: {restricted}\nDmaRemapPeerMmio: 1\n")
        (tmp_path / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\nCapBnd:\t0\n")
        row = rows()["GPU counters"]
        assert row.ok is ok
        assert ok or "NVreg_RestrictProfilingToAdminUsers=0" in row.cure


def test_a_disassembler_is_found_and_optional(machine, monkeypatch, tmp_path):
    program = tmp_path / "nvdisasm"
    program.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.5, V13.5.37'\n")
    program.chmod(0o755)
    monkeypatch.setattr(doctor, "find_nvdisasm", lambda: program)
    assert (rows()["nvdisasm"].ok, rows()["nvdisasm"].found) == (True, f"nvdisasm 13.5.37 ({program})")
    monkeypatch.setattr(doctor, "find_nvdisasm", lambda: None)
    assert rows()["nvdisasm"].ok is None
    assert install_command("nvcc") in rows()["nvdisasm"].cure


def test_a_target_without_an_address_is_reported(machine, monkeypatch):
    monkeypatch.setenv("TEAM_URL", "json://user:hunter2@localhost")
    monkeypatch.delenv("MY_URL", raising=False)
    found = {row.check: row for row in doctor.checkup(None, {"team": "TEAM_URL", "me": "MY_URL"})}
    assert "messages to team" not in found
    assert (found["messages to me"].ok, found["messages to me"].cure) == (False, "set MY_URL where nights begin")
    assert "hunter2" not in str(found)


def test_the_messages_package_is_required_only_if_there_are_targets(machine, monkeypatch):
    monkeypatch.setattr(installation, "version", lambda package: "")
    monkeypatch.setenv("TEAM_URL", "json://localhost")
    (messages,) = (row for row in doctor.checkup(None, {"team": "TEAM_URL"}) if row.check == "messages")
    assert (rows()["messages"].ok, messages.ok, rows()["pages"].ok) == (None, False, None)
    assert install_command("nightly") in messages.cure
    assert install_command("nightly") in rows()["pages"].cure
