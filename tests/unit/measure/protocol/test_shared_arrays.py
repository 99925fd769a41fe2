import os

import numpy as np
import pytest

from perfsvc.measure.protocol import shared_arrays
from perfsvc.measure.protocol.messages import CaseJob, Sampling
from perfsvc.measure.protocol.shared_arrays import JobArrays, MappedArrays
from perfsvc.model import CacheState, Case, Kind, ReplayRecord, Tolerance
from perfsvc.process.shared_memory import share


def job_of(arrays):
    record = ReplayRecord(Case("scale", "v"), Kind.KERNEL, (), (), (), "", seed=0)
    return CaseJob(
        record=record,
        replica=0,
        cache=CacheState.COLD,
        tolerance=Tolerance(0, 0),
        sampling=Sampling(),
        array_name=arrays.name,
        arrays=arrays.first.layout,
        fresh_arrays=arrays.fresh.layout if arrays.fresh else None,
    )


def mapped(arrays):
    """Return the arrays as a worker sees them, after the parent has closed its descriptors."""
    seen = MappedArrays(arrays.descriptors, job_of(arrays))
    for descriptor in arrays.descriptors:
        os.close(descriptor)
    return seen


def require_equal(made, seen):
    assert list(made) == list(seen)
    for name in made:
        np.testing.assert_array_equal(seen[name], made[name])
        assert seen[name].dtype == made[name].dtype
        assert seen[name].flags.c_contiguous


def test_arrays_come_back_by_name_shape_and_type():
    inputs = {"a": np.arange(7, dtype=np.float32), "b": np.arange(6, dtype=np.int64).reshape(2, 3).T}
    expected = {"a": np.linspace(0, 1, 5), "empty": np.empty((0, 3))}
    seen = mapped(JobArrays("name", share(inputs, expected)))
    require_equal(inputs, seen.inputs)
    require_equal(expected, seen.expected)
    assert (seen.fresh_inputs, seen.fresh_expected) == ({}, {})


def test_fresh_arrays_have_their_own_memory():
    first = share({"a": np.arange(3)}, {"b": np.arange(4.0)})
    fresh = share({"a": np.arange(3, 6)}, {"b": np.arange(4.0, 8.0)})
    seen = mapped(JobArrays("name", first, fresh))
    require_equal({"a": np.arange(3)}, seen.inputs)
    require_equal({"b": np.arange(4.0)}, seen.expected)
    require_equal({"a": np.arange(3, 6)}, seen.fresh_inputs)
    require_equal({"b": np.arange(4.0, 8.0)}, seen.fresh_expected)


def test_arrays_of_any_layout_are_copied():
    a = np.arange(259 * 129).reshape(259, 129)
    stacked = np.stack([a, -a]).transpose(2, 0, 1)
    views = (a.T, a[::2, ::-1], np.broadcast_to(a[0], a.shape), a[:, 5], a[None].T, (a > 5).T, a[:0].T)
    for array in (*views, stacked, (a + 1j * a).T):
        require_equal({"a": array}, mapped(JobArrays("name", share({"a": array}, {}))).inputs)


def test_each_array_is_aligned():
    arrays = share({"a": np.zeros(1, np.int8), "b": np.zeros(257, np.int8)}, {"c": np.zeros(1)})
    assert [placed.offset for placed in (*arrays.layout.inputs, *arrays.layout.expected)] == [0, 256, 768]
    assert arrays.nbytes == os.fstat(arrays.descriptor).st_size == 1024
    arrays.close()


@pytest.mark.parametrize("size", [3, 5000])
def test_a_worker_cannot_change_the_arrays_of_others(size):
    seen = mapped(JobArrays("name", share({"a": np.ones(size)}, {})))
    require_equal({"a": np.ones(size)}, seen.inputs)
    with pytest.raises(ValueError, match="read-only"):
        seen.inputs["a"][0] = 2


def test_a_case_without_arrays_needs_no_memory():
    arrays = share({}, {})
    assert arrays.nbytes == 0
    assert mapped(JobArrays("name", arrays)).inputs == {}


def test_a_partial_write_is_continued(monkeypatch):
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, offset: whole(file, content[:1000], offset))
    array = np.arange(500.0)
    require_equal({"a": array}, mapped(JobArrays("name", share({"a": array}, {}))).inputs)


def test_a_contiguous_array_is_written_without_a_copy(monkeypatch):
    written = []
    monkeypatch.setattr(os, "pwrite", lambda file, content, offset: written.append(content) or content.nbytes)
    array = np.ones((4, 4))
    share({"a": array}, {}).close()
    assert len(written) == 1
    assert np.shares_memory(np.asarray(written[0]), array)


def test_the_budget_is_a_quarter_of_the_machines_memory(monkeypatch):
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert shared_arrays.budget_bytes() == 1_024_000
