"""The process that a profiler runs: it launches a case once, inside the NVTX range that the profiler watches.

The command is ``python -m perfsvc.measure.worker.profiling_launch FOLDER``; see
``perfsvc.measure.protocol.profiling_folder`` for the folder. The steps of a sample run with one launch inside the
range: the requested launch or, without a request, the longest launch, which is found in two earlier runs of the steps.
No helper kernel of perfsvc is queued in that range: no blocking kernel, no eviction, no check.
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
from perfsvc.measure.protocol.profiling_folder import LaunchReport, LoadedLaunch
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.model import Launch

Around = Callable[[int], AbstractContextManager[object]]
"""Returns the context manager that encloses a launch, given the launch's number in the case."""


def main(folder: Path) -> int:
    """Launch the case, write the report, and return the exit status."""
    try:
        report = _launch(profiling_folder.read(folder))
    except PerfsvcError as error:
        profiling_folder.write_report(folder, LaunchReport(what=error.what, cure=error.cure))
        return error.exit_code
    profiling_folder.write_report(folder, report)
    return 0


def _launch(loaded: LoadedLaunch) -> LaunchReport:
    """Launch the case as the folder describes, and return which launch was inside the range."""
    request, record = loaded.launch, loaded.launch.record
    launches = [step for step in record.steps if isinstance(step, Launch)]
    if not launches:
        raise LaunchError(f"{record.case.id} launches no kernel", cure="profile a variant that launches one")
    if request.visible:
        os.environ[VISIBLE] = request.visible  # before the driver starts, which reads the variable then
    with (
        contextlib.closing(open_device(request.device, loaded.helper_kernels)) as device,
        CaseMemory(device, record.buffers) as memory,
    ):
        program = Program(device, record, loaded.modules, memory, {})
        steps = _Steps(device, program, memory, loaded)
        chosen = steps.longest_launch() if request.launch is None else request.launch
        steps.run_in_range(chosen)
    return LaunchReport(chosen, launches[chosen].entry)


class _Steps:
    """The steps of a sample, run from fresh inputs each time."""

    def __init__(self, device: Device, program: Program, memory: CaseMemory, loaded: LoadedLaunch) -> None:
        self._device = device
        self._program = program
        self._memory = memory
        self._inputs = loaded.inputs

    def longest_launch(self) -> int:
        """Run the steps twice and return which launch took longest.

        The host's clock is accurate to some ten microseconds. If two launches differ by less, the choice is arbitrary.
        """
        seconds: dict[int, float] = {}

        @contextlib.contextmanager
        def timed(number: int) -> Iterator[None]:
            self._device.synchronize()
            started = time.monotonic()
            yield
            self._device.synchronize()
            seconds[number] = time.monotonic() - started

        for _ in range(2):  # the first launch of a kernel waits for its code to be loaded
            self._run(timed)
        return max(seconds, key=lambda number: seconds[number])

    def run_in_range(self, chosen: int) -> None:
        """Run the steps with the chosen launch inside the NVTX range."""

        def around(number: int) -> AbstractContextManager[object]:
            if number != chosen:
                return contextlib.nullcontext()
            self._device.synchronize()
            return nvtx.annotate(NVTX_PROFILED, domain=NVTX_DOMAIN)  # type: ignore[no-any-return]

        self._run(around)

    def _run(self, around: Around) -> None:
        """Run the steps, each launch in the context that ``around`` returns for its number."""
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
