"""What is recorded of a run's GPUs, host and software: on stand-ins for /proc and /sys, and on this machine."""

import os
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


def test_the_governors_of_all_processors_are_named_once(tmp_path):
    governors = {
        ("performance\n", "performance\n"): "performance",
        ("schedutil\n", "performance\n"): "performance, schedutil",
        ("\n",): "",
    }
    for place, (texts, governor) in enumerate(governors.items()):
        folder = tmp_path / str(place)
        files = {f"policy{number}/scaling_governor": text for number, text in enumerate(texts)}
        write(folder / "sys/devices/system/cpu/cpufreq", files)
        assert host_parts(folder)["host.governor"] == governor


def test_numa_nodes_are_counted(tmp_path):
    nodes = {"0\n": "1", "0-1\n": "2", "0-3,6\n": "5", "": "", "nonsense\n": "", "0-x": ""}
    for listed, count in nodes.items():
        write(tmp_path, {"sys/devices/system/node/online": listed})
        assert host_parts(tmp_path)["host.numa_nodes"] == count


V1_UNLIMITED = "9223372036854771712"
LIMITS = {
    "v2": ("0::/\n", {"cpu.max": "200000 100000\n", "memory.max": "8589934592\n"}, "2", "8 GiB"),
    "v2 without limits": ("0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"}, "", ""),
    "nonsense": ("0::/\n", {"cpu.max": "0 0\n", "memory.max": "many\n"}, "", ""),
    "the smallest limit of the groups around it": (
        "0::/pods/one\n",
        {
            "cpu.max": "max 100000\n",
            "pods/cpu.max": "150000 100000",
            "pods/one/cpu.max": "400000 100000\n",
            "pods/memory.max": "4294967296",
            "pods/one/memory.max": "2147483648",
        },
        *("1.5", "2 GiB"),
    ),
    "a folder of outside": ("0::/docker/abc\n", {"cpu.max": "50000 100000\n"}, "0.5", ""),
    "a path that leads up": ("0::/../../etc\n", {"cpu.max": "50000 100000\n"}, "0.5", ""),
    "v1": (
        "5:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/a\n",
        {
            "cpu,cpuacct/a/cpu.cfs_quota_us": "300000\n",
            "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "memory/a/memory.limit_in_bytes": "1610612736\n",
            "memory/memory.limit_in_bytes": V1_UNLIMITED,
        },
        *("3", "1.5 GiB"),
    ),
    "garbage": ("garbage\n:::\n", {}, "", ""),
}
"""The groups of a process, the files of the groups, and the limits of processors and memory."""


def test_the_limits_of_a_container_are_read(tmp_path):
    for name, (cgroup, files, cpus, memory) in LIMITS.items():
        write(tmp_path / name, {"proc/self/cgroup": cgroup})
        write(tmp_path / name / "sys/fs/cgroup", files)
        parts = host_parts(tmp_path / name)
        assert (parts["host.cpu_limit"], parts["host.memory_limit"]) == (cpus, memory), name


# --- variables -------------------------------------------------------------------------------------------------------


def test_only_variables_of_the_named_prefixes_are_recorded():
    ours = {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "4", "TORCH_LOGS": "", "TRITON_C": "/"}
    others = dict.fromkeys(("PERFSVC_DB", "HOME", "XCUDA_A", "cuda_b", "CUDA", "NCCL_ALGO EXTRA"), "1")
    assert variable_parts(ours | others) == {f"variable.{name}": value for name, value in ours.items()}


RECORDED = {
    ("NCCL_AUTH_TOKEN", "hunter2"): "***",
    ("TORCH_API_KEY", "hunter2"): "***",
    ("CUDA_SECRET", "hunter2"): "***",
    ("TRITON_PASSWD", "hunter2"): "***",
    ("TORCH_INDEX", "https://ann:hunter2@host/x"): "https://***@host/x",
    ("TORCH_INDEX", "https://hunter2@host/x"): "https://***@host/x",
    ("TORCH_DB", "postgresql://u@h/db?password=hunter2"): "postgresql://***@h/db?password=***",
    ("NCCL_SOCKET_IFNAME", "^lo,docker"): "^lo,docker",
}


def test_secrets_are_not_recorded():
    assert {(name, value): variable_parts({name: value})[f"variable.{name}"] for name, value in RECORDED} == RECORDED


def recorded_variables(monkeypatch, environment):
    """Return the variables in the environment of a run that has this environment."""
    monkeypatch.setattr(recording.os, "environ", environment)
    found = full_environment([], {}).common
    return {name: value for name, value in found.items() if name.startswith("variable.")}


def test_long_values_and_the_number_of_variables_are_bounded_and_long_values_still_differ(monkeypatch):
    long = "x" * 1_000_000
    first, second = recorded_variables(monkeypatch, {"NCCL_A": f"{long}a", "NCCL_B": f"{long}b"}).values()
    assert first != second
    assert len(first) < 400
    assert first.startswith("x" * 300 + "… (1000001 characters")
    assert len(recorded_variables(monkeypatch, {f"NCCL_{number:05}": "1" for number in range(5000)})) == 200


def test_a_value_that_is_no_unicode_or_empty_is_recorded_as_text(monkeypatch):
    found = recorded_variables(monkeypatch, {"CUDA_X": os.fsdecode(b"a\xff"), "CUDA_VISIBLE_DEVICES": ""})
    assert found == {"variable.CUDA_X": "a\\udcff", "variable.CUDA_VISIBLE_DEVICES": ""}


# --- packages --------------------------------------------------------------------------------------------------------


def test_imported_packages_have_versions(tmp_path):
    text = "import os\nimport pytest as p\nfrom yaml.nodes import Node\nimport helper\nimport nothing_of_this_name\n"
    write(tmp_path, {"helper.py": "import coverage\nimport helper\n"})
    parts = package_parts({text: tmp_path})
    assert parts["package.pytest"] == pytest.__version__
    assert {"package.numpy", "package.sqlalchemy"} <= parts.keys()
    assert not {"package.os", "package.helper", "package.nothing_of_this_name"} & parts.keys()
    assert recording._packages_of("dateutil") == ("python-dateutil",)


def test_modules_beside_a_benchmark_file_are_searched_for_imports(tmp_path):
    write(tmp_path, {"helper.py": "import pytest\n"})
    assert "package.pytest" in package_parts({"import helper": tmp_path})
    assert "package.pytest" not in package_parts({"import other": tmp_path})
    assert package_parts({"def (": tmp_path}) == package_parts({})  # no Python


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


# --- differences -----------------------------------------------------------------------------------------------------


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
    assert differences(before, FullEnvironment(dict(before.common), dict(before.devices))) == ()


def test_the_only_devices_of_two_runs_are_compared():
    before, after = FullEnvironment({}, {"A": {"gpu.ecc": "on"}}), FullEnvironment({}, {"B": {"gpu.ecc": "off"}})
    assert differences(before, after) == (Difference("gpu.ecc", "on", "off", ("B",)),)
    many = FullEnvironment({}, {"C": {"gpu.ecc": "off"}, "D": {"gpu.ecc": "off"}})
    assert differences(before, many) == ()


def test_patterns_choose_parts_beyond_those_that_every_environment_has():
    common = {"host.kernel": "6.1", "variable.NCCL_B": "b", "variable.NCCL_A": "a", "variable.CUDA_X": "1"}
    device = {"gpu.ecc": "on", "gpu.power_limit": "700 W", "software.driver": "1", "software.toolkit": "2"}
    full = FullEnvironment(common, {"GPU-1": device | {"run.places": "8"}, "GPU-2": {"gpu.mig": "on"}})
    names = {
        (): [],
        ("gpu.ecc",): ["gpu.ecc"],
        ("variable.NCCL_*", "gpu.*"): ["gpu.ecc", "variable.NCCL_A", "variable.NCCL_B"],
        ("*",): ["gpu.ecc", "host.kernel", "variable.CUDA_X", "variable.NCCL_A", "variable.NCCL_B"],
        ("software.*", "variable.nccl_*"): [],
    }
    chosen = {patterns: full.chosen("GPU-1", patterns) for patterns in names}
    assert {patterns: [name for name, _ in parts] for patterns, parts in chosen.items()} == names
    assert dict(chosen["*",]).items() <= (common | device).items()


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


def test_what_the_hosts_of_a_cluster_have_in_common_is_common_and_a_gpu_without_answer_has_no_environment():
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
    found = full_environment(targets, known, {"GPU-1": remote["GPU-1"]})
    assert (found.common, list(found.devices)) == (remote["GPU-1"][0], ["GPU-1"])
    found = full_environment(targets, known, {})
    assert (found.common, list(found.devices)) == ({}, [])
