"""Variants that call a library, resolved."""

import pytest

from perfsvc.model import Launch, LibraryCall
from tests.unit.suite import benches


@pytest.fixture
def resolved(tmp_path):
    """Return a function that resolves the case of a variant."""

    def resolve(variant):
        (tmp_path / "a.cu").write_text("")
        (spec,) = benches.resolved(tmp_path, axes='{"n": (256,)}', variants=f"[{variant}]")
        return spec

    return resolve


def test_a_library_gets_every_array_axis_and_parameter(resolved, tmp_path):
    variant = (
        'Variant("v", params={"TILE": 4}, options="-O3", scratch={"w": scratch("float32", 3)}, '
        'run=library("a.cu", entry="copy", libraries=("cublas", "cublasLt")))'
    )
    spec = resolved(variant)
    assert spec.steps == (LibraryCall(0, "copy", (("TILE", 4), ("n", 256))),)
    assert [buffer.array.name for buffer in spec.buffers] == ["x", "y", "w"]
    (unit,) = spec.units
    assert (unit.source, unit.entries) == (tmp_path / "a.cu", ("copy",))
    assert (unit.defines, unit.options, unit.libraries) == ((("TILE", 4),), ("-O3",), ("cublas", "cublasLt"))


def test_a_case_needs_a_gpu_if_its_library_uses_others(resolved):
    assert resolved('Variant("v", run=library("a.cu"))').requires == ()
    assert resolved('Variant("v", run=library("a.cu", libraries="cub"))').requires == ("cuda",)


def test_a_file_may_be_a_library_and_have_kernels_that_perfsvc_launches(resolved):
    steps = 'launch(entry="f", grid=1, block=1, args=("y",)), library("a.cu")'
    spec = resolved(f'Variant("v", source="a.cu", steps=[{steps}])')
    first, second = spec.steps
    assert (type(first), first.module, type(second), second.module) == (Launch, 0, LibraryCall, 1)
    assert [unit.libraries for unit in spec.units] == [None, ()]
