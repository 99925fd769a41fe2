"""The checks of one case in one replica: before any sample, and after all of them."""

import itertools
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from perfsvc.device.memory import HostMemory
from perfsvc.errors import ResultError
from perfsvc.measure.protocol.messages import CaseJob, CheckedResult, Sampling
from perfsvc.measure.worker import check as checking
from perfsvc.measure.worker.check import ResultCheck
from perfsvc.measure.worker.memory import CaseMemory, DeviceArrayCache
from perfsvc.measure.worker.program import Program
from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    CacheState,
    Call,
    Case,
    Error,
    Kind,
    Launch,
    ReplayRecord,
    Role,
    Tolerance,
)
from perfsvc.process.shared_memory import ArrayLayout

BUFFERS = (
    Buffer(Array("a", "float32", (4,)), Role.INPUT),
    Buffer(Array("out", "float32", (4,)), Role.OUTPUT),
    Buffer(Array("spare", "float32", (2,)), Role.SCRATCH),
)
DOUBLE = Launch(0, "double", (1, 1, 1), (32, 1, 1), (BufferArg("out"), BufferArg("a")), constants=(("weights", "a"),))
FIRST = np.array([1, 2, 3, 4], np.float32)
FRESH = np.array([9, 8, 7, 6], np.float32)


def doubled(a):
    return {"out": 2.0 * a.astype(np.float64)}


@dataclass
class Arrays:
    """Inputs and references, like ``MappedArrays``."""

    inputs: Mapping[str, Any] = field(default_factory=lambda: {"a": FIRST})
    expected: Mapping[str, Any] = field(default_factory=lambda: doubled(FIRST))
    fresh_inputs: Mapping[str, Any] = field(default_factory=dict)
    fresh_expected: Mapping[str, Any] = field(default_factory=dict)


WITHOUT_REFERENCE = Arrays(expected={})
FRESH_REFERENCE = Arrays(fresh_inputs={"a": FRESH}, fresh_expected=doubled(FRESH))
FRESH_TO_CHANGE = Arrays(fresh_inputs={"a": FRESH})


class Doubling(HostMemory):
    """Doubles ``a`` into ``out``, or does something else at some launches (by number, from 1)."""

    stream = 0

    def __init__(self, does=None, at=lambda launch: True):
        super().__init__()
        self.does, self.at = does, at
        self.launches, self.downloads = 0, 0
        self.found, self.constants, self.expected, self.asked = [], [], [], []
        self.elsewhere = False
        self.finds, self.own_error = False, None

    def allocate_untimed(self, nbytes):
        return self.allocate(nbytes)

    def load(self, code):
        return code

    def set_constant(self, module, symbol, address, nbytes):
        self.constants.append((symbol, self.view(address, "float32", (nbytes // 4,)).tolist()))

    def expect(self, expected):
        self.expected.append(dict(expected))

    def launch(self, module, launch, args):
        self.launches += 1
        out, a = (self.view(int(arg), "float32", (4,)) for arg in args)
        self.found.append(out.copy())
        if self.does and self.at(self.launches):
            self.does(out, a)
        else:
            out[...] = 2 * a

    def synchronize(self):
        pass

    def download(self, address, out):
        self.downloads += 1
        super().download(address, out)

    def can_compute_error(self, dtype, reference_dtype):
        assert (dtype, reference_dtype) == ("float32", "float64")
        return self.finds

    def error(self, address, dtype, reference, reference_dtype, count):
        both = (self.view(address, dtype, (count,)), self.view(reference, reference_dtype, (count,)))
        self.asked.append(tuple(array.tolist() for array in both))
        return self.own_error

    def uses_other_streams(self, sample, seconds, watched):
        before = [self.view(address, "float32", (nbytes // 4,)).copy() for address, nbytes in watched]
        self.asked.append((seconds, before))
        sample()
        return self.elsewhere


@contextmanager
def case(device, given=None, *, steps=(DOUBLE,), kind=Kind.KERNEL, replica=0, checked=None, budget_bytes=0):
    """Give the check of a case on a device."""
    record = ReplayRecord(Case("double", "plain"), kind, BUFFERS, steps, ("1",), "", seed=0)
    job = CaseJob(
        record, replica, CacheState.COLD, Tolerance(1e-3, 1e-3), Sampling(), "double", ArrayLayout(), checked=checked
    )
    with CaseMemory(device, BUFFERS) as memory:
        program = Program(device, record, [b""], memory, {(None, "double"): double})
        yield ResultCheck(device, job, given or Arrays(), DeviceArrayCache(device, budget_bytes), memory, program)


def double(arrays, stream):
    arrays["out"][...] = 2 * arrays["a"]
    return {"calls": 1}


class Caching:
    """Returns its first result for ever."""

    def __init__(self):
        self.result = None

    def __call__(self, out, a):
        if self.result is None:
            self.result = 2 * a
        out[...] = self.result


def nothing(out, a):
    pass


def zero(out, a):
    out[...] = 0


def rounded(out, a):
    out[...] = np.nextafter(2 * a, np.float32(0))


def overrun(out, a):
    memory = np.lib.stride_tricks.as_strided(out, (5,), out.strides)
    memory[...] = 2


def overwrite(out, a):
    out[...] = 2 * a
    a[0] = 5


def late(launch):
    return launch > 1


def test_a_right_result_has_its_error_and_is_kept_for_later_replicas():
    device = Doubling(rounded)
    with case(device) as check:
        check.before()
        assert 0 < check.error.mean <= check.error.max < 1e-6
        assert check.checked.error == check.error
        assert set(check.checked.digests) == {"out"}
        check.after(1e-3)
    assert np.isnan(np.array(device.found)).all()  # poisoned before each launch
    assert len(device.found) == 2


def test_a_wrong_result_is_found_before_any_sample():
    messages = {
        zero: r"wrong result: out\[2\] is 0, the reference says 6",
        nothing: r"wrong result: out\[0\] is nan",
        overrun: "out of bounds: the case wrote past buffer 'out', up to 1 elements",
        overwrite: "wrote to its input 'a'",
    }
    for does, message in messages.items():
        with case(Doubling(does)) as check:
            with pytest.raises(ResultError, match=message) as error:
                check.before()
            assert check.checked is None
        assert error.value.cure


def test_a_result_that_goes_wrong_later_is_found_after_the_samples():
    messages = {nothing: r"out\[0\] is nan", overrun: "wrote past buffer 'out'"}
    for given, (does, message) in itertools.product((Arrays(), FRESH_REFERENCE, FRESH_TO_CHANGE), messages.items()):
        with case(Doubling(does, late), given) as check:
            check.before()
            with pytest.raises(ResultError, match=message):
                check.after(1e-3)


def test_inputs_are_checked_in_the_first_replica_alone():
    with case(Doubling(overwrite), replica=1) as check:
        check.before()
        assert check.error == Error(0, 0)


def test_a_result_that_an_earlier_replica_found_right_is_not_compared_again():
    with case(Doubling()) as check:
        check.before()
        checked = CheckedResult(check.checked.digests, Error(0.5, 0.25))
    device = Doubling()
    with case(device, checked=checked, replica=1) as check:
        check.before()
        check.after(1e-3)
        assert check.error == Error(0.5, 0.25)
    assert (device.launches, device.downloads) == (2, 0)


def test_a_result_that_differs_from_an_earlier_replica_is_compared():
    device = Doubling()
    with case(device, checked=CheckedResult({"out": "another"}, Error(0.5, 0.25)), replica=1) as check:
        check.before()
        assert check.error == Error(0, 0)
    assert device.downloads == 1
    another = CheckedResult({"out": "another"}, Error(0, 0))
    with case(Doubling(zero), checked=another, replica=1) as check, pytest.raises(ResultError):
        check.before()


def test_a_result_that_differs_only_by_rounding_after_the_samples_is_right():
    device = Doubling(rounded, late)
    with case(device) as check:
        check.before()
        assert check.error == Error(0, 0)
        check.after(1e-3)
        assert 0 < check.error.max < 1e-6
    assert device.downloads == 2


def test_fresh_inputs_have_their_own_reference():
    device = Doubling()
    with case(device, FRESH_REFERENCE) as check:
        check.before()
        check.after(1e-3)
    assert [content for _, content in device.constants] == [FIRST.tolist(), FRESH.tolist()]
    assert [expected["out"].tolist() for expected in device.expected] == [(2 * FIRST).tolist(), (2 * FRESH).tolist()]


def test_the_error_is_the_largest_of_all_checks():
    with case(Doubling(rounded, late), FRESH_REFERENCE) as check:
        check.before()
        check.after(1e-3)
        assert 0 < check.error.max < 1e-6


def test_after_a_check_that_only_requires_change_the_first_inputs_are_checked_again():
    device = Doubling()
    with case(device, FRESH_TO_CHANGE) as check:
        check.before()
        check.after(1e-3)
    assert [content for _, content in device.constants] == [FIRST.tolist(), FRESH.tolist(), FIRST.tolist()]
    assert device.downloads == 1  # the last result is the first one, by its digest


def test_a_variant_that_caches_its_result_fails():
    for given, message in (
        (FRESH_REFERENCE, r"wrong result: out\[0\] is 2, the reference says 18"),
        (FRESH_TO_CHANGE, "'out' did not change when the inputs did"),
    ):
        with case(Doubling(Caching()), given) as check:
            check.before()
            with pytest.raises(ResultError, match=message):
                check.after(1e-3)


def test_a_case_without_a_reference_is_only_checked_for_its_bounds():
    with case(Doubling(zero), WITHOUT_REFERENCE) as check:
        check.before()
        check.after(1e-3)
        assert (check.error, check.checked) == (None, None)
    with case(Doubling(overrun), WITHOUT_REFERENCE) as check, pytest.raises(ResultError, match="out of bounds"):
        check.before()


def test_work_on_another_stream_is_detected_while_the_right_one_is_held_back():
    device = Doubling()
    with case(device, steps=(Call("double"),)) as check:
        assert check.before() == [{"calls": 1}]
        check.after(0.25)
    ((seconds, watched),) = device.asked
    assert seconds == 0.501
    assert [(len(array), bool(np.isnan(array).all())) for array in watched] == [(4, True), (2, True)]


def test_only_a_kernel_that_is_a_function_can_work_elsewhere():
    for kind, steps in itertools.product((Kind.KERNEL, Kind.PIPELINE), ((DOUBLE,), (Call("double"),))):
        device = Doubling()
        device.elsewhere = True
        with case(device, steps=steps, kind=kind) as check:
            check.before()
            if kind is Kind.KERNEL and steps != (DOUBLE,):
                with pytest.raises(ResultError, match="works on another stream") as error:
                    check.after(1e-3)
                assert "kind='pipeline'" in error.value.cure
            else:
                check.after(1e-3)
                assert device.asked == []


def finding(error):
    device = Doubling()
    device.finds, device.own_error = True, error
    return device


def test_a_device_that_finds_errors_itself_gets_the_reference_once():
    device = finding(Error(1e-4, 1e-5))
    with case(device, budget_bytes=1000) as check:
        check.before()
        assert check.error == Error(1e-4, 1e-5)
    assert device.asked == [((2 * FIRST).tolist(), (2.0 * FIRST).tolist())]
    assert device.downloads == 0


def test_the_host_compares_what_the_device_cannot_or_has_no_room_for():
    for error, budget_bytes in ((None, 1000), (Error(1e-4, 1e-5), 16)):
        device = finding(error)
        with case(device, budget_bytes=budget_bytes) as check:
            check.before()
            assert check.error == Error(0, 0)
        assert device.downloads == 1


def test_an_error_that_the_device_found_too_large_is_described_from_the_result():
    device = finding(Error(0.5, 0.5))
    device.does = zero
    with case(device, budget_bytes=1000) as check, pytest.raises(ResultError, match=r"out\[2\] is 0"):
        check.before()


def test_the_time_of_failed_checks_counts_as_well(monkeypatch):
    ticks = itertools.count(step=3)
    monkeypatch.setattr(checking.time, "monotonic", lambda: next(ticks))
    with case(Doubling(zero, late)) as check:
        check.before()
        with pytest.raises(ResultError):
            check.after(1e-3)
        assert check.seconds == 6
