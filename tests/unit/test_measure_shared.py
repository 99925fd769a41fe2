import os

import numpy as np
import pytest

from perfsvc.measure.shared import Mapped, Shelf, share


def test_arrays_come_back_by_name_shape_and_type():
    inputs = {"a": np.arange(7, dtype=np.float32), "b": np.arange(6, dtype=np.int64).reshape(2, 3).T}
    expected = {"a": np.linspace(0, 1, 5), "empty": np.empty((0, 3))}
    shared = share(inputs, expected)
    mapped = Mapped(shared.descriptor, shared.inputs, shared.expected)
    shared.close()
    for made, seen in ((inputs, mapped.inputs), (expected, mapped.expected)):
        assert list(made) == list(seen)
        for name in made:
            np.testing.assert_array_equal(seen[name], made[name])
            assert seen[name].dtype == made[name].dtype


def test_a_worker_cannot_change_what_the_others_read():
    shared = share({"a": np.ones(3)}, {})
    mapped = Mapped(shared.descriptor, shared.inputs, shared.expected)
    with pytest.raises(ValueError, match="read-only"):
        mapped.inputs["a"][0] = 2
    shared.close()


def test_a_case_without_arrays_needs_no_memory():
    shared = share({}, {})
    assert Mapped(shared.descriptor, shared.inputs, shared.expected).inputs == {}
    shared.close()


def test_the_shelf_makes_arrays_once_and_forgets_the_oldest_beyond_its_budget():
    made = []

    def make(key):
        made.append(key)
        return share({"a": np.zeros(1000)}, {})

    shelf = Shelf(budget_bytes=20_000)
    for key in "aabab":
        shelf.get(key, lambda key=key: make(key))
    assert made == ["a", "b"]
    oldest = shelf.get("a", lambda: make("a")).descriptor
    shelf.get("b", lambda: make("b"))
    shelf.get("c", lambda: make("c"))
    assert made == ["a", "b", "c"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(oldest)
    shelf.close()


def test_the_shelf_keeps_one_that_is_larger_than_its_budget():
    shelf = Shelf(budget_bytes=1)
    shared = shelf.get("a", lambda: share({"a": np.zeros(1000)}, {}))
    assert os.fstat(shared.descriptor).st_size >= 8000
    shelf.close()
