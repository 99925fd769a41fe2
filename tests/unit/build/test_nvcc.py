import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from perfsvc import elf, entries
from perfsvc.build import facts
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.build.sources import state_of
from perfsvc.errors import CompileError, NoCompilerError, UsageError
from perfsvc.installation import install_command
from perfsvc.model import Unit
from perfsvc.process import programs
from perfsvc.suite import Selection, discover

needs_cxx = pytest.mark.skipif(shutil.which("g++") is None, reason="nvcc reads sources with g++")
needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None, reason="no nvcc wheel: pip install 'perfsvc[nvcc]'"
)

# Names in anonymous namespaces are where nvcc hides a hash of the folder.
KERNEL = """
#include "scale.cuh"
namespace { __device__ int calls; __global__ void hidden(float* x) { x[0] = scale(x[1]); } }
extern "C" __global__ void f(float* x, int n) {
    if (threadIdx.x < n) { x[threadIdx.x] = scale(x[threadIdx.x]) * FACTOR; ++calls; }
}
extern "C" __global__ void g(float* x) { x[0] = 1; }
"""


@pytest.fixture
def unit(tmp_path):
    return write(tmp_path / "here")


def write(folder, text=KERNEL, **fields):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scale.cuh").write_text("__device__ inline float scale(float x) { return 2 * x; }\n")
    (folder / "k.cu").write_text(text)
    return Unit(folder / "k.cu", **({"entries": ("f",), "defines": (("FACTOR", 3),), "options": ("-w",)} | fields))


@pytest.fixture(scope="module")
def toolchain():
    if find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install 'perfsvc[nvcc]') and g++")
    return NvccToolchain("sm_90")


@pytest.fixture(scope="module")
def code(toolchain, tmp_path_factory):
    """Return the binary of the kernel."""
    return toolchain.compile(write(tmp_path_factory.mktemp("kernel") / "here"))


def test_a_unit_becomes_a_cubin_with_its_entries(toolchain, code):
    assert {"f", "g"} < set(entries.kernels(code))
    assert toolchain.version.startswith("nvcc 1")
    assert "sm_90" in toolchain.targets


def test_ptx_is_made_where_an_option_asks_for_it(toolchain, tmp_path):
    code = toolchain.compile(write(tmp_path / "here", options=("-w", "-ptx")))
    assert b".target sm_90\n" in code
    assert {"f", "g"} < set(entries.kernels(code))
    assert code == toolchain.compile(write(tmp_path / "away", options=("-w", "--ptx")))
    with pytest.raises(CompileError, match="no kernel named h"):
        toolchain.compile(write(tmp_path / "here", options=("-w", "-ptx"), entries=("f", "h")))


def test_two_checkouts_give_equal_bytes_without_a_path(toolchain, code, unit, tmp_path):
    away = write(tmp_path / "quite" / "another" / "place")
    assert code == toolchain.compile(away)
    assert str(tmp_path).encode() not in code
    here, there = (state_of(of, toolchain.dependencies(of)) for of in (unit, away))
    assert here == there
    assert toolchain.preimage(unit) == toolchain.preimage(away)


def test_a_parameter_and_an_architecture_among_the_options_change_the_code(toolchain, code, tmp_path):
    for fields in ({"defines": (("FACTOR", 4),)}, {"options": ("-w", "-arch=sm_90a")}):
        assert toolchain.compile(write(tmp_path / "other", **fields)) != code


def test_a_case_that_requires_exactly_one_architecture_is_compiled_for_it(toolchain, tmp_path):
    (tmp_path / "k.cu").write_text(
        "#ifndef __CUDA_ARCH_FEAT_SM90_ALL\n#error not for sm_90a\n#endif\n"
        'extern "C" __global__ void k(float* y) { y[0] = 1; }\n'
    )
    (tmp_path / "bench.py").write_text(
        "from perfsvc.suite import *\n"
        'benchmark = Benchmark(axes={"n": (8,)}, smoke={"n": 8}, outputs={"y": output("float32", 1)},\n'
        "    reference=lambda: 1.0, tolerance=Tolerance(0, 0), variants=[\n"
        '        Variant("exact", source="k.cu", entry="k", grid=1, block=1, args=["y"], requires="sm_90a"),\n'
        '        Variant("least", source="k.cu", entry="k", grid=1, block=1, args=["y"], requires="sm_90")])\n'
    )
    exact, least = (spec.units[0] for spec in discover(tmp_path).resolve(Selection(), "smoke")[0])
    assert entries.kernels(toolchain.compile(exact)) == ("k",)
    with pytest.raises(CompileError, match="not for sm_90a"):
        toolchain.compile(least)


def test_a_comma_in_a_parameter_reaches_the_kernel(toolchain, tmp_path):
    text = 'extern "C" __global__ void f(int* p) { const int both[] = {FIRST, (SECOND)}; p[0] = both[0]; }\n'
    assert toolchain.compile(write(tmp_path, text, defines=(("FIRST", "1,2"), ("SECOND", "(1,2)"))))


def test_a_misspelt_option_is_a_compile_error(toolchain, tmp_path):
    with pytest.raises(CompileError, match="usefastmath"):
        toolchain.compile(write(tmp_path, options=("-usefastmath",)))


def test_a_missing_kernel_is_an_error_that_lists_the_existing_ones(toolchain, tmp_path):
    with pytest.raises(CompileError, match=r"no kernel named h; it has .*hidden\(float\*\); f; g\n") as raised:
        toolchain.compile(write(tmp_path, entries=("f", "h")))
    assert "as C++ does" in raised.value.cure


def test_a_failure_shows_the_compilers_message_with_the_users_file_and_line(toolchain, tmp_path):
    unit = write(tmp_path, 'extern "C" __global__ void f(int* p) {\n  p[0] = nothing;\n}\n')
    with pytest.raises(CompileError, match=r'k\.cu\(2\): error: identifier "nothing" is undefined') as raised:
        toolchain.compile(unit)
    assert str(tmp_path) not in raised.value.what


def test_a_failure_in_the_assembler_names_no_temporary_file(toolchain, tmp_path):
    unit = write(tmp_path, 'extern "C" __global__ void f(int* p) { asm("bogus.op;"); }\n')
    with pytest.raises(CompileError, match="bogus") as raised:
        toolchain.compile(unit)
    assert "ptxas k.ptx, line" in raised.value.what
    assert "tmp" not in raised.value.what


def test_a_warning_is_no_error(toolchain, tmp_path):
    text = '#warning careful\nextern "C" __global__ void f(int* p) { int unused; p[0] = 1; }\n'
    assert entries.kernels(toolchain.compile(write(tmp_path, text, options=()))) == ("f",)


def test_an_architecture_unknown_to_nvcc_is_a_compiler_error(toolchain, unit):
    with pytest.raises(NoCompilerError, match=r"cannot build for sm_35; it builds for .*sm_90"):
        NvccToolchain("sm_35").compile(unit)


@needs_wheel
@needs_cxx
def test_the_nvcc_of_the_wheel_is_enough(monkeypatch, tmp_path, unit):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("gcc", "g++", "sh"):
        (tools / tool).symlink_to(shutil.which(tool))
    without_toolkit(monkeypatch, str(tools))
    toolchain = NvccToolchain("sm_90")
    assert "site-packages" in toolchain.path.parts
    assert "f" in entries.kernels(toolchain.compile(unit))


@needs_wheel
def test_a_missing_host_compiler_is_reported(monkeypatch, tmp_path, unit):
    without_toolkit(monkeypatch, str(tmp_path))
    with pytest.raises(NoCompilerError, match="no C\\+\\+ compiler") as raised:
        NvccToolchain("sm_90").compile(unit)
    assert "g++" in raised.value.cure


@needs_wheel
def test_a_host_compiler_that_nvcc_ccbin_names_in_vain_is_named(monkeypatch, unit):
    monkeypatch.setenv("NVCC_CCBIN", "/nowhere/g++")
    with pytest.raises(NoCompilerError, match=r"no C\+\+ compiler in /nowhere/g\+\+, which NVCC_CCBIN names") as raised:
        NvccToolchain("sm_90").compile(unit)
    assert raised.value.cure == "correct NVCC_CCBIN, or unset it"


def without_toolkit(monkeypatch, path):
    monkeypatch.setenv("PATH", path)
    for variable in ("CUDA_HOME", "CUDA_PATH", "NVCC_CCBIN"):
        monkeypatch.delenv(variable, raising=False)
    real = programs._cuda_program_paths

    def paths(name):
        return (path for path in real(name) if "/usr/local" not in str(path))

    monkeypatch.setattr(programs, "_cuda_program_paths", paths)


def executable(path):
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\necho 'release 12.4, V12.4.131'\n")
    path.chmod(0o755)
    return path


def test_nvcc_is_taken_from_path_then_cuda_home_then_cuda_path(monkeypatch, tmp_path):
    without_toolkit(monkeypatch, str(tmp_path / "path"))
    last = executable(tmp_path / "last" / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "last"))
    assert find_nvcc() == last
    home = executable(tmp_path / "home" / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_nvcc() == home
    first = executable(tmp_path / "path" / "nvcc")
    assert find_nvcc() == first
    monkeypatch.setenv("PATH", f"{first.parent}{os.pathsep}/bin")
    assert NvccToolchain("sm_90").version == "nvcc 12.4.131"


def test_a_missing_nvcc_is_reported_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(programs, "_cuda_program_paths", lambda _: iter(()))
    with pytest.raises(NoCompilerError, match="nvcc was not found") as raised:
        NvccToolchain("sm_90")
    assert install_command("nvcc") in raised.value.cure


def test_an_nvcc_that_cannot_be_run_is_an_error(monkeypatch, tmp_path):
    broken = tmp_path / "nvcc"
    broken.write_bytes(b"\x7fELF no program")
    broken.chmod(0o755)
    monkeypatch.setattr(programs, "_cuda_program_paths", lambda _: iter((broken,)))
    with pytest.raises(NoCompilerError, match="cannot be run"):
        NvccToolchain("sm_90")


def test_an_nvcc_that_hangs_fails_its_unit(monkeypatch, tmp_path):
    hung = executable(tmp_path / "bin" / "nvcc")
    monkeypatch.setattr(programs, "_cuda_program_paths", lambda _: iter((hung,)))
    toolchain = NvccToolchain("sm_90")
    hung.write_text("#!/bin/sh\nsleep 300\n")
    monkeypatch.setattr(programs, "LIMIT_S", 0.5)
    with pytest.raises(CompileError, match=r"k\.cu: still compiling after 0\.5 s"):
        toolchain.compile(write(tmp_path / "k"))


def test_files_of_a_killed_nvcc_are_deleted_with_its_folder(monkeypatch, tmp_path):
    killed = executable(tmp_path / "bin" / "nvcc")
    monkeypatch.setattr(programs, "_cuda_program_paths", lambda _: iter((killed,)))
    toolchain, temporary = NvccToolchain("sm_90"), tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    killed.write_text('#!/bin/sh\necho > "$TMPDIR/tmpxft_0_0-0_k.ii"; ls "$TMPDIR"; kill -9 $$\n')
    with pytest.raises(CompileError, match=r"tmpxft"):
        toolchain.compile(write(tmp_path / "k"))
    assert not list(temporary.iterdir())


def test_flags_in_the_environment_are_part_of_the_compilers_version(monkeypatch, toolchain):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    assert NvccToolchain("sm_90").version == f"{toolchain.version} NVCC_APPEND_FLAGS=-G"


@pytest.mark.parametrize(
    "flags", ["-arch=sm_80", "-O3 -arch sm_80", "--gpu-architecture=sm_80", "-gencode arch=a,code=b"]
)
def test_an_architecture_in_the_environment_is_refused(monkeypatch, flags):
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", flags)
    with pytest.raises(
        UsageError, match=r"NVCC_PREPEND_FLAGS chooses the architecture \(-.*\), and perfsvc compiles for sm_90"
    ):
        NvccToolchain("sm_90")


def test_bytes_that_are_no_cubin_are_refused():
    for text in (b"", b"MZ not an ELF", b"\x7fELF\x02\x01" + b"\0" * 10):
        with pytest.raises(ValueError, match="ELF"):
            entries.kernels(text)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="makes an ELF file with gcc")
def test_entries_are_the_text_sections_of_any_elf_file(tmp_path):
    source = Path(tmp_path, "a.c")
    source.write_text("void one(void) {}\nvoid two(void) {}\n")
    subprocess.run(["gcc", "-ffunction-sections", "-c", source, "-o", tmp_path / "a.o"], check=True)
    assert entries.kernels(Path(tmp_path, "a.o").read_bytes()) == ("one", "two")


def test_a_verbose_binary_has_the_same_code(toolchain, code, unit):
    verbose, printed = toolchain.compile_verbosely(unit)
    reports = facts.read_ptxas(printed)
    assert {name: report.registers for name, report in reports.items()} == elf.kernel_registers(verbose)
    assert {"f", "g"} < set(reports)
    assert elf.code_digest(verbose) == elf.code_digest(code)
