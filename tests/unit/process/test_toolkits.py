"""Where CUDA libraries are looked for, and which file of several is taken."""

import sys
from types import ModuleType

import pytest

from perfsvc.process import programs, toolkits


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a toolkit in CUDA_HOME, and with the packages of CUDA 12 and 13."""
    files = [
        "toolkit/lib64/libcufft.so",
        "toolkit/lib64/libcufft.so.12",
        "toolkit/include/cufft.h",
        "nvidia/cublas/lib/libcublas.so.12",
        "nvidia/cu13/lib/libcublas.so.13",
        "nvidia/cu13/include/cublas_v2.h",
        "nvidia/cudnn/lib/libcudnn.so.9",
        "nvidia/cudnn/lib/libcudnn.so.9.1",
    ]
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    nvidia = ModuleType("nvidia")
    nvidia.__path__ = [str(tmp_path / "nvidia")]
    nvidia.__spec__ = type("Spec", (), {"submodule_search_locations": nvidia.__path__})
    monkeypatch.setitem(sys.modules, "nvidia", nvidia)
    monkeypatch.setattr(programs, "find_cuda_program", lambda _: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cufft", "toolkit/lib64/libcufft.so"),
        ("cublas", "nvidia/cu13/lib/libcublas.so.13"),
        ("cudnn", "nvidia/cudnn/lib/libcudnn.so.9"),
    ],
)
def test_the_library_to_link_to_is_found(machine, name, file):
    assert toolkits.find_library(name) == machine / file


def test_a_library_is_found_by_the_name_that_a_program_asks_for(machine):
    assert toolkits.find_loadable("libcublas.so.12") == machine / "nvidia/cublas/lib/libcublas.so.12"
    assert toolkits.find_loadable("libcublas.so.11") is None


def test_headers_belong_to_the_library(machine):
    assert toolkits.header_folder(machine / "nvidia/cu13/lib/libcublas.so.13") == machine / "nvidia/cu13/include"
    assert toolkits.header_folder(machine / "toolkit/targets/x86_64-linux/lib/a.so") == machine / "toolkit/include"


def test_nothing_is_found_that_is_not_there(machine):
    assert toolkits.find_library("perfsvc-none") is None
    assert not toolkits.is_in_system("perfsvc-none")
    assert toolkits.is_in_system("c")
