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


def table_of(unit, tmp_path, target="sm_90"):
    return lines_of_all([unit], TwinNvcc(target), Cache(tmp_path / "cache"))[unit]


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_a_twin_has_the_code_of_the_binary(tmp_path, target):
    unit = write(tmp_path)
    plain = NvccToolchain(target).compile(unit)
    table = table_of(unit, tmp_path, target)
    assert table.holds_for(plain)
    other = write(tmp_path / "other", KERNEL.replace("i * 33", "i * 35"))
    assert not table.holds_for(NvccToolchain(target).compile(other))
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


def test_equal_sources_in_two_folders_have_equal_tables_that_name_no_folder(tmp_path):
    here, away = write(tmp_path / "here"), write(tmp_path / "far" / "away")
    assert str(tmp_path).encode() in TwinNvcc("sm_90").compile_with_lines(here), "the twin itself names the folder"
    table = TwinNvcc("sm_90").compile(here)
    assert str(tmp_path).encode() not in table
    assert table == TwinNvcc("sm_90").compile(away)


def test_a_table_comes_from_the_cache_apart_from_the_binary(tmp_path, monkeypatch):
    unit, cache = write(tmp_path), Cache(tmp_path / "cache")
    toolchain = TwinNvcc("sm_90")
    table = lines_of_all([unit], toolchain, cache)[unit]
    monkeypatch.setattr(toolchain, "compile", None)
    assert lines_of_all([unit], toolchain, cache)[unit] == table


def test_a_file_of_an_include_folder_has_the_name_that_the_store_has(tmp_path):
    text = '#include <tile.cuh>\nextern "C" __global__ void k(float* p) { p[0] = nested(p[1]); }\n'
    unit = write(tmp_path, text, options=(f"-I{tmp_path / 'shared'}",))
    rows = table_of(unit, tmp_path).kernels["k"]
    assert {line.file for _, line in rows if line} == {"k.cu", "<I0>/tile.cuh"}


def test_the_code_of_a_kernel_without_a_file_of_the_user_has_no_line(tmp_path):
    unit = write(tmp_path)
    code = TwinNvcc("sm_90").compile_with_lines(unit)
    assert not [line for rows in read_lines(code, unit.source.parent, {}).kernels.values() for _, line in rows if line]


def test_a_binary_gets_its_lines_only_if_they_hold_for_its_code(tmp_path, monkeypatch):
    unit, broken, cache = write(tmp_path), write(tmp_path / "broken", "oops"), Cache(tmp_path / "cache")
    toolchain = NvccToolchain("sm_90")
    built = compile_all([unit, broken], toolchain, cache)
    reported = []
    found = with_lines(built, toolchain, cache, report=reported.append)
    assert found[broken] is built[broken]
    assert found[unit] == replace(built[unit], lines=found[unit].lines)
    assert codec.decode(LineTable, found[unit].lines).holds_for(built[unit].code)
    assert not reported
    other = write(tmp_path / "other", KERNEL.replace("i * 33", "i * 35"))
    changed = toolchain.compile(other)
    assert with_lines({unit: replace(built[unit], code=changed)}, toolchain, cache, report=reported.append) == {
        unit: replace(built[unit], code=changed)
    }
    assert reported == ["the source lines of k.cu are not known: -lineinfo changes its code"]


def test_a_twin_that_does_not_compile_is_reported(tmp_path, monkeypatch):
    unit, cache = write(tmp_path), Cache(tmp_path / "cache")
    toolchain = NvccToolchain("sm_90")
    built = compile_all([unit], toolchain, cache)

    def fail(*_):
        raise CompileError("k.cu does not compile", cure="correct it")

    monkeypatch.setattr(TwinNvcc, "compile_with_lines", fail)
    reported = []
    assert with_lines(built, toolchain, cache, report=reported.append) == built
    assert reported == ["the source lines of k.cu are not known: k.cu does not compile"]


def test_files_of_a_table_can_be_renamed(tmp_path):
    table = table_of(write(tmp_path), tmp_path)
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


def test_a_binary_without_a_table_has_no_lines(tmp_path):
    unit = write(tmp_path)
    plain = NvccToolchain("sm_90").compile(unit)
    assert read_lines(plain, tmp_path, {}) == LineTable(elf.code_digest(plain), {})


def test_an_unknown_version_of_the_table_is_an_error(tmp_path, monkeypatch):
    unit = write(tmp_path)
    toolchain = TwinNvcc("sm_90")
    code = toolchain.compile_with_lines(unit)
    content, _ = elf.line_programs(code)
    newer = content[:4] + struct.pack("<H", 5) + content[6:]
    monkeypatch.setattr(toolchain, "compile_with_lines", lambda _: code.replace(content, newer))
    with pytest.raises(CompileError, match=r"line table of k\.cu by nvcc .* has version 5 of DWARF"):
        toolchain.compile(unit)


def test_a_damaged_table_is_an_error_and_never_hangs(tmp_path):
    unit = write(tmp_path)
    code = TwinNvcc("sm_90").compile_with_lines(unit)
    content, _ = elf.line_programs(code)
    names = {str(unit.source): "k.cu"}
    intact = read_lines(code, unit.source.parent, names)
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        try:
            table = read_lines(code.replace(content, bytes(damaged)), unit.source.parent, names)
        except lines.DAMAGED:
            continue
        assert table.code_digest == intact.code_digest
