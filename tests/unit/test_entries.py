"""A kernel is found in a binary by its name in C++."""

import shutil

import pytest

from perfsvc import elf, entries
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.model import Unit

SOURCE = """
namespace tiled {
using real = float;
enum Size { large = 256 };
template <typename T, int block = 128> __global__ void sum(T *y) { y[0] = block; }
__global__ void plain(float *y) { y[0] = 1; }
}
namespace { __global__ void hidden(float *y) { y[0] = 2; } }
__global__ void bare(float *y) { y[0] = 3; }
static __global__ void inner(float *y) { y[0] = 4; }
extern "C" __global__ void flat(float *y) { y[0] = 5; }
"""
SYMBOLS = {
    "tiled::sum<float, 256>": "_ZN5tiled3sumIfLi256EEEvPT_",
    "tiled::sum<tiled::real, tiled::large>": "_ZN5tiled3sumIfLi256EEEvPT_",
    "tiled::sum<double>": "_ZN5tiled3sumIdLi128EEEvPT_",
    "::tiled::plain": "_ZN5tiled5plainEPf",
    "bare": "_Z4barePf",
    "flat": "flat",
}
PTX = b"""//
.visible .entry _Z4barePf(
.visible .entry _Z4barei(
.entry _ZN5tiled5plainEPf(
.global .align 8 .u64 perfsvc_kernel_%s = _ZN5tiled5plainEPf;
""" % entries.key("tiled::plain").encode()

needs_nvcc = pytest.mark.skipif(
    find_nvcc() is None or shutil.which("g++") is None, reason="needs nvcc (pip install 'perfsvc[nvcc]') and g++"
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((), id="cubin"),
        pytest.param(("-ptx",), id="ptx", marks=pytest.mark.slow),
        pytest.param(("-rdc=true", "-lcudadevrt"), id="linked", marks=pytest.mark.slow),
    ],
)
def code(request, tmp_path_factory):
    source = tmp_path_factory.mktemp("names") / "k.cu"
    source.write_text(SOURCE)
    return NvccToolchain("sm_90").compile(Unit(source, tuple(SYMBOLS), options=request.param))


@needs_nvcc
def test_each_name_leads_to_the_symbol_that_the_compiler_chose_and_others_nowhere(code):
    unknown = ("sum", "tiled", "plain", "tiled::sum<float, 512>", "perfsvc")
    assert {name: entries.symbol(code, name) for name in (*SYMBOLS, *unknown)} == SYMBOLS | {
        name: name for name in unknown
    }
    assert {name: entries.symbols(code, name) for name in SYMBOLS} == {name: (SYMBOLS[name],) for name in SYMBOLS}
    assert {entries.symbols(code, name) for name in unknown} == {()}


@needs_nvcc
@pytest.mark.parametrize("options", [(), pytest.param(("-lcudadevrt",), marks=pytest.mark.slow)])
def test_a_name_that_only_its_source_knows_leads_to_its_symbol(tmp_path, options):
    (tmp_path / "k.cu").write_text(SOURCE)
    code = NvccToolchain("sm_90").compile(Unit(tmp_path / "k.cu", ("::hidden", "::inner"), options=options))
    assert "6hidden" in entries.symbol(code, "::hidden")
    assert "5inner" in entries.symbol(code, "::inner")


@pytest.mark.slow
@needs_nvcc
def test_a_pointer_to_a_kernel_leaves_the_code_of_the_kernel_alone(tmp_path):
    (tmp_path / "k.cu").write_text(SOURCE)
    with_pointer, without = (
        elf.kernel_texts(NvccToolchain("sm_90").compile(Unit(tmp_path / "k.cu", names)))
        for names in (("tiled::plain",), ())
    )
    assert with_pointer == without


def test_overloads_are_several_symbols_and_a_pointer_in_ptx_leads_to_its_kernel():
    assert entries.symbols(PTX, "bare") == ("_Z4barePf", "_Z4barei")
    assert entries.symbol(PTX, "bare") == "bare"
    assert entries.symbols(PTX, "tiled::plain") == ("_ZN5tiled5plainEPf",)
    assert entries.readable(PTX, ("tiled::plain", "bare")) == {"_ZN5tiled5plainEPf": "tiled::plain", "bare": "bare"}
    assert entries.symbol(b"fake 123", "tiled::plain") == "tiled::plain"  # a binary of another kind


def test_a_symbol_is_shown_as_in_cpp():
    shown = entries.demangled("_ZN5tiled3sumIfLi256EEEvPT_")
    assert shown in {"void tiled::sum<float, 256>(float*)", "_ZN5tiled3sumIfLi256EEEvPT_"}
    assert [entries.demangled(plain) for plain in ("flat", "f", "g")] == ["flat", "f", "g"]
