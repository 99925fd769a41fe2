"""Names of kernels that mean none or several are refused, by both compilers, with the kernels that there are."""

import shutil

import pytest

from perfsvc.build import names
from perfsvc.build.cpu.host import HostToolchain
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.errors import CompileError
from perfsvc.model import Unit

SOURCE = """
namespace tiled {
__global__ void scale(float *y) { y[0] = 1; }  // __global__ void no_kernel(int);
__global__ void scale(int *y) { y[0] = 1; }
template <typename T>
__global__ void __launch_bounds__(128) sum(T *y,
                                           int n) { y[0] = n; }
}
__global__ void twice(float *y) { y[0] = 2; }
__global__ void twice(int *y) { y[0] = 2; }
"""
DECLARED = (
    "scale(float *y)",
    "scale(int *y)",
    "template <typename T> sum(T *y, int n)",
    "twice(float *y)",
    "twice(int *y)",
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "k.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture(params=["nvcc", "host"])
def toolchain(request):
    if request.param == "host":
        return HostToolchain()
    if find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install 'perfsvc[nvcc]') and g++")
    return NvccToolchain("sm_90")


def refusal(toolchain, source, entry):
    with pytest.raises(CompileError) as raised:
        toolchain.compile(Unit(source, (entry,)))
    return raised.value


def test_the_kernels_of_a_source_are_listed_with_their_parameters(source):
    assert names.declared([source.read_bytes()]) == DECLARED


def test_overloads_are_refused_and_listed(toolchain, source):
    for entry in ("tiled::scale", "twice"):
        error = refusal(toolchain, source, entry)
        assert f"'{entry}' does not name one kernel, but several are called" in error.what
        assert "(float" in error.what
        assert "(int" in error.what
        assert "rename kernels" in error.cure


def test_an_unknown_name_is_refused_with_the_kernels_of_the_source_and_the_compilers_word(toolchain, source):
    for entry in ("tiled::sum", "tiled::sum<float, 3>", "gone", "tiled::gone", "nowhere::sum<float>"):
        error = refusal(toolchain, source, entry)
        assert f"k.cu has no kernel named {entry}; it has " in error.what
        assert "tiled::sum<float, 256>" in error.cure
        if entry == "tiled::gone":
            shown = error.what.partition("(the compiler: ")[2]
            assert "gone" in shown
            assert "tiled" in shown


def test_a_mistake_in_the_body_of_a_template_is_no_mistake_in_its_name(toolchain, tmp_path):
    path = tmp_path / "k.cu"
    path.write_text("template <typename T> __global__ void f(T *y) {\n    y[0] = T::missing;\n}\n")
    error = refusal(toolchain, path, "f<float>")
    assert "k.cu does not compile" in error.what
    assert "k.cu" in error.what.partition("\n")[2]
