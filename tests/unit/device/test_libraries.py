"""Libraries loaded into this process: what they get, when their work begins and ends, and how their errors arrive."""

from pathlib import Path

import pytest

from perfsvc.build.cpu.host import HostToolchain
from perfsvc.device.libraries import LibraryFunction
from perfsvc.device.memory import HostMemory
from perfsvc.errors import LaunchError
from perfsvc.model import Array, Unit

SOURCE = Path(__file__).with_name("library.cu")
ENTRIES = ("describe", "counts", "late", "early", "strange", "nothing", "unknown_array", "unknown_value")
ENTRIES += ("wrong_kind", "wrong_size", "end", "old")
VALUES = {"n": 40, "layout": "rows", "alpha": 0.5}
X, OUT = Array("x", "bfloat16", (2, 3)), Array("out", "uint8", (200,))


class Memory(HostMemory):
    stream = 0
    most = 10
    lost = False

    def __init__(self):
        super().__init__()
        self.synchronized = 0

    def allocate(self, nbytes):
        if len(self._blocks) >= self.most:
            raise LaunchError("out of memory: it is full", cure="run smaller points")
        return super().allocate(nbytes)

    def synchronize(self):
        self.synchronized += 1
        if self.lost:
            raise LaunchError("the context is lost", cure="find the fault", fatal=True)

    @property
    def in_use(self):
        return len(self._blocks)


@pytest.fixture(scope="module")
def code():
    return HostToolchain().compile(Unit(SOURCE, ENTRIES, libraries=()))


@pytest.fixture
def device():
    return Memory()


@pytest.fixture
def buffers(device):
    return [(X, device.allocate(12)), (OUT, device.allocate(200))]


def text(device, buffers):
    return bytes(device.view(buffers[1][1], "uint8", (200,))).split(b"\0")[0].decode()


def test_a_library_gets_arrays_and_values_by_name_and_the_stream(device, code, buffers):
    for stream, named in ((0, "none"), (77, "stream")):
        device.stream = stream
        function = LibraryFunction(device, code, "describe", VALUES)
        function.prepare(buffers)
        function.run()
        assert text(device, buffers) == f"bfloat16 6 2 3 40 rows 0.500000 same 40.000000 {named}"
        function.end()


def test_a_value_that_would_lose_bits_is_refused(device, code):
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(LaunchError, match=f"rows is {value}, and a library takes integers of 64 bits"):
            LibraryFunction(device, code, "describe", {"rows": value})


def test_work_is_prepared_once_for_each_place_and_all_of_it_is_ended(device, code, buffers):
    elsewhere = [buffers[0], (OUT, device.allocate(200))]
    held = device.in_use
    function = LibraryFunction(device, code, "counts", VALUES)
    assert [function.prepare(place) for place in (buffers, elsewhere, buffers, elsewhere)] == [True, True, False, False]
    function.run()
    assert text(device, elsewhere) == "2 w 40"
    assert device.in_use == held + 2
    function.end()
    assert device.in_use == held
    assert function.prepare(buffers)
    function.run()
    assert text(device, buffers) == "1 w 40"
    function.end()


def test_earlier_work_makes_room_if_the_device_is_full(device, code, buffers):
    elsewhere = [buffers[0], (OUT, device.allocate(200))]
    device.most = device.in_use + 1
    function = LibraryFunction(device, code, "counts", VALUES)
    assert function.prepare(buffers)
    assert function.prepare(elsewhere)
    function.run()
    assert text(device, elsewhere) == "1 w 40"
    assert function.prepare(buffers)
    function.end()


def test_a_workspace_that_the_device_refuses_fails_with_its_reason(device, code, buffers):
    device.most = device.in_use
    with pytest.raises(LaunchError, match="out of memory: it is full"):
        LibraryFunction(device, code, "counts", VALUES).prepare(buffers)


def test_an_error_status_fails_with_the_call_that_returned_it(device, code, buffers):
    function = LibraryFunction(device, code, "late", VALUES)
    function.prepare(buffers)
    function.run()
    with pytest.raises(LaunchError, match=r"the library function 'late' failed: \+\+\*calls == 2 \? 7 : 0 returned 7"):
        function.run()
    function.end()


def test_an_error_after_the_context_was_lost_is_fatal(device, code, buffers):
    function = LibraryFunction(device, code, "strange", VALUES)
    function.prepare(buffers)
    device.lost = True
    with pytest.raises(LaunchError, match="an exception that is no std::exception; the context is lost") as error:
        function.run()
    assert error.value.fatal


def test_a_failed_preparation_fails_with_its_message(device, code, buffers):
    table = {
        "early": "no licence",
        "nothing": "the library returned no work",
        "unknown_array": "the case has no array 'y'; it has x, out",
        "unknown_value": "the case has no axis or parameter 'm'; it has n, layout, alpha",
        "wrong_kind": "'alpha' is not an integer",
        "wrong_size": "the array 'x' has elements of the type bfloat16, and the library takes elements of 8 bytes",
    }
    for entry, message in table.items():
        with pytest.raises(LaunchError, match=f"'{entry}' failed while it prepared its work: {message}") as error:
            LibraryFunction(device, code, entry, VALUES).prepare(buffers)
        assert not error.value.fatal


def test_every_end_runs_although_one_fails(device, code, buffers):
    function = LibraryFunction(device, code, "end", VALUES)
    function.prepare(buffers)
    with pytest.raises(LaunchError, match="'end' failed at its end: handle is busy"):
        function.end()
    function.end()  # nothing is left to end
    counter = LibraryFunction(device, code, "counts", VALUES)
    counter.prepare(buffers)
    counter.run()
    assert text(device, buffers) == "1 w 40"
    counter.end()


def test_a_missing_function_and_a_file_that_is_no_library_are_refused(device, code):
    with pytest.raises(LaunchError, match="the library has no function 'gone'"):
        LibraryFunction(device, code, "gone", VALUES)
    with pytest.raises(LaunchError, match="cannot be loaded"):
        LibraryFunction(device, code[: len(code) - 2000], "counts", VALUES)


def test_another_format_of_the_header_is_refused(device, code):
    with pytest.raises(LaunchError, match=r"format 99 of perfsvc\.h; this perfsvc runs format 1"):
        LibraryFunction(device, code, "old", VALUES)
