"""The pipelines of overlap on a stand-in for PyCUDA, whose streams do nothing until the host waits for them."""

import ctypes
import sys
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.model import Call
from perfsvc.suite import Selection, functions

FLOAT = 4
STREAMS_AND_PINNED = {
    "pageable": (1, 0),
    "pageable_two_streams": (2, 0),
    "pinned": (1, 2),
    "breadth_first": (2, 2),
    "depth_first": (2, 2),
    "three_streams": (3, 2),
    "called_back": (2, 2),
}
"""How many streams and pinned arrays each variant makes."""


class Stream:
    def __init__(self, driver):
        self.queued = deque()
        self.handle = len(driver.streams)
        driver.streams.append(self)

    def synchronize(self):
        while self.queued:
            self.queued.popleft()()


class Driver:
    """The little of ``pycuda.driver`` and of ``libcuda.so.1`` that pipelines use."""

    def __init__(self):
        self.streams = []
        self.log = []
        self.pinned = []

    def Stream(self):  # noqa: N802 PyCUDA's name
        return Stream(self)

    def pagelocked_empty(self, shape, dtype):
        self.pinned.append(np.empty(shape, dtype))
        return self.pinned[-1]

    def memcpy_htod(self, target, source):
        ctypes.memmove(target, source.ctypes.data, source.nbytes)

    def memcpy_dtoh(self, target, source):
        ctypes.memmove(target.ctypes.data, source, target.nbytes)

    def memcpy_htod_async(self, target, source, stream):
        self._queue("bring", stream, lambda: self.memcpy_htod(target, source))

    def memcpy_dtoh_async(self, target, source, stream):
        self._queue("fetch", stream, lambda: self.memcpy_dtoh(target, source))

    def module_from_buffer(self, binary):
        assert binary == b"cubin"
        return SimpleNamespace(
            get_function=lambda name: SimpleNamespace(prepare=list, prepared_async_call=self._launch)
        )

    def _launch(self, grid, block, stream, y, x, n):  # noqa: PLR0917 as PyCUDA calls it
        assert (grid[0] - 1) * block[0] < n <= grid[0] * block[0]

        def compute():
            values = np.frombuffer(ctypes.string_at(x, n * FLOAT), np.float32)
            ctypes.memmove(y, (1 / np.sqrt(values)).ctypes.data, n * FLOAT)

        self._queue("compute", stream, compute)

    def cuLaunchHostFunc(self, handle, function, memory):  # noqa: N802 the driver's name
        stream = self.streams[handle.value or 0]
        self._queue("call", stream, lambda: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function.value)(memory))
        stream.synchronize()  # because the host waits for the semaphore
        return 0

    def _queue(self, what, stream, does):
        self.log.append((what, stream.handle))
        stream.queued.append(does)


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(driver=made))
    monkeypatch.setitem(sys.modules, "pycuda.driver", made)
    library = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made if name == "libcuda.so.1" else library(name))
    return made


@pytest.fixture
def pipeline(suite, driver):
    """What takes a variant's name and the input, and returns what ``run(x)`` makes of it."""

    def of(variant, n):
        (spec,) = suite.resolve(Selection((f"overlap/{variant}",)), "smoke")[0]
        steps = [(step, function) for step, function in zip(spec.steps, named(suite, spec), strict=True)]
        memory = {name: np.full(n, np.nan, np.float32) for name in ("x", "y", "device_x", "device_y")}
        arrays = {
            name: SimpleNamespace(shape=(n,), __cuda_array_interface__={"data": (array.ctypes.data, False)})
            for name, array in memory.items()
        }

        def run(x, *, checked=True):
            memory["x"][:] = x
            for step, function in steps:
                if checked or step.timed:
                    function(arrays, 0, *([b"cubin"] if step.module == 0 else []))
            return memory["y"]

        return run

    return of


def named(suite, spec):
    assert all(isinstance(step, Call) for step in spec.steps)
    names = [step.function for step in spec.steps]
    found = functions(suite.benchmark("overlap").text, names)
    return [found[name] for name in names]


def numbers(n, first=1.0):
    return np.linspace(first, 4, n, dtype=np.float32)


def test_the_variants_are_as_expected(suite):
    assert tuple(variant.name for variant in suite.benchmark("overlap").benchmark.variants) == tuple(STREAMS_AND_PINNED)


@pytest.mark.parametrize("variant", STREAMS_AND_PINNED)
def test_every_element_comes_back_and_those_of_other_inputs_too(pipeline, variant):
    for n in (1, 2, 7, 8, 9, 15, 17, 1000):
        run = pipeline(variant, n)
        for x in (numbers(n), numbers(n, 2.0)):
            assert (run(x) == 1 / np.sqrt(x)).all(), n


@pytest.mark.parametrize("variant", STREAMS_AND_PINNED)
def test_a_sample_begins_and_ends_in_the_hosts_memory_and_makes_no_stream(pipeline, driver, variant):
    run = pipeline(variant, 1000)
    run(numbers(1000))
    queued = len(driver.log)
    y = run(numbers(1000, 3.0), checked=False)
    assert (y == 1 / np.sqrt(numbers(1000))).all()
    assert len(driver.log) == 2 * queued
    assert not any(stream.queued for stream in driver.streams)
    run(numbers(1000))
    assert (len(driver.streams), len(driver.pinned)) == STREAMS_AND_PINNED[variant]
    assert {handle for _, handle in driver.log} == set(range(len(driver.streams)))


def test_depth_first_queues_chunk_after_chunk_and_breadth_first_two_at_a_time(pipeline, driver):
    pipeline("depth_first", 8)(numbers(8))
    assert driver.log[:6] == [
        ("bring", 0), ("compute", 0), ("fetch", 0),
        ("bring", 1), ("compute", 1), ("fetch", 1),
    ]  # fmt: skip
    driver.log.clear()
    driver.streams.clear()
    pipeline("breadth_first", 8)(numbers(8))
    assert driver.log[:6] == [
        ("bring", 0), ("bring", 1), ("compute", 0), ("compute", 1), ("fetch", 0), ("fetch", 1),
    ]  # fmt: skip
    assert driver.log == 4 * driver.log[:6]


def test_the_host_is_called_at_the_end_of_each_chunk(pipeline, driver):
    pipeline("called_back", 20)(numbers(20))
    assert [what for what, _ in driver.log] == 7 * ["bring", "compute", "fetch", "call"]
