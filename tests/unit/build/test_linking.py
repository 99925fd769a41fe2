"""Units of several sources, and libraries of device code."""

import os
import shutil
import subprocess

import pytest

from perfsvc import elf, entries
from perfsvc.build.cache import Cache
from perfsvc.build.cpu.host import HostToolchain
from perfsvc.build.facts import Kernels, VerboseNvcc, facts_of_all
from perfsvc.build.linking import LinkOptions, is_linked, libraries, link_options
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.build.sources import state_of, texts
from perfsvc.errors import CompileError, UnsupportedError
from perfsvc.model import Unit

MAIN = """#include "factor.cuh"
__device__ float curve(float);
__global__ void apply(float *y) { y[0] = curve(y[1]) * FACTOR; }
"""
CURVE = """__device__ __noinline__ float curve(float x) {
    float s = x;
    for (int i = 0; i < 9; ++i) s = s * x + i;
    return s;
}
"""

needs_nvcc = pytest.mark.skipif(
    find_nvcc() is None or shutil.which("g++") is None, reason="needs nvcc (pip install 'perfsvc[nvcc]') and g++"
)


@pytest.fixture
def unit(tmp_path):
    def written(folder="here", *, options=()):
        base = tmp_path / folder
        (base / "lib").mkdir(parents=True, exist_ok=True)
        (base / "main.cu").write_text(MAIN)
        (base / "factor.cuh").write_text("#define FACTOR 3\n")
        (base / "lib" / "curve.cu").write_text(CURVE)
        return Unit(base / "main.cu", ("apply",), (), options, others=(base / "lib" / "curve.cu",))

    return written


def test_options_of_the_linker_are_told_from_those_of_the_compiler():
    both_folders = LinkOptions(words=("-L../lib", "-Lhere", "-lmine"), libraries=("mine",), folders=("../lib", "here"))
    table = {
        ("-O3", "-lineinfo"): LinkOptions(others=("-O3", "-lineinfo")),
        ("-lcudadevrt",): LinkOptions(words=("-lcudadevrt",), libraries=("cudadevrt",)),
        ("-l", "mine", "-w"): LinkOptions(words=("-lmine",), libraries=("mine",), others=("-w",)),
        ("-L../lib", "-L", "here", "--library=mine"): both_folders,
        ("--library-path=../lib", "--library-path", "here", "-L=there"): LinkOptions(
            words=("-L../lib", "-Lhere", "-Lthere"), folders=("../lib", "here", "there")
        ),
        ("-l=mine", "-lone,two"): LinkOptions(words=("-lmine", "-lone", "-ltwo"), libraries=("mine", "one", "two")),
        ("lib/libm.a", "b.o"): LinkOptions(words=("lib/libm.a", "b.o"), files=("lib/libm.a", "b.o")),
        ("-DX=a.o", "-Ilib"): LinkOptions(others=("-DX=a.o", "-Ilib")),
    }
    assert {options: link_options(options) for options in table} == table


def test_a_unit_is_linked_if_it_has_several_sources_or_a_library(unit, tmp_path):
    assert is_linked(unit())
    assert is_linked(Unit(tmp_path / "a.cu", (), options=("-lcudadevrt",)))
    assert not is_linked(Unit(tmp_path / "a.cu", (), options=("-lineinfo", "-O3")))


@needs_nvcc
def test_all_files_of_all_sources_decide_the_binary(unit):
    linked = unit()
    assert list(texts(linked, NvccToolchain("sm_90").dependencies(linked))) == ["main.cu", "factor.cuh", "lib/curve.cu"]


@needs_nvcc
def test_equal_sources_in_two_folders_are_linked_to_one_code(unit):
    nvcc = NvccToolchain("sm_90")
    here, there = unit("here"), unit("over/there")
    code = nvcc.compile(here)
    assert entries.kernels(code) == ("_Z5applyPf",)  # the function is no kernel
    assert elf.code_digest(nvcc.compile(there)) == elf.code_digest(code)

    def key(unit):
        return nvcc.preimage(unit), state_of(unit, nvcc.dependencies(unit))

    assert key(here) == key(there)
    (here.others[0]).write_text(CURVE.replace("9", "8"))
    assert elf.code_digest(nvcc.compile(here)) != elf.code_digest(code)
    assert key(here) != key(there)


@needs_nvcc
def test_a_kernel_has_the_registers_of_what_it_calls_in_another_source(unit, tmp_path, monkeypatch):
    linked, toolchain = unit(), VerboseNvcc("sm_90")
    compiled = toolchain.compile(linked)
    monkeypatch.setattr(toolchain, "compile", lambda _: compiled)
    kernels = facts_of_all([linked], toolchain, Cache(tmp_path / "cache"), None)[linked]
    assert isinstance(kernels, Kernels)
    assert kernels["apply"].registers == elf.kernel_registers(compiled.partition(b"\0")[2])["_Z5applyPf"] > 0


@needs_nvcc
def test_a_library_of_the_users_is_linked_and_decides_the_binary(unit, tmp_path):
    whole = unit()
    folder = whole.source.parent
    env = os.environ | {"TMPDIR": str(tmp_path)}
    nvcc = [str(find_nvcc()), "-arch=sm_90", "-rdc=true"]
    subprocess.run([*nvcc, "-lib", "lib/curve.cu", "-o", "lib/libcurve.a"], cwd=folder, env=env, check=True)
    toolchain = NvccToolchain("sm_90")
    units = [Unit(whole.source, ("apply",), (), options) for options in (("lib/libcurve.a",), ("-Llib", "-lcurve"))]
    for alone in units:
        assert entries.kernels(toolchain.compile(alone)) == ("_Z5applyPf",)
    assert [list(libraries(alone)) for alone in units] == [["lib/libcurve.a"], ["curve"]]

    def keys():
        return [toolchain.preimage(alone) for alone in units]

    before = keys()
    (folder / "lib" / "libcurve.a").write_bytes(b"another library")
    for old, new in zip(before, keys(), strict=True):
        assert old != new


def test_a_missing_library_is_an_error_that_names_it(unit):
    with pytest.raises(CompileError, match=r"linked with gone\.a, which cannot be read"):
        libraries(unit(options=("gone.a",)))


@needs_nvcc
def test_a_missing_function_is_an_error_of_the_linker(unit):
    whole = unit()
    with pytest.raises(CompileError, match=r"(?s)main\.cu does not compile.*curve"):
        NvccToolchain("sm_90").compile(Unit(whole.source, ("apply",), (), ("-lcudadevrt",)))


@needs_nvcc
def test_ptx_is_not_linked(unit):
    with pytest.raises(CompileError, match="PTX cannot be linked"):
        NvccToolchain("sm_90").compile(unit(options=("-ptx",)))


def test_all_sources_are_one_library_on_the_cpu(unit):
    toolchain = HostToolchain()
    here, there = unit("here"), unit("over/there")
    code = toolchain.compile(here)
    assert "perfsvc_entry_apply" in elf.exported_sizes(code)
    assert toolchain.compile(there) == code
    here.others[0].write_text(CURVE + "static __device__ int helper() { return 1; }\n")
    here.source.write_text(MAIN + "static __device__ int helper() { return 2; }\n")
    with pytest.raises(UnsupportedError, match=r"two sources that both define .*helper"):
        toolchain.compile(here)


def test_libraries_are_skipped_on_the_cpu_except_the_device_runtime(unit):
    assert HostToolchain().compile(unit(options=("-lcudadevrt",)))
    with pytest.raises(UnsupportedError, match=r"libraries of device code \(-lmine\)"):
        HostToolchain().compile(unit(options=("-lmine",)))
