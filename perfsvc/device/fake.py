"""The fake device: right results at scripted times, and every fault on demand. For tests of all that stands above it.

The script is a JSON file, ``--device fake:script.json``::

    {"model": "Fake GPU", "uuid": "FAKE-0",
     "cases": {"*": {"seconds": 1e-4},
               "transpose/naive": {"seconds": [1.0e-4, 1.1e-4, 0.9e-4]},
               "dot/tree[n=1000]": {"fault": "hang", "replica": 1}}}

A case's entry is looked up by the SHA-256 digest of one of its binaries, then its id, then ``benchmark/variant``, then
``benchmark``, then ``*``; so are the cases by which a run measures the measured peak. An entry may say:

``seconds``
    The time of every sample, or a list with one entry a replica, each a number or a list of samples (repeated as
    needed, over all batches of the case, warm-up included).
``within``, ``between``
    Noise on them, as relative standard deviations: of the samples of a replica, and of the replicas. The script's
    ``seed`` decides it with the case, its binaries and the replica, so that a script played again is as noisy again.
``conditions``
    What the GPU is like, a list of readings with the fields of ``perfsvc.model.Conditions``
    (``[{"slowdowns": ["thermal slowdown"], "temperature_c": 92}, {}]``): one a look, which each batch takes, those of
    the warm-up too, and each rest that waits for the GPU to recover. The last one lasts.
``floor``
    Seconds that a sample takes which launches nothing, of a case that otherwise does.
``energy_j``
    Joules of a sample; without it the GPU does not count energy.
``fault``, ``replica``
    What goes wrong, in every replica or only in that one:

    - ``wrong`` (a result that is), ``overrun`` (a write past the outputs), ``caches`` (its first result for ever, also
      for other inputs), ``elsewhere`` (it works on another stream);
    - ``refused``, ``illegal`` (ends the context), ``crash``, ``hang`` (this one for real);
    - ``synchronises`` (the host waits for the device amid a sample, so that the blocking kernel opens by itself);
    - ``lost``: the GPU vanishes. It leaves ``script.json.lost`` beside the script, and is not to be found or opened
      while that is there.

``profiler`` is what ``perfsvc.profile.fake`` plays; without it the device has none.

``queue_depth`` and ``l2_bytes`` are the GPU's. Where the launches of a batch and what is queued beside them are more
than the queue takes, the blocking kernel opens by itself. The GPU's clock, which time caps count, is what samples took, rests
and waiting at gates that opened by themselves; nothing but ``hang`` ever sleeps.
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

from perfsvc.device.memory import HostMemory
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.model import (
    Batch,
    BufferArg,
    Case,
    Conditions,
    DeviceInfo,
    Error,
    Launch,
    ReplayRecord,
    Role,
    TensorMapArg,
    codec,
)

STRICT = {"extra": "forbid"}
"""A word that is not known is a slip of the pen, and not ignored."""

Fault = Literal[
    "wrong", "overrun", "caches", "elsewhere", "refused", "illegal", "crash", "hang", "synchronises", "lost"
]


GATE_LIMIT_S = 1.0
"""Seconds after which the blocking kernel opens by itself."""
_AUXILIARY = 2
"""What is queued beside the launches of a sample: two events."""


@dataclass(frozen=True, slots=True)
class Reading(Conditions):
    """What the script says that the GPU is like at one look."""

    __pydantic_config__: ClassVar = STRICT

    def conditions(self) -> Conditions:
        """It, as other GPUs say it."""
        return Conditions(**{each.name: getattr(self, each.name) for each in fields(self)})


@dataclass(frozen=True, slots=True)
class Entry:
    """What the script says of one case; a fault strikes in every replica, or only in the one named."""

    __pydantic_config__: ClassVar = STRICT

    seconds: float | tuple[float | tuple[float, ...], ...] = 1e-4
    within: float = 0.0
    between: float = 0.0
    conditions: tuple[Reading, ...] = ()
    fault: Fault | None = None
    replica: int | None = None
    floor: float = 1e-6
    energy_j: float | None = None

    def samples(self, replica: int) -> tuple[float, ...]:
        """The scripted sample times of a replica, to be repeated as needed."""
        of_replica = self.seconds[replica % len(self.seconds)] if isinstance(self.seconds, tuple) else self.seconds
        return of_replica if isinstance(of_replica, tuple) else (of_replica,)

    def times(self, replica: int, seed: str) -> Iterator[float]:
        """The time of one sample after the other, without end."""
        exact = cycle(self.samples(replica))
        if not (self.within or self.between):
            return exact
        chance = _normal(random.Random(f"{seed}/{replica}"))  # noqa: S311 - noise that can be repeated, no secret
        pace = math.exp(next(chance) * self.between)
        return (seconds * pace * math.exp(apart * self.within) for seconds, apart in zip(exact, chance, strict=False))

    def readings(self) -> Iterator[Conditions]:
        """What the GPU is like, look after look."""
        scripted = [reading.conditions() for reading in self.conditions] or [Conditions()]
        return chain(scripted, repeat(scripted[-1]))


def _normal(chance: random.Random) -> Iterator[float]:
    """Standard normal numbers without end: those of ``random.gauss``, at a third of what asking it for each costs.

    Source:
        G. E. P. Box and M. E. Muller (1958), A note on the generation of random normal deviates, Annals of
        Mathematical Statistics 29(2).
    """
    while True:
        angle = chance.random() * math.tau
        radius = math.sqrt(-2.0 * math.log(1.0 - chance.random()))
        yield math.cos(angle) * radius
        yield math.sin(angle) * radius


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script."""

    __pydantic_config__: ClassVar = STRICT

    model: str = "Fake GPU"
    uuid: str = "FAKE-0"
    driver: str = "0.0"
    l2_bytes: int = 0
    queue_depth: int = 0
    seed: int = 0
    cases: Mapping[str, Entry] = field(default_factory=dict)
    profiler: Mapping[str, Any] | None = None

    def entry(self, case: Case, binaries: Sequence[str] = ()) -> Entry:
        """The entry of a case with binaries of some digests, the most special one first."""
        for key in (*binaries, case.id, f"{case.benchmark}/{case.variant}", case.benchmark, "*"):
            if key in self.cases:
                return self.cases[key]
        return Entry()


def read(path: Path) -> Script:
    """Reads a script; raises ``NoDeviceError`` where there is none that can be read."""
    try:
        return codec.decode(Script, path.read_bytes())
    except (OSError, ValueError) as error:
        raise NoDeviceError(
            f"the fake device's script {path} cannot be used: {error}",
            cure="name a JSON script as perfsvc/device/fake.py describes it: --device fake:script.json",
        ) from error


def describe(path: Path) -> DeviceInfo:
    """The device that the script at a path makes; raises ``NoDeviceError`` where it is lost or cannot be read."""
    return _described(path, read(path))


def _described(path: Path, script: Script) -> DeviceInfo:
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
    return path.with_name(path.name + ".lost")


class FakeDevice:
    """A ``Device`` that plays a script."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._script = read(path)
        self.info = _described(path, self._script)
        self._memory = HostMemory()
        self.stream = 0
        self.queue_depth = self._script.queue_depth
        self.allocate = self._memory.allocate
        self.allocate_aside = self._memory.allocate
        self.free = self._memory.free
        self.fill = self._memory.fill
        self.upload = self._memory.upload
        self.download = self._memory.download
        self.copy = self._memory.copy
        self.digest = self._memory.digest
        self.view = self._memory.view
        self._clock = 0.0
        self._entry = Entry()
        self._fault: Fault | None = None
        self._dtypes: dict[str, str] = {}
        self._scratch: dict[str, int] = {}
        self._results: dict[str, bytes] = {}
        self._times: Iterator[float] = iter(())
        self._readings = self._entry.readings()
        self._launches = 0

    @contextlib.contextmanager
    def measuring(self, record: ReplayRecord, replica: int) -> Iterator[None]:
        """Chooses the case's entry of the script."""
        self._entry = entry = self._script.entry(record.case, record.modules)
        self._fault = entry.fault if entry.replica in {None, replica} else None
        self._dtypes = {buffer.array.name: buffer.array.dtype for buffer in record.buffers}
        self._scratch = {
            array.name: math.prod(array.shape) * np.dtype(array.dtype).itemsize
            for array in (buffer.array for buffer in record.buffers if buffer.role is Role.SCRATCH)
        }
        self._results = {}
        self._times = entry.times(replica, f"{self._script.seed}/{record.case.id}/{'/'.join(record.modules)}")
        self._readings = entry.readings()
        self._launches = 0
        yield

    def expect(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """What launches hand out from now on, unless they cache their result."""
        if not (self._fault == "caches" and self._results):
            self._results = {name: self._made(ref.astype(self._dtypes[name])) for name, ref in expected.items()}

    def _made(self, result: NDArray[Any]) -> bytes:
        """What launches write from an output's start on: its result, or what the scripted fault makes of that."""
        made = result + 1 if self._fault == "wrong" else result
        return made.tobytes() + (np.ones(10, made.dtype).tobytes() if self._fault == "overrun" else b"")

    def load(self, code: bytes) -> bytes:
        """Any bytes will do."""
        return code

    def set_constant(self, module: bytes, symbol: str, address: int, nbytes: int) -> None:
        """Constants decide nothing here."""

    def tensor_map(self, address: int, arg: TensorMapArg) -> np.generic:
        """There are none here: raises ``LaunchError``."""
        raise LaunchError(f"the fake device has no tensor map of {arg.buffer!r}", cure='require "sm_90" of the variant')

    def launch(self, module: bytes, launch: Launch, args: Sequence[np.generic]) -> None:
        """Hands out the reference as every output's content and zeros as all scratch, or commits the scripted fault."""
        self._launches += 1
        self._commit(launch)
        for arg, value in zip(launch.args, args, strict=True):
            if isinstance(arg, BufferArg) and arg.buffer in self._results:
                self._memory.write(int(value), self._results[arg.buffer])
            elif isinstance(arg, BufferArg) and arg.buffer in self._scratch:
                self._memory.fill(int(value), self._scratch[arg.buffer], 0)

    def _commit(self, launch: Launch) -> None:
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

    def synchronize(self) -> None:
        """Everything is done at once."""

    def finds_errors(self, dtype: str, reference_dtype: str) -> bool:
        """Never."""
        return False

    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:
        """Never asked for."""
        return None

    def works_elsewhere(self, sample: Callable[[], None], seconds: float, watched: Sequence[tuple[int, int]]) -> bool:
        """As scripted."""
        return self._fault == "elsewhere"

    def now(self) -> float:
        """What samples took so far, rests, and waiting at gates that opened by themselves."""
        return self._clock

    def rest(self, seconds: float) -> None:
        """Moves the clock on."""
        self._clock += seconds

    def conditions(self) -> Conditions:
        """The next scripted reading."""
        return next(self._readings)

    def batch(
        self,
        sample: Callable[[], None],
        count: int,
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        blocked: bool,
    ) -> Batch:
        """Runs the work once, and returns what the script says that so many samples took."""
        before = self._launches
        sample()
        launches = self._launches - before
        samples_s = tuple(islice(self._times, count)) if launches or not before else (self._entry.floor,) * count
        held = self._keeps_ahead(count * (launches + _AUXILIARY)) if clock == "device" else None
        busy_s = sum(samples_s)
        self._clock += busy_s + (GATE_LIMIT_S if blocked and held is False else 0.0)
        return Batch(samples_s, blocked, held, busy_s=busy_s, conditions=self.conditions())

    def _keeps_ahead(self, operations: int) -> bool:
        return self._fault != "synchronises" and operations <= (self.queue_depth or operations)

    def back_to_back(self, sample: Callable[[], None], count: int) -> float:
        """The mean of the next samples of the script."""
        sample()
        samples_s = tuple(islice(self._times, count))
        self._clock += sum(samples_s)
        return sum(samples_s) / count

    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:
        """As scripted; it takes the time that it is given."""
        sample()
        self._clock += seconds
        return self._entry.energy_j

    def close(self) -> None:
        """Nothing to give back."""
