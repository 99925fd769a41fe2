"""Every variant that a CPU can run is right at any point: at 1, around every block and tile, at primes, anywhere.

A size is any axis of integers, and its smoke value the largest that is small enough for a test. Any other axis takes
the values that its benchmark names.
"""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.model import Launch, Status
from perfsvc.suite.arrays import Inputs
from perfsvc.suite.points import smoke_point
from perfsvc.suite.resolving import BenchmarkPoint, resolve, worth_running

pytestmark = pytest.mark.slow  # compiles every kernel of the suite

PRIMES = (2, 3, 5, 7, 11, 13, 17, 31, 61, 97, 127, 251, 509, 1021, 2039, 4093, 8191)
EXAMPLES = 4


def test_the_smoke_point_is_right(check, suite, benchmark):
    found = check(benchmark, **suite.benchmark(benchmark).benchmark.smoke)
    assert all(result.reason for result in found.values() if result.status is Status.SKIPPED)


def test_sizes_around_blocks_and_tiles_are_right(check, suite, benchmark):
    for point in points_at_edges(suite, benchmark):
        check(benchmark, **point)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)  # the same ones on every machine
@given(data=st.data())
def test_any_point_is_right(check, suite, benchmark, data):
    check(benchmark, **data.draw(points(suite, benchmark)))


def points(suite, name):
    benchmark = suite.benchmark(name).benchmark
    found = edges(suite, name)
    return st.fixed_dictionaries(
        {
            axis: size(found[axis], most) if axis in found else st.sampled_from(named(benchmark, axis))
            for axis, most in benchmark.smoke.items()
        }
    )


def size(edges, most):
    primes = tuple(prime for prime in PRIMES if prime <= most) or (1,)
    return st.one_of(st.sampled_from(edges), st.sampled_from(primes), st.integers(1, most))


def named(benchmark, axis):
    """The values that a benchmark names for an axis."""
    listed = benchmark.axes.get(axis) or [point[axis] for point in benchmark.points]
    return tuple(dict.fromkeys((*listed, benchmark.smoke[axis])))


def points_at_edges(suite, name):
    """As few points as bring every edge of every axis."""
    benchmark = suite.benchmark(name).benchmark
    axes = {axis: named(benchmark, axis) for axis in benchmark.smoke} | edges(suite, name)
    return [
        {axis: values[number % len(values)] for axis, values in axes.items()}
        for number in range(max(map(len, axes.values()), default=0))
    ]


@cache
def edges(suite, name):
    """The sizes at and beside which a variant's grid grows, and those of the blocks' sides, by axis."""
    smoke = suite.benchmark(name).benchmark.smoke
    found = {axis: {1} for axis, value in smoke.items() if isinstance(value, int)}
    variants = {listed.case.variant: listed for listed in suite.cases if listed.case.benchmark == name}
    for listed in variants.values():
        for axis in found:
            around = {tile + beside for tile in tiles(listed, axis, smoke[axis]) for beside in (-1, 0, 1)}
            found[axis] |= {size for size in around if 1 <= size <= smoke[axis]}
    return {axis: tuple(sorted(sizes)) for axis, sizes in found.items()}


def tiles(listed, axis, most):
    """How far along an axis a variant's grids are what they are at 1, and the sides of its blocks there."""
    first = launches(listed, axis, 1)
    low, beyond = 1, most + 1
    while beyond - low > 1:
        middle = (low + beyond) // 2
        if grids(launches(listed, axis, middle)) == grids(first):
            low = middle
        else:
            beyond = middle
    return {low, *(side for step in first for side in step.block)}


def grids(launches):
    return [step.grid for step in launches]


def launches(listed, axis, value):
    """What a variant launches where the smoke point has this value on an axis; nothing where it is not to run."""
    smoke = smoke_point(listed.file.benchmark)
    point = tuple((name, value if name == axis else smoke_value) for name, smoke_value in smoke)
    if not worth_running(listed.expansion, point):
        return []
    (spec, *_) = resolve(listed.expansion, BenchmarkPoint(listed.file, point, buffers(listed.file, point)))
    return [step for step in spec.steps if isinstance(step, Launch)]


@cache
def buffers(file, point):
    """The shapes of the inputs at a point."""
    return Inputs().shapes([(file, point)])[file, point]
