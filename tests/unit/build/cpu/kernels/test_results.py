"""What .cu files compute on the CPU device, against NumPy."""

import threading
from itertools import product
from pathlib import Path

import numpy as np
import pytest

FULL = 0xFFFFFFFF


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def as_structured(grid, block, *, of):
    """The index triples in the order of linear threads, x fastest."""
    triples = []
    for bz, by, bx in np.ndindex(grid[::-1]):
        for tz, ty, tx in np.ndindex(block[::-1]):
            triples.append((tx, ty, tz) if of == "thread" else (bx, by, bz))
    return np.array(triples, np.uint32)


def test_a_template_sums_each_block_in_dynamic_shared_memory(kernels, rng):
    for dtype, block in product((np.float32, np.float64), (32, 256, 1024)):
        n = 3000
        values = rng.random(n).astype(dtype)
        blocks = -(-n // block)
        out = np.zeros(blocks, dtype)
        entry = "tree_sum_float" if dtype == np.float32 else "tree_sum_double"
        size = block * np.dtype(dtype).itemsize
        kernels("blocks.cu")(entry, blocks, block, values, out, np.int32(n), shared_bytes=size)
        sums = [values[start : start + block].sum(dtype=np.float64) for start in range(0, n, block)]
        assert out == pytest.approx(sums, rel=1e-5)


def test_a_shared_array_of_the_file_belongs_to_each_block_alone(kernels, rng):
    values = rng.random((300, 128), np.float32)
    out = np.zeros_like(values)
    kernels("blocks.cu")("reversed_in_blocks", 300, 128, values, out, shared_bytes=512)
    assert np.array_equal(out, values[:, ::-1])


def test_asynchronous_copies_fill_the_rest_with_zeros(kernels, rng):
    for width, n in product((1, 2, 4), (192, 191, 130, 1)):
        values = rng.random(192, np.float32)
        out = np.full_like(values, np.nan)
        kernels("copies.cu", ("WIDTH", width))(
            "turned_around", 3, 64 // width, values, out, np.int32(n), shared_bytes=256
        )
        values[n:] = 0
        assert np.array_equal(out.reshape(3, 64), values.reshape(3, 64)[:, ::-1])


def test_indices_have_three_dimensions(kernels):
    for grid, block in (((2, 3, 4), (5, 2, 3)), ((1, 1, 2), (1, 64, 1)), ((7, 1, 1), (1, 1, 8))):
        count = int(np.prod(grid) * np.prod(block))
        threads, blocks = np.zeros((2, count, 3), np.uint32)
        expected = np.array([tuple(block)], np.dtype("u4,u4,u4"))[0]
        kernels("blocks.cu")("indices", grid, block, threads, blocks, expected)
        assert np.array_equal(threads, as_structured(grid, block, of="thread"))
        assert np.array_equal(blocks, as_structured(grid, block, of="block"))


def test_barriers_count_predicates(kernels):
    for true in (0, 1, 99, 100):
        predicate = (np.arange(100) < true).astype(np.int32)
        out = np.zeros(100, np.int32)
        kernels("blocks.cu")("counted", 1, 100, predicate, out)
        assert set(out) == {true * 100 + (true == 100) * 10 + (true > 0)}


def test_a_warp_shuffle_sums_each_warp_even_a_partial_one(kernels, rng):
    for block in (32, 64, 20, 50, 257):
        blocks = 3
        values = rng.random(block * blocks)
        warps = -(-block // 32)
        out = np.zeros(values.size // 32 + 2)
        kernels("warps.cu")("warp_sum", 1, block, values, out, np.int32(block))
        sums = [values[start : min(start + 32, block)].sum() for start in range(0, block, 32)]
        assert out[:warps] == pytest.approx(sums, rel=1e-12)


def test_shuffles_stay_within_their_width(kernels):
    for width in (32, 16, 8):
        out = np.zeros((4, 32), np.int32)
        kernels("warps.cu")("shuffles", 1, 32, out, np.int32(width))
        lane = np.arange(32)
        first = lane // width * width
        assert np.array_equal(out[0], first + 5 % width)
        assert np.array_equal(out[1], np.where(lane - 3 < first, lane, lane - 3))
        assert np.array_equal(out[2], np.where(lane + 3 >= first + width, lane, lane + 3))
        assert np.array_equal(out[3], lane ^ 5)


def test_shuffles_carry_eight_bytes(kernels):
    longs, doubles = np.zeros(32, np.int64), np.zeros(32)
    floats, unsigneds = np.zeros(32, np.float32), np.zeros(32, np.uint32)
    kernels("warps.cu")("wide_shuffles", 1, 32, longs, doubles, floats, unsigneds)
    other = 31 - np.arange(32)
    assert np.array_equal(longs, other.astype(np.int64) << 40)
    assert np.array_equal(doubles, other / 3)
    assert np.array_equal(floats, other.astype(np.float32) / np.float32(3))
    assert np.array_equal(unsigneds, FULL - other)


def test_votes_and_reductions_see_the_lanes_that_exist(kernels, rng):
    for lanes in (32, 11):
        values = rng.integers(0, 3, lanes).astype(np.int32)
        out = np.zeros((6, lanes), np.uint32)
        kernels("warps.cu")("votes", 1, lanes, values, out)
        bits = 1 << np.arange(lanes, dtype=np.uint64)
        assert set(out[0]) == {bits[values != 0].sum()}
        assert set(out[1]) == {values.any()}
        assert set(out[2]) == {values.all()}
        assert out[3].tolist() == [bits[values == value].sum() for value in values]
        assert set(out[4]) == {values.sum()}
        assert set(out[5]) == {values.max()}


def test_the_halves_of_a_warp_meet_by_themselves(kernels):
    out = np.zeros(64, np.int32)
    kernels("warps.cu")("halves_of_a_warp", 1, 64, out)
    assert np.array_equal(out, np.arange(64).reshape(4, 16).sum(axis=1).repeat(16))


def test_the_active_mask_has_the_lanes_that_arrived(kernels):
    for n in (1, 10, 32, 40):
        out = np.zeros(64, np.uint32)
        kernels("warps.cu")("active", 1, 64, out, np.int32(n))
        masks = [(1 << max(0, min(32, n - warp * 32))) - 1 for warp in (0, 1)]
        assert out.tolist() == [masks[i // 32] if i < n else 0 for i in range(64)]


def test_atomics_of_many_blocks_lose_nothing(kernels, rng):
    values = rng.integers(0, 7, 200_000).astype(np.int32)
    bins = np.zeros(7, np.uint32)
    kernels("atomics.cu")("histogram", 64, 128, values, bins, np.int32(values.size))
    assert np.array_equal(bins, np.bincount(values))


def test_every_atomic_operation_is_right(kernels):
    threads = 128 * 100
    ints, unsigneds = np.zeros(4, np.int32), np.array([0, FULL, 0, 0, 5], np.uint32)
    longs, floats, doubles = np.zeros(3, np.uint64), np.zeros(2, np.float32), np.zeros(1)
    kernels("atomics.cu")("every", 100, 128, ints, unsigneds, longs, floats, doubles)
    i = np.arange(threads)
    assert ints.tolist() == [i.sum(), -threads, -(threads - 1), threads - 1]
    assert unsigneds[:3].tolist() == [FULL, 1 << 31, np.bitwise_xor.reduce(i)]
    assert unsigneds[3] == threads % 10
    assert unsigneds[4] == (5 - threads) % 10
    assert longs.tolist() == [threads << 33, (threads - 1) << 40, 2 * threads]
    assert floats.tolist() == [threads, 7]
    assert doubles[0] == threads / 2


def test_the_last_block_sees_what_the_others_wrote(kernels, rng):
    values = rng.random(500, np.float32)
    out = np.zeros(1, np.float32)
    for _ in range(20):
        kernels("atomics.cu")("last_block_sums", 500, 32, values, np.zeros_like(values), out)
        assert out[0] == pytest.approx(values.sum(dtype=np.float64), rel=1e-5)


def test_float_functions_and_intrinsics_agree_with_numpy(kernels, rng):
    x = (rng.random(64) * 10 + 0.01).astype(np.float32)
    out = np.zeros((15, 64), np.float32)
    kernels("maths.cu")("floats", 1, 64, x, out, np.int32(64))
    d = x.astype(np.float64)
    small = np.minimum(d, 1) + np.maximum(d, 2) + np.minimum(d, 3)
    expected = [np.sqrt(d), 1 / np.sqrt(d), np.exp(-d), np.log(d), np.sin(d), np.cos(d), d**2, np.sqrt(d), d * d + 1]
    expected += [d / 3, 1 / d, small, np.sin(np.pi * d) + 2 * np.pi * d, 2 * d, np.zeros(64)]
    assert out == pytest.approx(np.array(expected), rel=2e-6, abs=1e-6)


def test_integer_intrinsics_agree_with_python(kernels):
    values = [0, 1, 2, 7, 1000, 0x12345678, 0x3F800000, 2**31 - 1]
    out = np.zeros((11, len(values)), np.int64)
    kernels("maths.cu")("integers", 1, 32, np.array(values, np.int32), out, np.int32(len(values)))
    for x, row in zip(values, out.T, strict=True):
        low24 = (x & 0xFFFFFF) - ((x & 0x800000) << 1)
        assert row.tolist() == [
            x.bit_count(),
            32 - x.bit_length(),
            (x & -x).bit_length(),
            int(f"{x:032b}"[::-1], 2),
            (low24 * 3 + 2**31) % 2**32 - 2**31,
            x // 2,
            x,
            round(np.float32(np.float32(x) * np.float32(0.5))),
            int.from_bytes(x.to_bytes(4, "little"), "big"),
            x.bit_count(),
            min(x, 5) + max(x, 5) % 7,
        ]


def test_vector_types_are_laid_out_as_cuda_lays_them_out(kernels):
    out = np.zeros(12, np.int32)
    kernels("maths.cu")("sizes", 1, 1, out)
    assert out.tolist() == [3, 4, 8, 4, 16, 12, 16, 8, 16, 16, 4, 8]


def test_the_clock_goes_forward(kernels):
    out = np.full(2, -1, np.int64)
    kernels("maths.cu")("elapsed", 1, 1, out)
    assert out[0] >= 0
    assert out[1] == 1


def test_device_variables_live_from_launch_to_launch(kernels):
    out = np.zeros(1, np.int32)
    run = kernels("blocks.cu", ("TILE", 4))
    for launches in (1, 2, 3):
        run("visit", 1, 1, out)
        assert out[0] == launches


def test_thousands_of_launches_leave_no_threads_and_no_mappings_behind(kernels):
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not list a process's mappings")
    run = kernels("blocks.cu")
    predicate, out = np.ones(128, np.int32), np.zeros(128, np.int32)
    counts = []
    for _ in range(3):
        for _ in range(1000):
            run("counted", 1, 128, predicate, out)
        counts.append((threading.active_count(), len(maps.read_text().splitlines())))
    assert counts[2][0] == counts[0][0]
    assert counts[2][1] <= counts[0][1] + 4
