"""The built-in suite: every benchmark loads, every case resolves, and what the files say agrees with itself."""

import re

import numpy as np
import pytest

from perfsvc import resources
from perfsvc.model import Launch, Role
from perfsvc.suite import Selection, discover, make_arrays

SUITE = discover(resources.folder("kernels"))
SMOKE = SUITE.resolve(Selection(), "smoke")
EVERY_POINT = pytest.mark.parametrize("listed", SUITE.cases, ids=lambda listed: listed.case.id)
EVERY_VARIANT = pytest.mark.parametrize("spec", SMOKE, ids=lambda spec: spec.case.id)


def test_the_starter_suite_is_whole():
    assert SUITE.problems == ()
    assert [file.name for file in SUITE.benchmarks] == ["dot", "matmul", "transpose", "vector_add"]
    assert {f"{spec.case.benchmark}/{spec.case.variant}" for spec in SMOKE} == {
        "dot/partials",
        "dot/shared_tree",
        "dot/warp_shuffle",
        "matmul/naive",
        "matmul/tiled-TILE16",
        "matmul/tiled-TILE32",
        "transpose/naive",
        "transpose/tiled-TILE32-PAD0",
        "transpose/tiled-TILE32-PAD1",
        "vector_add/float4",
        "vector_add/grid_stride-BLOCK128",
        "vector_add/grid_stride-BLOCK256",
    }


def test_the_id_that_the_design_names_exists():
    assert "transpose/tiled-TILE32-PAD1[n=4096]" in {listed.case.id for listed in SUITE.cases}


@EVERY_VARIANT
def test_arrays_of_the_smoke_point_have_the_declared_shapes(spec):
    inputs, expected = make_arrays(spec)
    for buffer in spec.buffers:
        made = expected if buffer.role is Role.OUTPUT else inputs
        if buffer.role is not Role.SCRATCH:
            assert made[buffer.array.name].shape == buffer.array.shape
    assert all(np.isfinite(array).all() for array in (*inputs.values(), *expected.values()))


@EVERY_VARIANT
def test_a_source_defines_the_entries_that_are_launched_with_as_many_arguments(spec):
    for step in spec.steps:
        if isinstance(step, Launch):
            source = spec.units[step.module].source.read_text(encoding="utf-8")
            declared = re.search(rf'extern "C" __global__ void {step.entry}\((.*?)\)', source)
            assert declared is not None
            assert len(declared[1].split(",")) == len(step.args)


@EVERY_VARIANT
def test_the_smoke_point_is_no_multiple_of_any_block_or_tile(spec):
    (n,) = dict(spec.case.point).values()
    for step in spec.steps:
        if isinstance(step, Launch):
            assert n % step.block[0]


@EVERY_VARIANT
def test_work_counts_each_array_once(spec):
    sizes = dict.fromkeys(Role, 0)
    for buffer in spec.buffers:
        sizes[buffer.role] += int(np.prod(buffer.array.shape)) * np.dtype(buffer.array.dtype).itemsize
    assert spec.work.read_bytes == sizes[Role.INPUT]
    assert spec.work.written_bytes == sizes[Role.OUTPUT]


@EVERY_POINT
def test_every_case_says_what_makes_it_fast_or_slow(listed):
    for source in listed.file.path.parent.glob("*.cu"):
        assert source.read_text(encoding="utf-8").startswith("// ")
    assert listed.file.text.startswith('"""')


def test_one_product_left_out_of_dot_is_beyond_its_tolerance():
    (spec,) = [spec for spec in SMOKE if spec.case.variant == "partials"]
    inputs, expected = make_arrays(spec)
    lightest = (inputs["a"].astype(float) * inputs["b"]).min()
    assert lightest / expected["sum"][0] > spec.tolerance.max
