"""Tasks of a plan, and devices on the host's memory, as many tests of measuring need them."""

from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from perfsvc.device.memory import HostMemory
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Case, DeviceInfo, Kind, ReplayRecord, Tolerance
from perfsvc.process.shared_memory import share

NOTHING = Recipe("none", lambda: share({}, {}))
"""Makes no arrays."""
INPUTS = {"a": np.array([1, 2, 3, 4], np.float32)}


def make_task(variant, device="GPU-1", *, point=(), modules=(), cache=CacheState.COLD, sampling=Sampling(), **given):  # noqa: B008 - a sampling is frozen
    """Return a task of the benchmark ``dot``."""
    record = ReplayRecord(Case("dot", variant, point), Kind.KERNEL, (), (), modules, "", seed=0)
    return Task(device, record, (), cache, sampling, Tolerance(0, 0), NOTHING, **given)


@dataclass
class Given:
    """Inputs and references, like ``MappedArrays``."""

    expected: dict
    inputs: dict = field(default_factory=lambda: INPUTS)
    fresh_inputs: dict = field(default_factory=dict)
    fresh_expected: dict = field(default_factory=dict)


class OnHost(HostMemory):
    """A device that has the host's memory and does nothing."""

    stream = 0
    queue_depth = 0
    info = DeviceInfo("fake", "fake:", "FAKE-1", "Fake GPU", "fake", l2_bytes=100)

    def measuring(self, record, replica):
        return nullcontext()

    def expect(self, expected):
        pass

    def load(self, code):
        return code

    def synchronize(self):
        pass

    def can_compute_error(self, dtype, reference_dtype):
        return False
