"""Occupancy, against NVIDIA's own calculator: ``cuda_occupancy.h`` of CUDA 13."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from perfsvc.build.occupancy import KIB, MULTIPROCESSORS, WARP, occupancy
from perfsvc.model import Limiter, StaticFacts
from perfsvc.process import programs


def facts(registers=0, shared_bytes=0, barriers=0):
    return StaticFacts(registers, 0, 0, 0, shared_bytes, barriers, None, "")


def test_occupancy_has_the_share_and_the_limiter_of_nvidias_calculator():
    table = {
        ("sm_80", 32, 256, 0, 1): (1.0, Limiter.WARPS),
        ("sm_80", 33, 256, 0, 1): (0.75, Limiter.REGISTERS),
        ("sm_80", 255, 256, 0, 1): (0.125, Limiter.REGISTERS),
        ("sm_80", 32, 256, 48 * KIB, 1): (0.375, Limiter.SHARED_MEMORY),
        ("sm_80", 16, 32, 0, 0): (0.5, Limiter.BLOCKS),
        ("sm_86", 40, 1024, 0, 1): (2 / 3, Limiter.WARPS),  # a second block would be the 33rd to 64th warp of 48
        ("sm_89", 168, 128, 0, 1): (0.25, Limiter.REGISTERS),
        ("sm_90", 168, 384, 200 * KIB, 1): (12 / 64, Limiter.REGISTERS),
        ("sm_90", 90, 128, 227 * KIB, 1): (4 / 64, Limiter.SHARED_MEMORY),
        ("sm_90", 32, 64, 0, 5): (24 / 64, Limiter.BARRIERS),
        ("sm_100", 64, 512, 0, 1): (0.5, Limiter.REGISTERS),
        ("sm_120", 32, 64, 0, 1): (1.0, Limiter.WARPS),
        ("sm_90", 255, 512, 0, 1): (0.0, Limiter.REGISTERS),
        ("sm_86", 32, 256, 100 * KIB, 1): (0.0, Limiter.SHARED_MEMORY),  # 99 KiB at most
    }
    for launch, (share, limiter) in table.items():
        architecture, registers, threads, shared_bytes, barriers = launch
        found = occupancy(architecture, facts(registers, 0, barriers), threads, shared_bytes)
        assert (found.share, found.limiter) == (pytest.approx(share), limiter), launch
        assert occupancy(architecture, facts(registers, shared_bytes, barriers), threads, 0) == found
    assert occupancy("sm_999", facts(32), 256, 0) is None


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    nvcc = programs.find_cuda_program("nvcc")
    places = [] if nvcc is None else [*nvcc.resolve().parents[1].glob("**/cuda_occupancy.h")]
    import nvidia  # a namespace of several wheels

    places += [found for folder in nvidia.__path__ for found in Path(folder).glob("cu*/include/cuda_occupancy.h")]
    if not places or shutil.which("g++") is None:
        pytest.skip("needs cuda_occupancy.h (pip install nvidia-cuda-runtime) and g++")
    folder = tmp_path_factory.mktemp("calculator")
    source = Path(__file__).with_name("calculator.cpp")
    command = ["g++", "-w", f"-I{places[0].parent}", "-o", folder / "calculator", source]
    subprocess.run(command, check=True)
    return folder / "calculator"


def test_ninety_thousand_launches_agree_with_nvidias_calculator(calculator):
    sizes = [0, 1, 1024, 4224, 8192, 20000, 49152, 65536, 99 * KIB, 100 * KIB, 163 * KIB, 227 * KIB, 228 * KIB]
    registers = [0, 16, 24, 32, 33, 40, 41, 64, 65, 96, 128, 129, 168, 255]
    launches = [
        (name, *launch)
        for name in MULTIPROCESSORS
        for launch in itertools.product(
            registers, [1, 32, 33, 64, 96, 128, 192, 256, 384, 512, 768, 1000, 1024], sizes, [0, 1, 5, 16]
        )
        if not (name == "sm_103" and launch[-1])  # CUDA 13.0 and 13.5 give it 64 and 32 barriers
    ]
    asked = "\n".join(" ".join(map(str, _question(*launch))) for launch in launches)
    answers = subprocess.run([calculator], input=asked, capture_output=True, text=True, check=True).stdout.split()
    assert len(answers) == len(launches) > 90_000
    wrong = [launch for launch, answer in zip(launches, answers, strict=True) if _blocks(*launch) != int(answer)]
    assert wrong == []


def _question(name, registers, threads, shared_bytes, barriers):
    held = MULTIPROCESSORS[name]
    digits = name.removeprefix("sm_")
    of_device = (digits[:-1], digits[-1], held.warps * WARP, held.shared_bytes, held.reserved_bytes)
    return (*of_device, registers, threads, shared_bytes, barriers)


def _blocks(name, registers, threads, shared_bytes, barriers):
    found = occupancy(name, facts(registers, 0, barriers), threads, shared_bytes)
    return found.warps // -(-threads // WARP)
