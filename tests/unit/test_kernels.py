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


def launches(spec):
    return [step for step in spec.steps if isinstance(step, Launch)]


def test_no_benchmark_has_a_problem():
    assert SUITE.problems == ()
    assert "transpose/tiled-TILE32-PAD1[n=4096]" in {listed.case.id for listed in SUITE.cases}


def test_a_ladder_has_rungs_with_full_points_and_a_smoke_point():
    several_gpus = {spec.case.benchmark for spec in SMOKE if spec.gpus > 1}
    for file in SUITE.benchmarks:
        listed = [one for one in SUITE.cases if one.bench == file.path]
        assert len({one.case.variant for one in listed}) >= (2 if file.name in several_gpus else 3), file.name
        assert {one.points for one in listed} == {"smoke", "full"}, file.name


def test_every_file_begins_with_what_makes_it_fast_or_slow():
    texts = {file.path: ('"""', file.text) for file in SUITE.benchmarks}
    sources = [path for file in SUITE.benchmarks for path in file.path.parent.rglob("*.cu*") if path.is_file()]
    texts |= {path: ("// ", path.read_text(encoding="utf-8")) for path in sources}
    assert [path for path, (beginning, text) in texts.items() if not text.startswith(beginning)] == []


@pytest.mark.parametrize("name", sorted({spec.case.benchmark for spec in SMOKE}))
def test_arrays_of_the_smoke_point_have_the_declared_shapes_and_inputs_are_no_zeros(name):
    for spec in (spec for spec in SMOKE if spec.case.benchmark == name):
        inputs, expected = make_arrays(spec)
        for buffer in spec.buffers:
            made = expected if buffer.role is Role.OUTPUT else inputs
            if buffer.role is not Role.SCRATCH:
                assert part_of(made, buffer).shape == buffer.array.shape, spec.case
        assert all(np.isfinite(array).all() for array in (*inputs.values(), *expected.values())), spec.case
        assert all(np.count_nonzero(array) > 0.9 * array.size for array in inputs.values()), spec.case


def part_of(arrays, buffer):
    """What a buffer holds of the arrays of a benchmark."""
    part = buffer.part
    if part is None:
        return arrays[buffer.array.name]
    return arrays[part.array][part.start : part.stop] if part.stop else arrays[part.array]


def arguments_of(source, entry):
    """The number of arguments with which a source defines a kernel, None without it."""
    text = source.read_text(encoding="utf-8")
    declared = re.search(rf'extern "C" __global__ void [^;{{]*?\b{entry}\((.*?)\) \{{', text, re.DOTALL)
    return declared and len(declared[1].split(","))


def test_a_source_defines_the_entries_that_are_launched_with_as_many_arguments():
    every = {(spec.units[step.module].source, step.entry, len(step.args)) for spec in SMOKE for step in launches(spec)}
    assert [(path, entry, count) for path, entry, count in every if arguments_of(path, entry) != count] == []


def test_the_smoke_point_is_no_multiple_of_a_side_of_any_block():
    for spec in SMOKE:
        sizes = [value for _, value in spec.case.point if isinstance(value, int)]
        sides = [side for step in launches(spec) for side in step.block if side > 1]
        assert all(size % side for size in sizes for side in sides), spec.case


def test_work_counts_each_array_once():
    """What is read may be laid out with gaps, or be an argument; some variant has it as it is."""
    for name in {spec.case.benchmark for spec in SMOKE if spec.kind is Kind.KERNEL}:
        specs = [spec for spec in SMOKE if spec.case.benchmark == name]
        work = specs[0].work
        written = {bytes_of(spec, Role.OUTPUT) for spec in specs}
        assert written == {work.written_bytes} or (specs[0].gpus > 1 and work.written_bytes in written), name
        assert work.read_bytes in {bytes_of(spec, Role.INPUT) for spec in specs}, name


def bytes_of(spec, role):
    arrays = [buffer.array for buffer in spec.buffers if buffer.role is role]
    return sum(int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize for array in arrays)
