"""The fake device: correct results at scripted times, and every fault on request, for tests of all other rooms.

The script is a JSON file, ``--device fake:script.json``::

    {"model": "Fake GPU", "uuid": "FAKE-0",
     "cases": {"*": {"seconds": 1e-4},
               "transpose/naive": {"seconds": [1.0e-4, 1.1e-4, 0.9e-4]},
               "dot/tree[n=1000]": {"fault": "hang", "replica": 1}}}

The entry of a case is looked up by the SHA-256 digest of one of its binaries (or of its benchmark file if it has no
binary), then by its id, ``benchmark/variant``, ``benchmark`` and ``*``. The cases with which a run measures the peaks
have entries too. Keys of
an entry:

``seconds``
    The time of every sample, or a list with one item for each replica: a number, or a list of samples (repeated as
    needed, over all batches of the case, warm-up included).
``within``, ``between``
    Noise as relative standard deviations: of the samples of a replica, and of the replicas. It depends on the script's
    ``seed``, the case, its binaries and the replica, so it is the same each time a script is played.
``by_page``
    Factors of the times: the time of a sample whose arrays lie n pages further than at the case's first launch, in
    total, is multiplied by item n, counted again from the first item when the list ends.
``conditions``
    The conditions of the GPU, a list of objects with the fields of ``perfsvc.model.Conditions``
    (``[{"slowdowns": ["thermal slowdown"], "temperature_c": 92}, {}]``), one for each reading. Each batch takes a
    reading, warm-up batches included, and so does each rest until the GPU has recovered. The last object applies to all
    further readings.
``timer_overhead_s``
    Seconds of a sample without launches, in a case whose other samples have launches.
``energy_j``
    Joules per sample; without it the GPU does not count energy.
``fault``, ``replica``
    What goes wrong, in every replica or only in this one:

    - ``wrong`` (wrong results), ``overrun`` (a write past the outputs), ``caches`` (always returns its first result,
      also for other inputs), ``elsewhere`` (works on another stream);
    - ``refused``, ``illegal`` (ends the context), ``crash``, ``hang`` (really hangs);
    - ``synchronises`` (the host waits for the device within a sample, so the blocking kernel ends by itself);
    - ``lost``: the GPU disappears. It leaves ``script.json.lost`` next to the script, and can be neither found nor
      opened while that file exists.

``profiler`` is what ``perfsvc.profile.fake`` plays; without it the device has no profiler.

``queue_depth`` and ``l2_bytes`` describe the GPU. If a batch queues more operations than ``queue_depth``, the blocking
kernel ends by itself. The device's clock, which time caps use, counts samples, rests, and waiting for blocking kernels
that ended by themselves. Nothing but ``hang`` ever sleeps.
"""

import contextlib
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from perfsvc.device.host_graph import HostGraph
from perfsvc.device.memory import HostDevice, array_bytes
from perfsvc.device.protocol import Graph, GraphStep
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.model import (
    Batch,
    BufferArg,
    Case,
    Conditions,
    DeviceInfo,
    Launch,
    ReplayRecord,
    Role,
    codec,
)

STRICT = {"extra": "forbid"}
"""Unknown keys are errors, because they are typing mistakes."""

Fault = Literal[
    "wrong", "overrun", "caches", "elsewhere", "refused", "illegal", "crash", "hang", "synchronises", "lost"
]


BLOCKING_LIMIT_S = 1.0
"""Seconds after which the blocking kernel ends by itself."""
_EVENTS_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class ScriptedConditions(Conditions):
    """The conditions of the GPU at one reading, as the script gives them."""

    __pydantic_config__: ClassVar = STRICT

    def conditions(self) -> Conditions:
        """Return the reading as plain ``Conditions``, as other devices report them."""
        return Conditions(**{item.name: getattr(self, item.name) for item in fields(self)})


@dataclass(frozen=True, slots=True)
class ScriptedCase:
    """The script's entry of one case; a fault occurs in every replica, or only in ``replica``."""

    __pydantic_config__: ClassVar = STRICT

    seconds: float | tuple[float | tuple[float, ...], ...] = 1e-4
    within: float = 0.0
    between: float = 0.0
    by_page: tuple[float, ...] = (1.0,)
    conditions: tuple[ScriptedConditions, ...] = ()
    fault: Fault | None = None
    replica: int | None = None
    timer_overhead_s: float = 1e-6
    energy_j: float | None = None

    def samples(self, replica: int) -> tuple[float, ...]:
        """Return the scripted sample times of a replica, to be repeated as needed."""
        samples_s = self.seconds[replica % len(self.seconds)] if isinstance(self.seconds, tuple) else self.seconds
        return samples_s if isinstance(samples_s, tuple) else (samples_s,)

    def times(self, replica: int, seed: str) -> Iterator[float]:
        """Yield the times of all samples of a replica, without end."""
        exact = cycle(self.samples(replica))
        if not (self.within or self.between):
            return exact
        noise = random.Random(f"{seed}/{replica}")  # noqa: S311 - noise that can be repeated, no secret
        replica_factor = math.exp(noise.gauss() * self.between)
        return (seconds * replica_factor * math.exp(noise.gauss() * self.within) for seconds in exact)

    def readings(self) -> Iterator[Conditions]:
        """Yield the conditions of the GPU, reading after reading."""
        scripted = [reading.conditions() for reading in self.conditions] or [Conditions()]
        return chain(scripted, repeat(scripted[-1]))


@dataclass(frozen=True, slots=True)
class DeviceScript:
    """A whole script."""

    __pydantic_config__: ClassVar = STRICT

    model: str = "Fake GPU"
    uuid: str = "FAKE-0"
    driver: str = "0.0"
    l2_bytes: int = 0
    queue_depth: int = 0
    seed: int = 0
    cases: Mapping[str, ScriptedCase] = field(default_factory=dict)
    profiler: Mapping[str, Any] | None = None

    def entry(self, case: Case, files: Sequence[str] = ()) -> ScriptedCase:
        """Return the most specific entry for a case; ``files`` are the digests of its binaries or benchmark file."""
        for key in (*files, case.id, f"{case.benchmark}/{case.variant}", case.benchmark, "*"):
            if key in self.cases:
                return self.cases[key]
        return ScriptedCase()


def read_script(path: Path) -> DeviceScript:
    """Read a script; raises ``NoDeviceError`` if it cannot be read."""
    try:
        return codec.decode(DeviceScript, path.read_bytes())
    except (OSError, ValueError) as error:
        raise NoDeviceError(
            f"the fake device's script {path} cannot be used: {error}",
            cure="name a JSON script as perfsvc/device/fake.py describes it: --device fake:script.json",
        ) from error


def describe(path: Path) -> DeviceInfo:
    """Return the device of the script at a path; raises ``NoDeviceError`` if it is lost or cannot be read."""
    return _described(path, read_script(path))


def _described(path: Path, script: DeviceScript) -> DeviceInfo:
    """Return the description of a script's device; raises ``NoDeviceError`` if the device is lost."""
    if _marker(path).exists():
        raise NoDeviceError(f"the fake device {script.uuid} is lost", cure=f"delete {_marker(path)} to bring it back")
    return DeviceInfo(
        kind="fake",
        spec=f"fake:{path.absolute()}",
        uuid=script.uuid,
        model=script.model,
        target="fake",
        multiprocessors=1,
        l2_bytes=script.l2_bytes,
        shared_bytes_per_block=48 << 10,
        warp_size=32,
        driver=script.driver,
    )


def _marker(path: Path) -> Path:
    """Return the file that exists while the device of a script is lost."""
    return path.with_name(path.name + ".lost")


class FakeDevice(HostDevice):
    """A ``Device`` that plays a script.

    Args:
        path: the script; the script of the lead if the device is a group.
        info: the description of a group.
    """

    def __init__(self, path: Path, info: DeviceInfo | None = None) -> None:
        super().__init__()
        self._path = path
        self._script = read_script(path)
        self.info = info or _described(path, self._script)
        self.queue_depth = self._script.queue_depth
        self._clock = 0.0
        self._entry = ScriptedCase()
        self._fault: Fault | None = None
        self._dtypes: dict[str, str] = {}
        self._scratch: dict[str, int] = {}
        self._results: dict[str, bytes] = {}
        self._times: Iterator[float] = iter(())
        self._readings = self._entry.readings()
        self._launches = 0
        self._first_addresses: int | None = None
        self._page = 0

    @contextlib.contextmanager
    def measuring(self, record: ReplayRecord, replica: int) -> Iterator[None]:
        """Choose the case's entry of the script."""
        self._entry = entry = self._script.entry(record.case, record.modules or (record.bench,))
        self._fault = entry.fault if entry.replica in {None, replica} else None
        self._dtypes = {buffer.array.name: buffer.array.dtype for buffer in record.buffers}
        self._scratch = {
            buffer.array.name: array_bytes(buffer.array) for buffer in record.buffers if buffer.role is Role.SCRATCH
        }
        self._results = {}
        self._times = entry.times(replica, f"{self._script.seed}/{record.case.id}/{'/'.join(record.modules)}")
        self._readings = entry.readings()
        self._launches = 0
        self._first_addresses, self._page = None, 0
        yield

    def expect(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """Set the results of later launches, unless the scripted fault makes them repeat their first result."""
        if not (self._fault == "caches" and self._results):
            self._results = {name: self._written(ref.astype(self._dtypes[name])) for name, ref in expected.items()}

    def _written(self, result: NDArray[Any]) -> bytes:
        """Return what launches write to an output: its result, changed by the scripted fault."""
        result = result + 1 if self._fault == "wrong" else result
        return result.tobytes() + (np.ones(10, result.dtype).tobytes() if self._fault == "overrun" else b"")

    def load(self, code: bytes) -> bytes:
        """Return the bytes: a binary of this device may have any content."""
        return code

    def set_constant(self, module: bytes, symbol: str, address: int, nbytes: int) -> None:
        """Do nothing: constants do not change results here."""

    def launch(self, module: bytes, launch: Launch, args: Sequence[np.generic]) -> None:
        """Write the reference to every output and zeros to all scratch memory, or cause the scripted fault."""
        self._launches += 1
        self._commit(launch)
        self._note_page(args)
        for arg, value in zip(launch.args, args, strict=True):
            if isinstance(arg, BufferArg) and arg.buffer in self._results:
                self.write(int(value), self._results[arg.buffer])
            elif isinstance(arg, BufferArg) and arg.buffer in self._scratch:
                self.fill(int(value), self._scratch[arg.buffer], 0)

    def _note_page(self, args: Sequence[np.generic]) -> None:
        """Note how many pages the addresses of a launch have moved since the case's first launch."""
        addresses = sum(int(value) for value in args if isinstance(value, np.uint64))
        if self._first_addresses is None:
            self._first_addresses = addresses
        self._page = (addresses - self._first_addresses) // self.page_bytes

    def _commit(self, launch: Launch) -> None:
        """Cause the scripted fault, if it occurs at the launch itself."""
        match self._fault:
            case "refused":
                raise LaunchError(
                    f"invalid configuration: {launch.entry} was refused", cure="use fewer threads a block"
                )
            case "illegal":
                raise LaunchError(
                    f"illegal address in {launch.entry}", cure="run it under compute-sanitizer", fatal=True
                )
            case "lost":
                _marker(self._path).touch()
                raise LaunchError(
                    f"the device {self.info.uuid} was lost",
                    cure=f"delete {_marker(self._path)} to bring it back",
                    fatal=True,
                )
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                while True:
                    time.sleep(1)

    def uses_other_streams(
        self, sample: Callable[[], None], seconds: float, watched: Sequence[tuple[int, int]]
    ) -> bool:
        """Return True if the scripted fault is ``elsewhere``."""
        return self._fault == "elsewhere"

    def now(self) -> float:
        """Return the seconds of all samples, rests and blocking kernels that ended by themselves, up to now."""
        return self._clock

    def rest(self, seconds: float) -> None:
        """Advance the clock."""
        self._clock += seconds

    def conditions(self) -> Conditions:
        """Return the next scripted reading."""
        return next(self._readings)

    def batch(
        self,
        sample: Callable[[], None],
        count: int,
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        blocked: bool,
        before: Callable[[int], None] | None = None,
        restore: Callable[[], None] | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> Batch:
        """Run the work at each place of its arrays once, and return the next scripted sample times."""
        launched, launches = self._launches, 0
        factors: list[float] = []
        for number in range(count):
            if before:
                before(number)
            if before or not number:
                already = self._launches
                if restore:
                    restore()
                sample()
                launches = self._launches - already
            factors.append(self._entry.by_page[self._page % len(self._entry.by_page)])
        empty = launched and not launches  # samples without launches measure the timer overhead
        times = repeat(self._entry.timer_overhead_s, count) if empty else islice(self._times, count)
        samples_s = tuple(seconds * factor for seconds, factor in zip(times, factors, strict=True))
        # None with the host's clock: then nothing is queued ahead.
        ahead = self._keeps_ahead(count * (launches + _EVENTS_PER_SAMPLE)) if clock == "device" else None
        busy_s = sum(samples_s)
        self._clock += busy_s + (BLOCKING_LIMIT_S if blocked and ahead is False else 0.0)
        return Batch(samples_s, blocked, ahead, busy_s=busy_s, conditions=self.conditions())

    def capture(self, steps: Sequence[GraphStep], *, apart: bool = False, evict_bytes: int = 0) -> Graph:
        """Return a graph that runs the steps; the script has the times of its replays."""
        return HostGraph(steps, None, lambda: None)

    def _keeps_ahead(self, operations: int) -> bool:
        return self._fault != "synchronises" and operations <= (self.queue_depth or operations)

    def back_to_back(self, sample: Callable[[], None], count: int) -> float:
        """Return the mean of the next scripted sample times."""
        sample()
        samples_s = tuple(islice(self._times, count))
        self._clock += sum(samples_s)
        return sum(samples_s) / count

    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:
        """Advance the clock by the seconds, and return the scripted joules."""
        sample()
        self._clock += seconds
        return self._entry.energy_j

    def close(self) -> None:
        """Do nothing: there is nothing to free."""
