from dataclasses import replace
from pathlib import Path

from perfsvc.model import CacheState, Case, DeviceInfo, Kind, Launch, Tolerance, Unit, Work
from perfsvc.suite import CaseSpec, unmet

GPU = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA X", "sm_90", compute_capability="9.0")
CPU = DeviceInfo("cpu", "cpu", "cpu-1", "CPU", "cpu-x86_64")
AMPERE = replace(GPU, compute_capability="8.0")
FAKE = DeviceInfo("fake", "fake:s.json", "fake-1", "Fake", "fake")


def spec(*requires):
    return CaseSpec(
        case=Case("b", "v", (("n", 100), ("layout", "row"))),
        kind=Kind.KERNEL,
        cache=CacheState.COLD,
        requires=requires,
        units=(Unit(Path("k.cu"), ("k",), (("TILE", 32), ("FOUR", 4))),),
        buffers=(),
        steps=(),
        work=Work(),
        tolerance=Tolerance(0, 0),
        bench=Path("bench.py"),
        bench_text="",
        seed=0,
    )


def test_attributes_of_a_launch_require_a_gpu_that_has_them():
    table = [
        ({"cluster": (2, 1, 1)}, GPU, ""),
        ({"cluster": (2, 1, 1)}, CPU, "requires sm_90: this is the CPU device"),
        ({"cluster": (2, 1, 1)}, AMPERE, "requires sm_90: this device is sm_80"),
        ({"cooperative": True}, AMPERE, ""),
        ({"cooperative": True}, CPU, "requires cuda: this is the CPU device"),
        ({"programmatic": True}, GPU, ""),
        ({"programmatic": True}, AMPERE, "requires sm_90: this device is sm_80"),
        ({"programmatic": True}, CPU, ""),
        ({}, CPU, ""),
    ]
    for attributes, device, reason in table:
        launch = Launch(0, "k", (4, 1, 1), (32, 1, 1), (), **attributes)
        assert unmet(replace(spec(), steps=(launch,)), device) == reason


def test_an_unmet_requirement_is_explained():
    table = [
        ("cuda", GPU, ""),
        ("cuda", FAKE, ""),
        ("cuda", CPU, "requires cuda: this is the CPU device"),
        ("sm_80", GPU, ""),
        ("sm_90", GPU, ""),
        ("sm_90a", GPU, ""),
        ("sm_100", GPU, "requires sm_100: this device is sm_90"),
        ("sm_120", replace(GPU, compute_capability="12.1"), ""),
        ("sm_90", replace(GPU, compute_capability="8.9"), "requires sm_90: this device is sm_89"),
        ("sm_90a", replace(GPU, compute_capability="10.0"), "requires sm_90a: this device is sm_100"),
        ("sm_90", CPU, "requires sm_90: this is the CPU device"),
        ("sm_90", FAKE, "requires sm_90: this device has no compute capability"),
        ("n % 4 == 0", GPU, ""),
        ("n%FOUR==0", GPU, ""),
        ("64 % TILE == 0", GPU, ""),
        ("n % 3 == 0", GPU, "requires n % 3 == 0: n is 100"),
        ("n % TILE == 0", CPU, "requires n % TILE == 0: n is 100, TILE is 32"),
        ("import numpy", CPU, ""),
        ("import  numpy.linalg", GPU, ""),
        ("import gone", GPU, "requires import gone: the package gone is not installed"),
        ("import numpy.gone", CPU, "requires import numpy.gone: the package numpy.gone is not installed"),
        ("import gone.at_all", CPU, "requires import gone.at_all: the package gone.at_all is not installed"),
        ("layout % 4 == 0", GPU, "requires layout % 4 == 0: layout is row"),
    ]
    found = [(requirement, device, unmet(spec(requirement), device)) for requirement, device, _ in table]
    assert found == table
    assert unmet(spec(), CPU) == ""
    assert unmet(spec("cuda", "n % 3 == 0", "sm_100"), GPU) == "requires n % 3 == 0: n is 100"  # the first one


def test_a_package_that_fails_on_import_counts_as_missing(tmp_path, monkeypatch):
    (tmp_path / "half_installed").mkdir()
    (tmp_path / "half_installed" / "__init__.py").write_text("raise OSError('libcuda.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    reason = "requires import half_installed.part: the package half_installed.part is not installed"
    assert unmet(spec("import half_installed.part"), CPU) == reason


def test_a_required_package_is_searched_without_importing_it(tmp_path, monkeypatch):
    (tmp_path / "takes_long.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    assert unmet(spec("import takes_long"), CPU) == ""
