"""The types of a kernel's arrays as its source declares them."""

import pytest

from perfsvc.suite.signatures import array_dtypes, differs


@pytest.fixture
def types(tmp_path):
    """Return a function that returns the dtypes of the arrays of kernel ``k`` in a text."""

    def read(text, entry="k"):
        source = tmp_path / "k.cu"
        source.write_text(text)
        return array_dtypes(source, entry)

    return read


def test_the_type_of_a_parameter_is_read(types):
    table = {
        "float *x": "float32",
        "const float* __restrict__ x": "float32",
        "const double *__restrict__ x": "float64",
        "double x[]": "",
        "long long *x": "int64",
        "std::int64_t const *x": "int64",
        "const __half *x": "float16",
        "int n": "",
        "float4 *x": "",
        "unsigned char *x": "",
        "T *x": "",
        "float **x": "",
    }
    found = {parameter: types(f'extern "C" __global__ void k({parameter}, int n) {{ f(1); }}') for parameter in table}
    assert found == {parameter: [dtype, ""] for parameter, dtype in table.items()}


def test_comments_bounds_templates_and_other_kernels_do_not_matter(types):
    text = """
    // extern "C" __global__ void k(double *x)
    template <int N> __global__ void other(double *x) {}
    extern "C" __global__ void __launch_bounds__(256, 2)
    k(const float *a, /* the result, */ float *out, Pair<int, float> p, int (*f)(int, int))
    { other<3><<<1, 1>>>(nullptr); }
    """
    assert types(text) == ["float32", "float32", "", ""]
    assert types(text, "other") == ["float64"]


def test_nothing_is_known_without_the_source_without_the_kernel_and_of_two_declarations(types, tmp_path):
    assert array_dtypes(tmp_path / "none.cu", "k") == []
    assert types("__global__ void other(float *x) {}") == []
    both = "#if A\n__global__ void k(float *x) {}\n#else\n__global__ void k(double *x) {}\n#endif\n"
    assert types(both) == []


def test_only_another_precision_is_a_mistake():
    assert differs("float32", "float64")
    assert differs("int32", "int64")
    for declared, given in (("float32", "float32"), ("int32", "float32"), ("", "float64"), ("float32", "")):
        assert not differs(declared, given)
