"""The steps of a case as calls on a device."""

import gc
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

from perfsvc.device.memory import HostMemory
from perfsvc.errors import LaunchError
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    Call,
    Case,
    HostFinish,
    HostMetric,
    Kind,
    Launch,
    Memset,
    ReplayRecord,
    Role,
    ScalarArg,
    StructArg,
)


class Recording(HostMemory):
    """Host memory that records all other calls."""

    stream = 77

    def __init__(self):
        super().__init__()
        self.log = []
        self.loaded = []

    def load(self, code):
        self.loaded.append(code)
        return f"module {code.decode()}"

    def set_constant(self, module, symbol, address, nbytes):
        self.log.append(("constant", module, symbol, self.view(address, "float32", (nbytes // 4,)).tolist()))

    def allocate_untimed(self, nbytes):
        return self.allocate(nbytes)

    def launch(self, module, launch, args):
        self.log.append(("launch", module, launch.entry, list(args)))

    def synchronize(self):
        self.log.append(("synchronize",))


BUFFERS = (
    Buffer(Array("a", "float32", (4,)), Role.INPUT),
    Buffer(Array("total", "float32", (1,)), Role.OUTPUT),
    Buffer(Array("count", "int32", (1,)), Role.OUTPUT),
    Buffer(Array("parts", "float32", (3,)), Role.SCRATCH),
    Buffer(Array("ints", "int32", (2,)), Role.SCRATCH),
)
INPUTS = {"a": np.array([1, 2, 3, 4], np.float32)}


@contextmanager
def program(*steps, modules=(b"A", b"B"), **functions):
    device = Recording()
    record = ReplayRecord(Case("dot", "tree"), Kind.KERNEL, BUFFERS, steps, ("1", "2"), "", seed=0)
    with CaseMemory(device, BUFFERS) as memory:
        memory.reset(lambda name, address: device.upload(address, INPUTS[name]))
        named = {(None, name): function for name, function in functions.items()}
        yield device, memory, Program(device, record, modules, memory, named)


def test_a_launch_gets_its_module_and_its_resolved_arguments():
    args = (BufferArg("a"), ScalarArg("n", "int64", 4), ScalarArg("", "float32", 0.5))
    with program(Launch(1, "tree", (1, 1, 1), (32, 1, 1), args)) as (device, memory, steps):
        steps.queue()
        ((_, module, entry, given),) = device.log
        assert (module, entry) == ("module B", "tree")
        assert given == [memory.address("a"), 4, 0.5]
        assert [value.dtype.name for value in given] == ["uint64", "int64", "float32"]


STRUCT = np.dtype([("n", "i4"), ("a", "u8"), ("half", "f4")], align=True)


def struct_arg(*, pointer):
    fields = ((0, ScalarArg("n", "int32", 4)), (8, BufferArg("a")), (16, ScalarArg("", "float32", 0.5)))
    return StructArg(fields, STRUCT.itemsize, pointer)


def test_a_struct_by_value_has_its_fields_and_zeros_between_them():
    with program(Launch(0, "tree", (1, 1, 1), (32, 1, 1), (struct_arg(pointer=False),))) as (device, memory, steps):
        steps.queue()
        ((*_, (given,)),) = device.log
        expected = np.zeros((), STRUCT)
        expected[()] = (4, memory.address("a"), 0.5)
        assert given.tobytes() == expected.tobytes()


def test_a_struct_by_address_follows_its_arrays_and_stays_where_it_is():
    launch = Launch(0, "tree", (1, 1, 1), (32, 1, 1), (struct_arg(pointer=True), struct_arg(pointer=True)))
    with program(launch) as (device, memory, steps):
        steps.queue()
        memory.address = lambda name: 4096  # as if its arrays had moved
        steps.bind()
        steps.queue()
        (*_, before), (*_, after) = device.log
        assert before == after
        assert before[0] != before[1]
        for address in after:
            content = np.frombuffer(device.view(int(address), "uint8", (STRUCT.itemsize,)).tobytes(), STRUCT)
            assert content.tolist() == [(4, 4096, 0.5)]


def test_constants_are_filled_from_their_buffers_in_their_modules():
    launch = Launch(1, "tree", (1, 1, 1), (32, 1, 1), (), constants=(("weights", "a"),))
    with program(launch, Memset("parts")) as (device, memory, steps):
        steps.set_constants()
        memory.write("a", np.full(4, 9.0))
        steps.set_constants()
        assert device.log == [
            ("constant", "module B", "weights", [1, 2, 3, 4]),
            ("constant", "module B", "weights", [9, 9, 9, 9]),
        ]


def test_the_number_of_queued_operations_is_known_without_python_steps():
    launch, memset = Launch(0, "tree", (1, 1, 1), (32, 1, 1), ()), Memset("parts")
    table = {
        (memset, launch): (False, 2),
        (memset, HostFinish("sum", "parts", "total")): (False, 1),
        (memset, Call("work")): (True, None),
        (memset, Call("work", timed=False)): (False, 1),
    }
    for steps, expected in table.items():
        with program(*steps, work=lambda arrays, stream: None) as (_, _, bound):
            assert (bound.calls, bound.operations) == expected


def test_only_device_steps_are_queued_and_all_steps_are_run():
    called = []
    steps = (Memset("parts", 0), Call("work"), HostFinish("sum", "parts", "total"))
    with program(*steps, work=lambda arrays, stream: called.append(stream)) as (device, memory, bound):
        bound.queue()
        assert np.isnan(memory.read("total"))
        assert device.log == []
        bound.run()
        assert memory.read("total") == 0
        assert device.log == [("synchronize",), ("synchronize",)]
    assert called == [77, 77]


def test_the_host_finishes_in_float64_and_integers_exactly():
    for operation, total in {"sum": 1e8 + 2, "min": 1.0, "max": 1e8}.items():
        with program(HostFinish(operation, "parts", "total")) as (_, memory, steps):
            memory.write("parts", np.array([1, 1e8, 1], np.float32))
            steps.run()
            assert memory.read("total") == np.float32(total)
    with program(HostFinish("sum", "ints", "count")) as (_, memory, steps):
        memory.write("ints", np.array([2**24, 1]))
        steps.run()
        assert memory.read("count") == 2**24 + 1


def test_a_metric_is_read_in_float64_on_request():
    of_parts, of_ints = {"sum": 1e8 + 2, "mean": (1e8 + 2) / 3}, {"min": -3.0, "max": 4.0, "mean": 0.5}
    for buffer, values in (("parts", of_parts), ("ints", of_ints)):
        for operation, value in values.items():
            with program(Memset("parts"), HostMetric("cost", operation, buffer)) as (_, memory, steps):
                steps.run()
                memory.write("parts", np.array([1, 1e8, 1], np.float32))
                memory.write("ints", np.array([4, -3]))
                assert steps.metrics() == {"cost": value}
                assert type(steps.metrics()["cost"]) is float


def test_no_sample_reads_a_metric():
    with program(Memset("parts"), HostMetric("cost", "sum", "parts")) as (device, _, steps):
        device.download = None
        steps.queue()
        steps.run()
        assert steps.operations == 1


def test_a_metric_of_an_unwritten_buffer_is_refused():
    with (
        program(HostMetric("cost", "max", "parts")) as (_, _, steps),
        pytest.raises(LaunchError, match="the metric 'cost', the max of the buffer 'parts', is nan") as error,
    ):
        steps.metrics()
    assert error.value.cure


def test_a_function_gets_arrays_and_its_return_value_is_returned():
    def double(arrays, stream):
        arrays["total"][0] = 2 * arrays["a"].sum()
        return {"seen": len(arrays)}

    with program(Memset("parts"), Call("double"), double=double) as (_, memory, steps):
        assert steps.run() == [None, {"seen": 5}]
        assert memory.read("total") == 20


def test_a_function_gets_the_binary_it_names_which_is_not_loaded():
    given = []
    steps = (Launch(0, "tree", (1, 1, 1), (32, 1, 1), ()), Call("work", module=1))
    with program(*steps, work=lambda arrays, stream, binary: given.append(binary)) as (device, _, bound):
        bound.run()
        assert given == [b"B"]
        assert device.loaded == [b"A"]


def test_untimed_steps_run_only_for_checks():
    called = []
    steps = (Call("bring", timed=False), Call("work"), HostFinish("sum", "a", "total"))
    functions = {name: lambda *_, name=name: called.append(name) for name in ("bring", "work")}
    with program(*steps, **functions) as (device, memory, bound):
        bound.run()
        assert called == ["bring", "work"]
        memory.write("total", np.zeros(1))
        bound.sample()
        bound.queue()
        assert called == ["bring", "work", "work", "work"]
        assert memory.read("total") == 10
        assert device.log == 3 * [("synchronize",)]


def test_functions_with_their_own_streams_find_the_inputs_complete():
    steps = (Call("work"),)
    with program(*steps, work=lambda *_: device.log.append("work")) as (device, _, bound):
        bound.run()
        bound.sample()
        assert device.log == [("synchronize",), "work", ("synchronize",), "work", ("synchronize",)]


def test_an_exception_of_a_function_is_reported_with_its_name():
    def divide(arrays, stream):
        return 1 / 0

    with program(Call("divide"), divide=divide) as (_, _, steps):
        with pytest.raises(LaunchError) as error:
            steps.run()
        assert error.value.what == "the Python step 'divide' raised ZeroDivisionError: division by zero"
        assert not error.value.fatal
        assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_dropped_program_releases_its_modules_at_once():
    class Module:
        pass

    class Loading(Recording):
        def load(self, code):
            return Module()

    device = Loading()
    record = ReplayRecord(
        Case("scale", "alpha"),
        Kind.KERNEL,
        BUFFERS,
        (
            Launch(0, "go", (1, 1, 1), (1, 1, 1), (BufferArg("a"),)),
            HostFinish("sum", "parts", "total"),
            Call("nothing"),
        ),
        ("m",),
        "",
        0,
    )
    gc.disable()
    try:
        with CaseMemory(device, BUFFERS) as memory:
            program = Program(device, record, [b"code"], memory, {(None, "nothing"): lambda views, stream: None})
            module = weakref.ref(program._modules[0, 0])
            del program
            assert module() is None
    finally:
        gc.enable()
