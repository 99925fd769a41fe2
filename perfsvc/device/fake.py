"""The fake device: right results at scripted times, and every fault on demand. For tests of all that stands above it.

The script is a JSON file, ``--device fake:script.json``::

    {"model": "Fake GPU", "uuid": "FAKE-0",
     "cases": {"*": {"seconds": 1e-4},
               "transpose/naive": {"seconds": [1.0e-4, 1.1e-4, 0.9e-4]},
               "dot/tree[n=1000]": {"fault": "hang", "replica": 1}}}

A case's entry is looked up by its id, then ``benchmark/variant``, then ``benchmark``, then ``*``. ``seconds`` is the
time of every sample, or a list with one entry a replica, each a number or a list of samples (repeated as needed).
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from perfsvc import codec
from perfsvc.device.memory import HostMemory
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.model import BufferArg, Case, DeviceInfo, Launch, ReplayRecord

STRICT = {"extra": "forbid"}
"""A word that is not known is a slip of the pen, and not ignored."""

Fault = Literal["wrong", "overrun", "refused", "illegal", "crash", "hang"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What the script says of one case; a fault strikes in every replica, or only in the one named."""

    __pydantic_config__: ClassVar = STRICT

    seconds: float | tuple[float | tuple[float, ...], ...] = 1e-4
    fault: Fault | None = None
    replica: int | None = None

    def samples(self, replica: int) -> tuple[float, ...]:
        """The scripted sample times of a replica, to be repeated as needed."""
        of_replica = self.seconds[replica % len(self.seconds)] if isinstance(self.seconds, tuple) else self.seconds
        return of_replica if isinstance(of_replica, tuple) else (of_replica,)


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script."""

    __pydantic_config__: ClassVar = STRICT

    model: str = "Fake GPU"
    uuid: str = "FAKE-0"
    driver: str = "0.0"
    cases: Mapping[str, Entry] = field(default_factory=dict)

    def entry(self, case: Case) -> Entry:
        """The entry of a case, the most special one first."""
        for key in (case.id, f"{case.benchmark}/{case.variant}", case.benchmark, "*"):
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
    """The device that a script makes."""
    script = read(path)
    return DeviceInfo(
        kind="fake",
        spec=f"fake:{path.absolute()}",
        uuid=script.uuid,
        model=script.model,
        target="fake",
        multiprocessors=1,
        shared_bytes_per_block=48 << 10,
        warp_size=32,
        driver=script.driver,
    )


class FakeDevice:
    """A ``Device`` that plays a script."""

    def __init__(self, path: Path) -> None:
        self._script = read(path)
        self._memory = HostMemory()
        self.info = describe(path)
        self.stream = 0
        self.allocate = self._memory.allocate
        self.free = self._memory.free
        self.fill = self._memory.fill
        self.upload = self._memory.upload
        self.download = self._memory.download
        self.view = self._memory.view
        self._entry = Entry()
        self._replica = 0
        self._results: dict[str, NDArray[Any]] = {}
        self._times: Iterator[float] = iter(())

    @contextlib.contextmanager
    def measuring(self, record: ReplayRecord, replica: int, expected: Mapping[str, NDArray[Any]]) -> Iterator[None]:
        """Chooses the case's entry of the script."""
        dtypes = {buffer.array.name: buffer.array.dtype for buffer in record.buffers}
        self._entry, self._replica = self._script.entry(record.case), replica
        self._results = {name: ref.astype(dtypes[name]) for name, ref in expected.items()}
        self._times = cycle(self._entry.samples(replica))
        yield

    def load(self, code: bytes) -> bytes:
        """Any bytes will do."""
        return code

    def set_constant(self, module: bytes, symbol: str, address: int, nbytes: int) -> None:
        """Constants decide nothing here."""

    def launch(self, module: bytes, launch: Launch, args: Sequence[np.generic]) -> None:
        """Hands out the reference as every output's content, or commits the scripted fault."""
        fault = self._entry.fault if self._entry.replica in {None, self._replica} else None
        self._commit(fault, launch)
        for arg, value in zip(launch.args, args, strict=True):
            if isinstance(arg, BufferArg) and arg.buffer in self._results:
                self._write(int(value), self._results[arg.buffer], fault)

    def _write(self, address: int, result: NDArray[Any], fault: Fault | None) -> None:
        target = self._memory.view(address, result.dtype.name, result.shape)
        target[...] = result + 1 if fault == "wrong" else result
        if fault == "overrun":
            past = self._memory.view(address + target.nbytes, target.dtype.name, (10,))
            past[...] = 1

    def _commit(self, fault: Fault | None, launch: Launch) -> None:
        if fault == "refused":
            raise LaunchError(f"invalid configuration: {launch.entry} was refused", cure="use fewer threads a block")
        if fault == "illegal":
            raise LaunchError(f"illegal address in {launch.entry}", cure="run it under compute-sanitizer", fatal=True)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        while fault == "hang":
            time.sleep(1)

    def synchronize(self) -> None:
        """Everything is done at once."""

    def time(
        self, sample: Callable[[], None], count: int, *, clock: Literal["device", "host"], cold: bool
    ) -> list[float]:
        """Runs the work and returns what the script says it took."""
        sample()
        return list(islice(self._times, count))

    def close(self) -> None:
        """Nothing to give back."""
