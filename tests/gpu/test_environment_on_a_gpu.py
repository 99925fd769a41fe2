"""The settings of a real GPU, which the driver reports, in the full environment of a run."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from perfsvc.device.telemetry import INSTANCE, settings_of_gpu
from perfsvc.model import PARTS
from tests.gpu import commands

pytestmark = pytest.mark.gpu

SCALE = Path(__file__).parents[1] / "e2e" / "suites" / "scale"
VALUES = {
    "gpu.application_memory_clock": r"\d+ MHz",
    "gpu.application_sm_clock": r"\d+ MHz",
    "gpu.compute_mode": "default|exclusive process|exclusive thread|prohibited",
    "gpu.ecc": "on|off",
    "gpu.mig": "on|off",
    "gpu.nvlinks": r"\d+",
    "gpu.pcie_generation": r"\d",
    "gpu.pcie_width": r"\d+",
    "gpu.persistence": "on|off",
    "gpu.vbios": r"[0-9A-F.]+",
}


@pytest.fixture(scope="module")
def settings(gpus):
    pytest.importorskip("pynvml")
    return settings_of_gpu(gpus[0].uuid)


def test_the_settings_of_a_gpu_have_known_names_and_sensible_values(settings):
    assert settings.keys() <= PARTS.keys()
    assert {name: value for name, value in settings.items() if not re.fullmatch(VALUES[name], value)} == {}
    assert {"gpu.compute_mode", "gpu.persistence", "gpu.pcie_width"} <= settings.keys()


def test_the_settings_do_not_change_by_themselves_and_are_read_quickly(gpus, settings):
    for _ in range(5):
        time.sleep(0.2)
        began = time.perf_counter()
        assert settings_of_gpu(gpus[0].uuid) == settings
        assert time.perf_counter() - began < 0.5


def test_settings_agree_with_nvidia_smi(gpus, settings):
    if gpus[0].uuid.startswith(INSTANCE):
        pytest.skip("nvidia-smi prints the settings of whole GPUs")
    fields = {"persistence_mode": "gpu.persistence", "ecc.mode.current": "gpu.ecc", "mig.mode.current": "gpu.mig"}
    query = ["nvidia-smi", f"--id={gpus[0].uuid}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        printed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"nvidia-smi does not answer: {error}")
    words = {"Enabled": "on", "Disabled": "off"}
    expected = {
        name: words[word.strip()]
        for name, word in zip(fields.values(), printed.split(","), strict=True)
        if word.strip() in words
    }
    assert {name: settings.get(name) for name in expected} == expected


def test_a_run_records_the_settings_of_its_gpu(gpus, settings, tmp_path):
    device = gpus[0]

    def perfsvc(*arguments):
        done = commands.perfsvc(tmp_path, *arguments, "--format", "json", CUDA_MODULE_LOADING="EAGER")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    options = ("--points", "smoke", "--replicas", "1", "--samples", "20", "--select", "scale/alpha")
    perfsvc("run", "--device", device.spec, "--suite", str(SCALE), *options)
    found = perfsvc("runs", "environment", "1")
    of_gpu = found["devices"][device.uuid]
    assert settings.items() <= of_gpu.items()
    assert of_gpu["software.driver"] == device.driver
    assert of_gpu["gpu.power_limit"] == f"{device.power_limit_w:g} W"
    assert of_gpu["software.toolkit"].startswith("nvcc")
    assert found["common"]["variable.CUDA_MODULE_LOADING"] == "EAGER"
