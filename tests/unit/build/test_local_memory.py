"""The source lines of loads and stores of local memory, in binaries that nvcc makes."""

import shutil
from collections import Counter

import pytest

from perfsvc.build import Cache, lines, nvcc
from perfsvc.build.disassembly import Disassembler, find_nvdisasm
from perfsvc.build.facts import VerboseNvcc, facts_of_all
from perfsvc.build.local_memory import local_lines_of_all
from perfsvc.errors import CaseError, CompileError
from perfsvc.model import Unit

pytestmark = pytest.mark.skipif(
    nvcc.find_nvcc() is None or shutil.which("g++") is None or find_nvdisasm() is None,
    reason="needs nvcc and nvdisasm (pip install 'perfsvc[nvcc]') and g++",
)

HEADER = """#pragma once
__device__ __forceinline__ float inlined(float *x, int n) {
    float held[80];
    for (int i = 0; i < 80; ++i) held[i * n % 80] = x[i];  // LINE inlined
    return held[n % 80] + held[n * 7 % 80];                // LINE inlined
}
__device__ __noinline__ float called(float *x, int n) {
    float held[80];
    for (int i = 0; i < 80; ++i) held[i * n % 80] = x[i];  // LINE called
    return held[n % 80] + held[n * 7 % 80];                // LINE called
}
"""
SOURCE = """#include "common/held.cuh"
#include <cuda/std/array>
extern "C" __global__ void inlines(float *y, int n) { y[0] = inlined(y, n); }
extern "C" __global__ void calls(float *y, int n) { y[0] = called(y, n); }
template <int N> __global__ void generic(float *y, int n) {
    float held[N];
    for (int i = 0; i < N; ++i) held[i * n % N] = y[i];     // LINE generic
    y[0] = held[n % N] + held[n * 7 % N];                   // LINE generic
}
template __global__ void generic<90>(float *, int);
extern "C" __global__ void library(float *y, int n) {
    cuda::std::array<float, 80> held;
    for (int i = 0; i < 80; ++i) held[i * n % 80] = y[i];   // LINE library
    y[0] = held[n % 80] + held[n * 7 % 80];                 // LINE library
}
extern "C" __global__ void __launch_bounds__(1024) spills(float *y, const float *x) {
    float held[80];
#pragma unroll
    for (int i = 0; i < 80; ++i) held[i] = x[(threadIdx.x + i * 7) % 256];           // LINE spills
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 80; ++i) sum += held[i] * held[(i * 3 + 1) % 80];            // LINE spills
    y[threadIdx.x] = sum;                                                            // LINE spills
#pragma unroll
    for (int i = 0; i < 80; ++i) if (sum > 1e9f + i) y[i] = held[i];                 // LINE spills
}
extern "C" __global__ void idle(float *y) { y[threadIdx.x] = 1; }
"""
SYMBOLS = {"generic": "_Z7genericILi90EEvPfi"}


def marked(name, text):
    """Return (file, line) of each line of a text that is marked with a name."""
    return {
        (file, number)
        for file, source in text.items()
        for number, line in enumerate(source.splitlines(), start=1)
        if line.endswith(f"// LINE {name}")
    }


@pytest.fixture
def unit(tmp_path):
    folder = tmp_path / "suite"
    (folder / "common").mkdir(parents=True)
    (folder / "common" / "held.cuh").write_text(HEADER)
    (folder / "k.cu").write_text(SOURCE)
    return Unit(folder / "k.cu", ())


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture
def disassembler(cache):
    return Disassembler(find_nvdisasm(), cache)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "architecture", ["sm_90", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_80", "sm_120"))]
)
def test_each_access_is_at_the_line_of_the_users_file(unit, cache, disassembler, monkeypatch, architecture):
    toolchain = VerboseNvcc(architecture)
    (found,) = local_lines_of_all([unit], toolchain, cache, disassembler).values()
    files = {unit.source: SOURCE, unit.source.parent / "common" / "held.cuh": HEADER}
    facts = facts_of_all([unit], toolchain, cache, disassembler)[unit]
    assert found["idle"] == ()
    for name in ("inlined", "called", "generic", "library", "spills"):
        kernel = SYMBOLS.get(name, {"inlined": "inlines", "called": "calls"}.get(name, name))
        counts = Counter({(line.path, line.line): line.instructions for line in found[kernel]})
        assert counts.keys() <= marked(name, files), (name, counts)
        assert len(counts) > 1
        assert [line.instructions for line in found[kernel]] == sorted(counts.values(), reverse=True)
        # The few others are at the header of the kernel or have no line.
        assert counts.total() <= dict(facts[kernel].instructions)["local"] <= counts.total() + 4
    assert facts["spills"].spill_bytes > 0
    # Known lines need neither compiler nor disassembler.
    monkeypatch.setattr(nvcc.NvccToolchain, "_compile", None)
    monkeypatch.setattr(disassembler, "_disassemble", None)
    assert local_lines_of_all([unit], toolchain, cache, disassembler)[unit] == found


def test_lines_of_other_code_are_unknown(unit, cache, disassembler, monkeypatch):
    unit.source.write_text('extern "C" __global__ void k(float *y, int n) { y[n] = y[n * 7] / n; }\n')

    def of_other_code(self, unit):
        return self._compile(unit, "-lineinfo", "-Xptxas=-O1")[0]

    monkeypatch.setattr(lines.TwinNvcc, "compile_with_lines", of_other_code)
    (error,) = local_lines_of_all([unit], VerboseNvcc("sm_90"), cache, disassembler).values()
    assert isinstance(error, CaseError)
    assert "other code" in error.what


def test_a_unit_that_does_not_compile_has_no_lines(unit, cache, disassembler):
    unit.source.write_text("#error no\n")
    (error,) = local_lines_of_all([unit], VerboseNvcc("sm_90"), cache, disassembler).values()
    assert isinstance(error, CompileError)
