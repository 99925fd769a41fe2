"""Variants that call a library, resolved, and the problems of how they are written."""

import pytest

from perfsvc.model import Launch, LibraryCall
from perfsvc.suite import Selection, discover

BENCH = """from perfsvc.suite import Benchmark, Tolerance, Variant, launch, library, output, scratch

benchmark = Benchmark(
    axes={{"n": (256,)}},
    smoke={{"n": 10}},
    inputs=lambda rng, n: {{"x": rng.random(n)}},
    outputs={{"y": output("float64", lambda n: n)}},
    reference=lambda x: x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[{variant}],
)
"""


@pytest.fixture
def suite(tmp_path):
    def write(variant):
        folder = tmp_path / "suite" / "copy"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bench.py").write_text(BENCH.format(variant=variant))
        for name in ("a.cu", "a.py"):
            (folder / name).write_text("")
        return discover(tmp_path / "suite")

    return write


def resolved(suite):
    assert [str(problem) for problem in suite.problems] == []
    (spec,) = suite.resolve(Selection(), "full")[0]
    return spec


def test_a_library_gets_every_array_axis_and_parameter(suite, tmp_path):
    variant = (
        'Variant("v", params={"TILE": 4}, options="-O3", scratch={"w": scratch("float32", 3)}, '
        'run=library("a.cu", entry="copy", libraries=("cublas", "cublasLt")))'
    )
    spec = resolved(suite(variant))
    assert spec.steps == (LibraryCall(0, "copy", (("TILE", 4), ("n", 256))),)
    assert [buffer.array.name for buffer in spec.buffers] == ["x", "y", "w"]
    (unit,) = spec.units
    assert (unit.source, unit.entries) == (tmp_path / "suite" / "copy" / "a.cu", ("copy",))
    assert (unit.defines, unit.options, unit.libraries) == ((("TILE", 4),), ("-O3",), ("cublas", "cublasLt"))


def test_a_case_needs_a_gpu_if_its_library_uses_others(suite):
    assert resolved(suite('Variant("v", run=library("a.cu"))')).requires == ()
    assert resolved(suite('Variant("v", run=library("a.cu", libraries="cub"))')).requires == ("cuda",)


def test_a_file_may_be_a_library_and_have_kernels_that_perfsvc_launches(suite):
    spec = resolved(
        suite(
            'Variant("v", source="a.cu", steps=[launch(entry="f", grid=1, block=1, args=("y",)), library("a.cu")])',
        )
    )
    first, second = spec.steps
    assert (type(first), first.module, type(second), second.module) == (Launch, 0, LibraryCall, 1)
    assert [unit.libraries for unit in spec.units] == [None, ()]


@pytest.mark.parametrize(
    ("variant", "problem"),
    [
        ('run=library("b.cu")', "no source file 'b.cu'"),
        ('run=library("a.py")', "calls a library in 'a.py'"),
        ('run=library("a.cu", entry="a b")', "the entry is 'a b'"),
        ('run=library("a.cu", libraries="libcublas.so")', "uses the library 'libcublas.so'"),
        ('run=library("a.cu", libraries="-lcublas")', "uses the library '-lcublas'"),
        ('run=library("a.cu", libraries=3)', "libraries is 3"),
        ('run=library("a.cu"), source="a.cu"', "has source beside library('a.cu')"),
        ('run=library("a.cu"), grid=1', "has run beside grid"),
        ('run=library("a.cu"), kind="host"', "is of the kind host and calls a library"),
    ],
)
def test_a_mistake_is_named(suite, variant, problem):
    read = suite(f'Variant("v", {variant})')
    assert problem in str(read.problems[0])
