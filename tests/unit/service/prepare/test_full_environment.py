"""What is recorded of a run's GPUs, host and software: on stand-ins for /proc and /sys, and on this machine."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perfsvc import build
from perfsvc.model import ALWAYS, PARTS, DeviceInfo, Difference, Environment, FullEnvironment, differences
from perfsvc.service.prepare import full_environment as recording
from perfsvc.service.prepare.full_environment import full_environment, host_parts, package_parts, variable_parts
from perfsvc.service.prepare.targets import Target

GPU = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H200", "sm_90")
FAKE = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake", driver="1.0", power_limit_w=700.0)
KNOWN = Environment("580.1", "nvcc 13.0.88", 700.0, 8)


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# --- host ------------------------------------------------------------------------------------------------------------


def test_a_host_without_proc_and_sys_has_no_limits_governor_and_nodes(tmp_path):
    parts = host_parts(tmp_path)
    names = ("host.cpu_limit", "host.memory_limit", "host.governor", "host.numa_nodes")
    assert [parts[name] for name in names] == [""] * 4
    assert int(parts["host.cpus"]) >= 1
    assert parts["host.kernel"]


@pytest.mark.parametrize(
    ("files", "governor"),
    [
        ({"policy0": "performance\n", "policy4": "performance\n"}, "performance"),
        ({"policy0": "schedutil\n", "policy4": "performance\n"}, "performance, schedutil"),
        ({"policy0": "\n"}, ""),
    ],
)
def test_the_governors_of_all_processors_are_named_once(tmp_path, files, governor):
    folder = "sys/devices/system/cpu/cpufreq"
    write(tmp_path, {f"{folder}/{policy}/scaling_governor": text for policy, text in files.items()})
    assert host_parts(tmp_path)["host.governor"] == governor


@pytest.mark.parametrize(
    ("listed", "nodes"), [("0\n", "1"), ("0-1\n", "2"), ("0-3,6\n", "5"), ("", ""), ("nonsense\n", ""), ("0-x", "")]
)
def test_numa_nodes_are_counted(tmp_path, listed, nodes):
    write(tmp_path, {"sys/devices/system/node/online": listed})
    assert host_parts(tmp_path)["host.numa_nodes"] == nodes


V1_UNLIMITED = "9223372036854771712"


@pytest.mark.parametrize(
    ("cgroup", "files", "cpus", "memory"),
    [
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n", "memory.max": "8589934592\n"}, "2", "8 GiB", id="v2"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"}, "", "", id="v2 without limits"),
        pytest.param("0::/\n", {"cpu.max": "0 0\n", "memory.max": "many\n"}, "", "", id="nonsense"),
        pytest.param(
            "0::/pods/one\n",
            {
                "cpu.max": "max 100000\n",
                "pods/cpu.max": "150000 100000",
                "pods/one/cpu.max": "400000 100000\n",
                "pods/memory.max": "4294967296",
                "pods/one/memory.max": "2147483648",
            },
            "1.5",
            "2 GiB",
            id="the smallest limit of the groups around it",
        ),
        pytest.param("0::/docker/abc\n", {"cpu.max": "50000 100000\n"}, "0.5", "", id="a folder of outside"),
        pytest.param("0::/../../etc\n", {"cpu.max": "50000 100000\n"}, "0.5", "", id="a path that leads up"),
        pytest.param(
            "5:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/a\n",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "300000\n",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "memory/a/memory.limit_in_bytes": "1610612736\n",
                "memory/memory.limit_in_bytes": V1_UNLIMITED,
            },
            "3",
            "1.5 GiB",
            id="v1",
        ),
        pytest.param("garbage\n:::\n", {}, "", "", id="garbage"),
    ],
)
def test_the_limits_of_a_container_are_read(tmp_path, cgroup, files, cpus, memory):
    write(tmp_path, {"proc/self/cgroup": cgroup})
    write(tmp_path / "sys/fs/cgroup", files)
    parts = host_parts(tmp_path)
    assert (parts["host.cpu_limit"], parts["host.memory_limit"]) == (cpus, memory)


# --- variables -------------------------------------------------------------------------------------------------------


def test_only_variables_of_the_named_prefixes_are_recorded():
    environment = {
        "CUDA_LAUNCH_BLOCKING": "1",
        "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "4",
        "TORCH_LOGS": "",
        "TRITON_CACHE_DIR": "/t",
        "PERFSVC_DB": "x",
        "HOME": "/root",
        "XCUDA_A": "1",
        "cuda_b": "1",
        "CUDA": "1",
        "NCCL_ALGO EXTRA": "1",
    }
    assert variable_parts(environment) == {
        f"variable.{name}": environment[name]
        for name in ("CUDA_LAUNCH_BLOCKING", "NCCL_ALGO", "OMP_NUM_THREADS", "TORCH_LOGS", "TRITON_CACHE_DIR")
    }


@pytest.mark.parametrize(
    ("name", "value", "recorded"),
    [
        ("NCCL_AUTH_TOKEN", "hunter2", "***"),
        ("TORCH_API_KEY", "hunter2", "***"),
        ("CUDA_SECRET", "hunter2", "***"),
        ("TRITON_PASSWD", "hunter2", "***"),
        ("TORCH_INDEX", "https://ann:hunter2@host/x", "https://***@host/x"),
        ("TORCH_INDEX", "https://hunter2@host/x", "https://***@host/x"),
        ("TORCH_DB", "postgresql://u@h/db?password=hunter2", "postgresql://***@h/db?password=***"),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", "^lo,docker"),
    ],
)
def test_secrets_are_not_recorded(name, value, recorded):
    assert variable_parts({name: value}) == {f"variable.{name}": recorded}


def recorded_variables(monkeypatch, environment):
    """Return the variables in the environment of a run that has this environment."""
    monkeypatch.setattr(recording.os, "environ", environment)
    found = full_environment([], {}).common
    return {name: value for name, value in found.items() if name.startswith("variable.")}


def test_long_values_are_bounded_and_still_differ(monkeypatch):
    long = "x" * 1_000_000
    first, second = (
        recorded_variables(monkeypatch, {"NCCL_X": value})["variable.NCCL_X"] for value in (f"{long}a", f"{long}b")
    )
    assert first != second
    assert len(first) < 400
    assert first.startswith("x" * 300 + "… (1000001 characters")


def test_the_number_of_variables_is_bounded(monkeypatch):
    found = recorded_variables(monkeypatch, {f"NCCL_{number:05}": "1" for number in range(5000)})
    assert len(found) == 200


def test_a_value_that_is_no_unicode_is_recorded_as_text(monkeypatch):
    value = recorded_variables(monkeypatch, {"CUDA_X": os.fsdecode(b"a\xff")})["variable.CUDA_X"]
    assert value == "a\\udcff"


def test_an_empty_variable_differs_from_an_unset_one(monkeypatch):
    assert recorded_variables(monkeypatch, {"CUDA_VISIBLE_DEVICES": ""}) == {"variable.CUDA_VISIBLE_DEVICES": ""}


# --- packages --------------------------------------------------------------------------------------------------------


def test_imported_packages_have_versions(tmp_path):
    text = "import os\nimport pytest as p\nfrom yaml.nodes import Node\nimport helper\nimport nothing_of_this_name\n"
    write(tmp_path, {"helper.py": "import coverage\nimport helper\n"})
    parts = package_parts({text: tmp_path})
    assert parts["package.pytest"] == pytest.__version__
    assert {"package.numpy", "package.sqlalchemy"} <= parts.keys()
    assert not {"package.os", "package.helper", "package.nothing_of_this_name"} & parts.keys()


def test_a_package_of_another_name_than_its_module_is_found():
    assert recording._packages_of("dateutil") == ("python-dateutil",)
    assert recording._packages_of("nothing_of_this_name") == ()


def test_modules_beside_a_benchmark_file_are_searched_for_imports(tmp_path):
    write(tmp_path, {"helper.py": "import pytest\n"})
    assert "package.pytest" in package_parts({"import helper": tmp_path})
    assert "package.pytest" not in package_parts({"import other": tmp_path})


def test_a_text_that_is_no_python_names_no_packages(tmp_path):
    assert package_parts({"def (": tmp_path}) == package_parts({})


# --- a run -----------------------------------------------------------------------------------------------------------


def test_a_gpu_has_its_settings_and_its_versions(monkeypatch):
    monkeypatch.setattr(recording, "settings_of_gpu", lambda uuid: {"gpu.ecc": f"on in {uuid}", "gpu.vbios": ""})
    targets = [Target(device, (), build.toolchain_for(FAKE.target)) for device in (GPU, FAKE)]
    found = full_environment(targets, {"GPU-1": KNOWN, "FAKE-1": replace(KNOWN, driver="", power_limit_w=0.0)})
    assert found.devices == {
        "GPU-1": {
            "gpu.ecc": "on in GPU-1",
            "gpu.power_limit": "700 W",
            "run.places": "8",
            "software.driver": "580.1",
            "software.toolkit": "nvcc 13.0.88",
        },
        "FAKE-1": {"run.places": "8", "software.toolkit": "nvcc 13.0.88"},
    }
    assert found.devices["GPU-1"].keys() >= ALWAYS


def test_every_recorded_part_is_documented(monkeypatch):
    monkeypatch.setenv("CUDA_X", "1")
    found = full_environment([Target(FAKE, (), build.toolchain_for(FAKE.target))], {"FAKE-1": KNOWN})
    fixed = {name for name in PARTS if not name.endswith("*")}
    recorded = {*found.common, *found.devices["FAKE-1"]}
    assert {name for name in recorded if not name.startswith(("package.", "variable."))} <= fixed
    page = Path(__file__).parents[4] / "docs" / "how-to" / "see-what-changed.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in PARTS if f"`{name}`" not in text] == []


def test_recording_is_quick():
    full_environment([], {})  # versions of packages are cached
    began = time.perf_counter()
    full_environment([], {})
    assert time.perf_counter() - began < 0.05


# --- differences -----------------------------------------------------------------------------------------------------


def test_equal_environments_have_no_differences():
    one = FullEnvironment({"host.kernel": "6.1"}, {"A": {"gpu.ecc": "on"}})
    assert differences(one, FullEnvironment(dict(one.common), dict(one.devices))) == ()


def test_differences_are_sorted_by_name_and_name_the_devices():
    before = FullEnvironment(
        {"host.kernel": "6.1", "variable.CUDA_X": "1"}, {uuid: {"gpu.ecc": "on", "gpu.mig": "off"} for uuid in "ABC"}
    )
    off = {"gpu.ecc": "off", "gpu.mig": "off"}
    after = FullEnvironment(
        {"host.kernel": "6.2", "variable.CUDA_Y": ""}, {"A": off, "B": off, "C": {"gpu.mig": "off"}, "D": off}
    )
    assert differences(before, after) == (
        Difference("gpu.ecc", "on", "off", ("A", "B")),
        Difference("gpu.ecc", "on", None, ("C",)),
        Difference("host.kernel", "6.1", "6.2"),
        Difference("variable.CUDA_X", "1", None),
        Difference("variable.CUDA_Y", None, ""),
    )


def test_the_only_devices_of_two_runs_are_compared():
    before, after = FullEnvironment({}, {"A": {"gpu.ecc": "on"}}), FullEnvironment({}, {"B": {"gpu.ecc": "off"}})
    assert differences(before, after) == (Difference("gpu.ecc", "on", "off", ("B",)),)
    many = FullEnvironment({}, {"C": {"gpu.ecc": "off"}, "D": {"gpu.ecc": "off"}})
    assert differences(before, many) == ()


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ((), []),
        (("gpu.ecc",), ["gpu.ecc"]),
        (("variable.NCCL_*", "gpu.*"), ["gpu.ecc", "variable.NCCL_A", "variable.NCCL_B"]),
        (("*",), ["gpu.ecc", "host.kernel", "variable.CUDA_X", "variable.NCCL_A", "variable.NCCL_B"]),
        (("software.*", "variable.nccl_*"), []),
    ],
)
def test_patterns_choose_parts_beyond_those_that_every_environment_has(patterns, names):
    common = {"host.kernel": "6.1", "variable.NCCL_B": "b", "variable.NCCL_A": "a", "variable.CUDA_X": "1"}
    device = {"gpu.ecc": "on", "gpu.power_limit": "700 W", "software.driver": "1", "software.toolkit": "2"}
    full = FullEnvironment(common, {"GPU-1": device | {"run.places": "8"}, "GPU-2": {"gpu.mig": "on"}})
    chosen = full.chosen("GPU-1", patterns)
    assert [name for name, _ in chosen] == names
    assert all(value == {**common, **device}[name] for name, value in chosen)


def test_a_changed_part_is_a_change_of_the_environment():
    before = replace(KNOWN, parts=(("gpu.ecc", "on"), ("host.kernel", "6.1")))
    after = replace(KNOWN, driver="590.1", parts=(("gpu.ecc", "off"), ("variable.CUDA_X", "1")))
    assert before.changes_to(after) == (
        "driver 580.1 → 590.1",
        "gpu.ecc on → off",
        "host.kernel 6.1 → none",
        "variable.CUDA_X none → 1",
    )
    assert before.changes_to(before) == ()


def test_what_the_hosts_of_a_cluster_have_in_common_is_common():
    targets = [Target(device, (), build.toolchain_for(FAKE.target)) for device in (GPU, FAKE)]
    known = {"GPU-1": KNOWN, "FAKE-1": KNOWN}
    remote = {
        "GPU-1": ({"host.name": "a", "host.kernel": "6.1"}, {"gpu.ecc": "on"}),
        "FAKE-1": ({"host.name": "b", "host.kernel": "6.1"}, {}),
    }
    found = full_environment(targets, known, remote)
    assert found.common == {"host.kernel": "6.1"}
    assert {uuid: found.devices[uuid]["host.name"] for uuid in known} == {"GPU-1": "a", "FAKE-1": "b"}
    assert found.devices["GPU-1"]["gpu.ecc"] == "on"
    assert found.devices["GPU-1"]["software.driver"] == KNOWN.driver


@pytest.mark.parametrize("answered", [["GPU-1"], []])
def test_a_gpu_whose_host_did_not_answer_has_no_environment(answered):
    targets = [Target(device, (), build.toolchain_for(FAKE.target)) for device in (GPU, FAKE)]
    known = {"GPU-1": KNOWN, "FAKE-1": KNOWN}
    found = full_environment(targets, known, {uuid: ({"host.kernel": "6.1"}, {}) for uuid in answered})
    assert found.common == ({"host.kernel": "6.1"} if answered else {})
    assert list(found.devices) == answered
