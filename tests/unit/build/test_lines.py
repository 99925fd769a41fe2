import shutil
import struct
from dataclasses import replace

import pytest

from perfsvc import elf
from perfsvc.build import lines
from perfsvc.build.cache import Cache
from perfsvc.build.compile import compile_all
from perfsvc.build.lines import LineTable, TwinNvcc, lines_of_all, read_lines, renamed, with_lines
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.errors import CompileError
from perfsvc.model import SourceLine, Unit, codec

KERNEL = """#include "../shared/tile.cuh"
#include <cuda_fp16.h>
__device__ __noinline__ float slow(float x) {
    return x / 3.0f + sqrtf(x);
}
namespace { __global__ void hidden(float* p) {
    p[threadIdx.x * 32] = square(p[threadIdx.x]);
} }
extern "C" __global__ void k(float* p, const __half* h, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = __half2float(h[threadIdx.x]);
    __syncthreads();
    for (int i = 0; i < n; ++i)
        p[i * 33 + threadIdx.x] += nested(s[(threadIdx.x + i) % 32]);
    p[0] = slow(p[n]);
}
"""
TILE = """#pragma once
__device__ __forceinline__ float square(float x) {
    return x * x + 1.0f;
}
__device__ __forceinline__ float nested(float x) {
    return square(x) + 2.0f;
}
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_nvcc():
    if find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install 'perfsvc[nvcc]') and g++")


def write(folder, text=KERNEL, entries=("k",), options=()):
    (folder / "kernel").mkdir(parents=True, exist_ok=True)
    (folder / "shared").mkdir(exist_ok=True)
    (folder / "shared" / "tile.cuh").write_text(TILE)
    (folder / "kernel" / "k.cu").write_text(text)
    return Unit(folder / "kernel" / "k.cu", entries, options=options)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Return a folder with the unit of the kernel, and with a cache that has its binary and its table for sm_90."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def unit(shared):
    return write(shared)


@pytest.fixture(scope="module")
def cache(shared):
    return Cache(shared / "cache")


@pytest.fixture(scope="module")
def built(unit, cache):
    return compile_all([unit], NvccToolchain("sm_90"), cache)


@pytest.fixture(scope="module")
def twin(unit):
    """Return the binary with a line table."""
    return TwinNvcc("sm_90").compile_with_lines(unit)


@pytest.fixture(scope="module")
def other(shared):
    """Return a binary of another kernel."""
    return NvccToolchain("sm_90").compile(write(shared / "other", KERNEL.replace("i * 33", "i * 35")))


def table_of(unit, cache, target="sm_90"):
    return lines_of_all([unit], TwinNvcc(target), cache)[unit]


@pytest.mark.parametrize(
    "target",
    ["sm_90", *(pytest.param(target, marks=pytest.mark.slow) for target in ("sm_75", "sm_80", "sm_100", "sm_120"))],
)
def test_a_twin_has_the_code_of_the_binary(unit, cache, other, target):
    plain = compile_all([unit], NvccToolchain(target), cache)[unit].code
    table = table_of(unit, cache, target)
    assert table.holds_for(plain)
    assert not table.holds_for(other)
    sizes = {kernel: len(text) for kernel, text in elf.kernel_texts(plain).items()}
    assert set(table.kernels) == set(sizes)
    for kernel, rows in table.kernels.items():
        assert rows[-1] == (sizes[kernel], None), "the code of a kernel has a line up to its end"
    of_k = [table.line("k", offset) for offset in range(0, sizes["k"], 16)]
    assert {line.line for line in of_k if line and line.file == "k.cu"} >= {4, 11, 13, 14, 15}
    assert SourceLine("../shared/tile.cuh", 3) in of_k, "an inlined function keeps its own lines"
    assert {line.file for line in of_k if line} == {"k.cu", "../shared/tile.cuh"}, "__half2float belongs to line 11"
    (hidden,) = table.kernels.keys() - {"k"}
    assert table.line(hidden, 0) in {SourceLine("k.cu", 6), SourceLine("k.cu", 7)}
    assert table.line("k", sizes["k"]) is None
    assert table.line("of another unit", 0) is None


def test_equal_sources_in_two_folders_have_equal_tables_that_name_no_folder(unit, cache, shared, twin, tmp_path):
    assert str(shared).encode() in twin, "the twin itself names the folder"
    table = codec.encode(table_of(unit, cache))
    assert str(shared).encode() not in table
    assert table == TwinNvcc("sm_90").compile(write(tmp_path / "far" / "away"))


def test_a_table_comes_from_the_cache_apart_from_the_binary(unit, cache, monkeypatch):
    table = table_of(unit, cache)
    monkeypatch.setattr(TwinNvcc, "compile", None)
    assert table_of(unit, cache) == table


def test_a_file_of_an_include_folder_has_the_name_that_the_store_has(tmp_path):
    text = '#include <tile.cuh>\nextern "C" __global__ void k(float* p) { p[0] = nested(p[1]); }\n'
    unit = write(tmp_path, text, options=(f"-I{tmp_path / 'shared'}",))
    rows = table_of(unit, Cache(tmp_path / "cache")).kernels["k"]
    assert {line.file for _, line in rows if line} == {"k.cu", "<I0>/tile.cuh"}


def test_the_code_of_a_kernel_without_a_file_of_the_user_has_no_line(unit, twin):
    assert not [line for rows in read_lines(twin, unit.source.parent, {}).kernels.values() for _, line in rows if line]


def test_a_binary_gets_its_lines_only_if_they_hold_for_its_code(unit, cache, built, other):
    toolchain, reported = NvccToolchain("sm_90"), []
    broken = Unit(unit.source.with_name("broken.cu"), ())
    both = built | {broken: CompileError("it does not compile")}
    found = with_lines(both, toolchain, cache, report=reported.append)
    assert found == {unit: replace(built[unit], lines=found[unit].lines), broken: both[broken]}
    assert codec.decode(LineTable, found[unit].lines).holds_for(built[unit].code)
    assert not reported
    changed = {unit: replace(built[unit], code=other)}
    assert with_lines(changed, toolchain, cache, report=reported.append) == changed
    assert reported == ["the source lines of k.cu are not known: -lineinfo changes its code"]


def test_a_twin_that_does_not_compile_is_reported(built, tmp_path, monkeypatch):
    compile_with_lines = TwinNvcc.compile_with_lines

    def fail(toolchain, unit):
        if unit.source.name == "k.cu":
            raise CompileError("k.cu does not compile", cure="correct it")
        return compile_with_lines(toolchain, unit)

    monkeypatch.setattr(TwinNvcc, "compile_with_lines", fail)
    reported = []
    assert with_lines(built, NvccToolchain("sm_90"), Cache(tmp_path), report=reported.append) == built
    assert reported == ["the source lines of k.cu are not known: k.cu does not compile"]


def test_files_of_a_table_can_be_renamed(unit, cache):
    table = table_of(unit, cache)
    other = codec.decode(LineTable, renamed(codec.encode(table), lambda name: f"deep/{name}"))
    assert other.code_digest == table.code_digest
    lines = [line and SourceLine(line.file.removeprefix("deep/"), line.line) for _, line in other.kernels["k"]]
    assert lines == [line for _, line in table.kernels["k"]]
    assert any(line and line.file == "deep/k.cu" for _, line in other.kernels["k"])


def test_ptx_has_no_table_and_a_broken_source_an_error(tmp_path):
    ptx = write(tmp_path / "ptx", options=("-ptx",))
    broken = write(tmp_path / "broken", "oops")
    built = lines_of_all([ptx, broken], TwinNvcc("sm_90"), Cache(tmp_path / "cache"))
    assert list(built) == [broken]
    assert isinstance(built[broken], CompileError)


def test_a_binary_without_a_table_has_no_lines(other, tmp_path):
    assert read_lines(other, tmp_path, {}) == LineTable(elf.code_digest(other), {})


def test_an_unknown_version_of_the_table_is_an_error(unit, twin, monkeypatch):
    toolchain = TwinNvcc("sm_90")
    content, _ = elf.line_programs(twin)
    newer = content[:4] + struct.pack("<H", 5) + content[6:]
    monkeypatch.setattr(toolchain, "compile_with_lines", lambda _: twin.replace(content, newer))
    with pytest.raises(CompileError, match=r"line table of k\.cu by nvcc .* has version 5 of DWARF"):
        toolchain.compile(unit)


def test_a_damaged_table_is_an_error_and_never_hangs(unit, twin):
    content, _ = elf.line_programs(twin)
    names = {str(unit.source): "k.cu"}
    intact = read_lines(twin, unit.source.parent, names)
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        try:
            table = read_lines(twin.replace(content, bytes(damaged)), unit.source.parent, names)
        except lines.DAMAGED:
            continue
        assert table.code_digest == intact.code_digest
