"""The buffers of a case: guard bands, poison, conversions."""

from contextlib import contextmanager

import numpy as np
import pytest

from perfsvc.device.memory import HostMemory
from perfsvc.errors import LaunchError, ResultError
from perfsvc.measure.worker.memory import GUARD_BYTES, PLACES_PAGES, CaseMemory
from perfsvc.model import Array, Buffer, Role

BUFFERS = (
    Buffer(Array("a", "float32", (3, 5)), Role.INPUT),
    Buffer(Array("both", "int16", (7,)), Role.INOUT),
    Buffer(Array("out", "float64", (11,)), Role.OUTPUT),
    Buffer(Array("spare", "int32", (2,)), Role.SCRATCH),
)
HELD = len(BUFFERS) + 1
"""Blocks of memory: the buffers, and a copy of the one that is changed in place."""
INPUTS = {"a": np.arange(15, dtype=np.float32).reshape(3, 5), "both": np.arange(7, dtype=np.int16)}


class Small(HostMemory):
    """Host memory with room for a number of blocks; counts them."""

    def __init__(self, room=100):
        super().__init__()
        self.room = room

    def allocate(self, nbytes):
        if len(self._blocks) == self.room:
            raise LaunchError("out of memory", cure="run smaller points")
        return super().allocate(nbytes)

    @property
    def held(self):
        return len(self._blocks)


@pytest.fixture
def device():
    return Small()


def load(device):
    return lambda name, address: device.upload(address, INPUTS[name])


@contextmanager
def reset(device):
    with CaseMemory(device, BUFFERS) as memory:
        memory.reset(load(device))
        yield memory


def scribble(device, address, count, dtype="uint8"):
    device.view(address, dtype, (count,))[...] = 1


def test_a_write_past_a_buffer_is_measured_from_its_end(device):
    rows = [("a", 1, 1), ("a", 4, 1), ("a", 5, 2), ("both", 20, 10), ("out", GUARD_BYTES, GUARD_BYTES // 8)]
    for name, written, elements in rows:
        with reset(device) as memory:
            memory.require_intact_guards()
            scribble(device, memory.address(name) + memory.nbytes(name), written)
            with pytest.raises(ResultError) as error:
                memory.require_intact_guards()
        message = f"wrote past buffer {name!r}, up to {elements} elements ({written} bytes) from its end"
        assert message in error.value.what
        assert error.value.cure


def test_a_write_before_a_buffer_is_measured_from_its_start(device):
    for written, elements in ((1, 1), (8, 1), (9, 2), (GUARD_BYTES, GUARD_BYTES // 8)):
        with reset(device) as memory:
            scribble(device, memory.address("out") - written, written)
            with pytest.raises(ResultError) as error:
                memory.require_intact_guards()
        message = f"wrote before buffer 'out', up to {elements} elements ({written} bytes) from its start"
        assert message in error.value.what


def test_a_single_byte_far_past_a_buffer_is_found_at_its_distance(device):
    with reset(device) as memory:
        scribble(device, memory.address("spare") + memory.nbytes("spare") + 99, 1)
        with pytest.raises(ResultError, match=r"up to 25 elements \(100 bytes\)"):
            memory.require_intact_guards()


def test_inputs_are_loaded_and_everything_else_is_poisoned_each_time(device):
    with reset(device) as memory:
        for name in ("a", "both", "out", "spare"):
            scribble(device, memory.address(name), memory.nbytes(name))
        memory.reset(load(device))
        assert np.array_equal(memory.read("a"), INPUTS["a"])
        assert np.array_equal(memory.read("both"), INPUTS["both"])
        assert np.isnan(memory.read("out")).all()
        assert (memory.read("spare") == -1).all()
        memory.require_intact_guards()


def test_only_what_is_changed_in_place_is_restored_at_every_place(device):
    with CaseMemory(device, BUFFERS, places=8) as memory:
        for place in (0, 5, 2):
            memory.move(place)
            memory.reset(load(device))
            for _ in range(2):
                for name in ("a", "both", "out", "spare"):
                    memory.write(name, np.float64(3.0))
                memory.restore()
                assert np.array_equal(memory.read("both"), INPUTS["both"])
                assert all((memory.read(name) == 3).all() for name in ("a", "out", "spare"))
            memory.require_intact_guards()


def test_buffers_are_found_by_their_roles(device):
    with reset(device) as memory:
        assert memory.names(Role.OUTPUT, Role.INOUT) == ("both", "out")
        assert memory.names(Role.INPUT) == ("a",)
        assert memory.array("out") == Array("out", "float64", (11,))
        assert set(memory.views()) == {"a", "both", "out", "spare"}


def test_a_digest_changes_only_with_the_content_of_its_buffer(device):
    with reset(device) as memory:
        before = memory.digests(Role.INPUT, Role.OUTPUT)
        scribble(device, memory.address("out") + memory.nbytes("out") - 1, 1)
        scribble(device, memory.address("both"), 2)
        after = memory.digests(Role.INPUT, Role.OUTPUT)
    assert set(before) == {"a", "out"}
    assert {name for name in before if before[name] != after[name]} == {"out"}


def test_held_bytes_are_replaced_in_place_and_freed(device):
    with CaseMemory(device, BUFFERS) as memory:
        first = memory.hold(device, "a", b"12345678")
        assert memory.hold(device, "b", b"87654321") != first
        assert memory.hold(device, "a", b"abcdefgh") == first
        assert device.view(first, "uint8", (8,)).tobytes() == b"abcdefgh"
        assert device.held == HELD + 2
    assert device.held == 0


def test_a_view_is_the_memory_itself_and_a_write_converts(device):
    with reset(device) as memory:
        memory.views()["out"][...] = 2.5
        assert memory.read("out").tolist() == [2.5] * 11
        memory.write("both", np.float64(3.0))
        assert memory.read("both").tolist() == [3] * 7
        assert memory.read("both").dtype == np.int16
        memory.require_intact_guards()


def test_buffers_are_aligned_and_freed(device):
    with reset(device) as memory:
        assert device.held == HELD
        assert all(memory.address(buffer.array.name) % 256 == 0 for buffer in BUFFERS)
    assert device.held == 0


def test_allocated_buffers_are_freed_if_the_rest_does_not_fit():
    device = Small(room=2)
    with pytest.raises(LaunchError, match="out of memory"), CaseMemory(device, BUFFERS):
        pytest.fail("there is no room")
    assert device.held == 0


def test_a_lost_device_is_not_asked_to_free_memory():
    for fatal, held in ((False, 0), (True, HELD)):
        device = Small()
        with pytest.raises(LaunchError), reset(device):
            raise LaunchError("illegal address", fatal=fatal)
        assert device.held == held


def test_guard_bands_are_checked_on_the_device():
    class Far(Small):
        downloads = 0

        def download(self, address, out):
            self.downloads += 1
            super().download(address, out)

    device = Far()
    with reset(device) as memory:
        memory.require_intact_guards()
        assert device.downloads == 0
        scribble(device, memory.address("out") - 1, 1)
        with pytest.raises(ResultError):
            memory.require_intact_guards()
        assert device.downloads == 1


# --- places ----------------------------------------------------------------------------------------------------------


def test_each_place_is_an_offset_of_whole_pages_for_each_buffer_and_the_same_in_every_process(device):
    def offsets():
        with CaseMemory(device, BUFFERS, places=8) as memory:
            names = [buffer.array.name for buffer in BUFFERS]
            first = {name: memory.address(name) for name in names}
            taken = []
            for place in range(8):
                memory.move(place)
                taken.append([memory.address(name) - first[name] for name in names])
            return taken

    pages = np.array(offsets()) / device.page_bytes
    assert np.array_equal(pages, pages.astype(int))
    assert not pages[0].any()
    assert (pages >= 0).all()
    assert (pages < PLACES_PAGES).all()
    assert len({tuple(row - row[0]) for row in pages}) == 8  # the arrays lie to each other in eight ways
    assert offsets() == (pages * device.page_bytes).tolist()


def test_a_moved_buffer_has_guard_bands_at_its_new_place(device):
    with CaseMemory(device, BUFFERS, places=8) as memory:
        for place in (3, 7, 0, 3):
            memory.move(place)
            memory.reset(load(device))
            memory.require_intact_guards()
            assert np.array_equal(memory.read("a"), INPUTS["a"])
            device.write(memory.address("out") + memory.nbytes("out"), b"\0" * 8)
            with pytest.raises(ResultError, match=r"past buffer 'out', up to 1 elements \(8 bytes\) from its end"):
                memory.require_intact_guards()


def test_buffers_stay_at_one_place_if_there_is_no_room_to_move_them():
    class Tight(Small):
        def allocate(self, nbytes):
            if nbytes > 3 * GUARD_BYTES:
                raise LaunchError("out of memory", cure="run smaller points")
            return super().allocate(nbytes)

    device, freed = Tight(), []
    with CaseMemory(device, BUFFERS, lambda: freed.append(True), places=8) as memory:
        assert (memory.places, freed, device.held) == (1, [True], HELD)
    assert not device.held
    with CaseMemory(Tight(), BUFFERS, places=8) as memory:
        assert memory.places == 1
