"""The built-in suite: every benchmark loads, every case resolves, and what the files say agrees with itself."""

import re

import numpy as np
import pytest

from perfsvc import installation
from perfsvc.model import Kind, Launch, Role
from perfsvc.suite import Selection, discover
from perfsvc.suite.arrays import make_arrays

SUITE = discover(installation.data_folder("kernels"))
SMOKE = SUITE.resolve(Selection(), "smoke")[0]
EVERY_FILE = pytest.mark.parametrize("file", SUITE.benchmarks, ids=lambda file: file.name)
EVERY_VARIANT = pytest.mark.parametrize("spec", SMOKE, ids=lambda spec: spec.case.id)

LADDERS = {
    "all_reduce",
    "constant_memory",
    "dot",
    "jit",
    "matmul",
    "matmul_bf16",
    "matmul_split",
    "matmul_tf32",
    "matrix_add",
    "overlap",
    "peer_copy",
    "pitched",
    "sum_of_cubes",
    "transpose",
    "vector_add",
}


def launches(spec):
    return [step for step in spec.steps if isinstance(step, Launch)]


def test_no_benchmark_has_a_problem():
    assert SUITE.problems == ()


def test_every_ladder_is_there():
    assert {file.name for file in SUITE.benchmarks} >= LADDERS


SEVERAL_GPUS = {spec.case.benchmark for spec in SMOKE if spec.gpus > 1}


@EVERY_FILE
def test_a_ladder_has_rungs_with_full_points_and_a_smoke_point(file):
    listed = [one for one in SUITE.cases if one.bench == file.path]
    assert len({one.case.variant for one in listed}) >= (2 if file.name in SEVERAL_GPUS else 3)
    assert {one.points for one in listed} == {"smoke", "full"}


def test_the_id_that_the_design_names_exists():
    assert "transpose/tiled-TILE32-PAD1[n=4096]" in {listed.case.id for listed in SUITE.cases}


@EVERY_FILE
def test_every_file_begins_with_what_makes_it_fast_or_slow(file):
    sources = [path for path in file.path.parent.rglob("*.cu*") if path.is_file()]
    assert all(source.read_text(encoding="utf-8").startswith("// ") for source in sources)
    assert file.text.startswith('"""')


@EVERY_VARIANT
def test_arrays_of_the_smoke_point_have_the_declared_shapes(spec):
    inputs, expected = make_arrays(spec)
    for buffer in spec.buffers:
        made = expected if buffer.role is Role.OUTPUT else inputs
        if buffer.role is not Role.SCRATCH:
            assert part_of(made, buffer).shape == buffer.array.shape
    assert all(np.isfinite(array).all() for array in (*inputs.values(), *expected.values()))


def part_of(arrays, buffer):
    """What a buffer holds of the arrays of a benchmark."""
    part = buffer.part
    if part is None:
        return arrays[buffer.array.name]
    return arrays[part.array][part.start : part.stop] if part.stop else arrays[part.array]


@EVERY_VARIANT
def test_inputs_are_no_zeros(spec):
    inputs, _ = make_arrays(spec)
    assert all(np.count_nonzero(array) > 0.9 * array.size for array in inputs.values())


@EVERY_VARIANT
def test_a_source_defines_the_entries_that_are_launched_with_as_many_arguments(spec):
    for step in launches(spec):
        source = spec.units[step.module].source.read_text(encoding="utf-8")
        declared = re.search(rf'extern "C" __global__ void [^;{{]*?\b{step.entry}\((.*?)\) \{{', source, re.DOTALL)
        assert declared is not None
        assert len(declared[1].split(",")) == len(step.args)


@EVERY_VARIANT
def test_the_smoke_point_is_no_multiple_of_a_side_of_any_block(spec):
    sizes = [value for _, value in spec.case.point if isinstance(value, int)]
    for step in launches(spec):
        assert all(size % side for size in sizes for side in step.block if side > 1)


@pytest.mark.parametrize("name", sorted({spec.case.benchmark for spec in SMOKE if spec.kind is Kind.KERNEL}))
def test_work_counts_each_array_once(name):
    """What is read may be laid out with gaps, or be an argument; some variant has it as it is."""
    specs = [spec for spec in SMOKE if spec.case.benchmark == name]
    work = specs[0].work
    written = {bytes_of(spec, Role.OUTPUT) for spec in specs}
    assert written == {work.written_bytes} or (specs[0].gpus > 1 and work.written_bytes in written)
    assert work.read_bytes in {bytes_of(spec, Role.INPUT) for spec in specs}


def bytes_of(spec, role):
    arrays = [buffer.array for buffer in spec.buffers if buffer.role is role]
    return sum(int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize for array in arrays)
