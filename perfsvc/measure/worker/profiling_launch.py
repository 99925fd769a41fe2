"""The program that a profiler runs: it launches a case once, where the profiler looks.

``python -m perfsvc.measure.worker.profiling_launch FOLDER``, the folder of a ``perfsvc.measure.protocol.profiling_folder``. The steps of a sample run, with one
launch inside the NVTX range that the profiler is told of: the one that was asked for, or the longest, which running
them before has shown. Nothing of ours is queued in that range: no gate, no eviction, no check.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import nvtx

from perfsvc.device import NVTX_DOMAIN, NVTX_PROFILED, VISIBLE
from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError, PerfsvcError
from perfsvc.measure.protocol import profiling_folder
from perfsvc.measure.protocol.profiling_folder import Loaded, Told
from perfsvc.measure.worker.memory import Memory
from perfsvc.measure.worker.program import Program
from perfsvc.model import Launch

Around = Callable[[int], AbstractContextManager[object]]
"""What encloses a launch, by its number among the case's launches."""


def main(folder: Path) -> int:
    """Launches the case, writes down what became of it, and returns the exit status."""
    try:
        told = _shoot(profiling_folder.load(folder))
    except PerfsvcError as error:
        profiling_folder.tell(folder, Told(what=error.what, cure=error.cure))
        return error.exit_code
    profiling_folder.tell(folder, told)
    return 0


def _shoot(loaded: Loaded) -> Told:
    asked, record = loaded.shot, loaded.shot.record
    launches = [step for step in record.steps if isinstance(step, Launch)]
    if not launches:
        raise LaunchError(f"{record.case.id} launches no kernel", cure="profile a variant that does")
    if asked.visible:
        os.environ[VISIBLE] = asked.visible  # the driver looks there when it starts, which it has not yet
    with (
        contextlib.closing(open_device(asked.device, loaded.helper_kernels)) as device,
        Memory(device, record.buffers) as memory,
    ):
        program = Program(device, record, loaded.modules, memory, {})
        run = _Run(device, program, memory, loaded)
        chosen = run.longest() if asked.launch is None else asked.launch
        run.within_range(chosen)
    return Told(chosen, launches[chosen].entry)


class _Run:
    """The steps of a sample, run from fresh inputs each time."""

    def __init__(self, device: Device, program: Program, memory: Memory, loaded: Loaded) -> None:
        self._device = device
        self._program = program
        self._memory = memory
        self._inputs = loaded.inputs

    def longest(self) -> int:
        """Runs them; which launch took longest of those that it takes, its code loaded.

        The host's clock tells, which is good to some ten microseconds: where two launches are closer than that, it
        does not matter which one is looked at.
        """
        seconds: dict[int, float] = {}

        @contextlib.contextmanager
        def timed(number: int) -> Iterator[None]:
            self._device.synchronize()
            began = time.monotonic()
            yield
            self._device.synchronize()
            seconds[number] = time.monotonic() - began

        for _ in range(2):  # the first launch of a kernel waits for its code to be loaded
            self._run(timed)
        return max(seconds, key=lambda number: seconds[number])

    def within_range(self, chosen: int) -> None:
        """Runs them with one launch inside the range."""

        def around(number: int) -> AbstractContextManager[object]:
            if number != chosen:
                return contextlib.nullcontext()
            self._device.synchronize()
            return nvtx.annotate(NVTX_PROFILED, domain=NVTX_DOMAIN)  # type: ignore[no-any-return]

        self._run(around)

    def _run(self, around: Around) -> None:
        self._memory.reset(lambda name, address: self._device.upload(address, self._inputs[name]))
        self._program.set_constants()
        number = 0
        for step, run in self._program.timed:
            with around(number) if isinstance(step, Launch) else contextlib.nullcontext():
                run()
            number += isinstance(step, Launch)
        self._device.synchronize()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
