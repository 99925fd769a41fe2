"""The process that a profiler runs: it launches cases, each inside an NVTX range of its own that the profiler watches.

The command is ``python -m perfsvc.measure.worker.profiling_launch FOLDER``; see
``perfsvc.measure.protocol.profiling_folder`` for the folder. For each case, the steps of a sample run with one launch
inside the ranges: the requested launch or, without a request, the longest launch, which is found in two earlier runs of
the steps. A call of a Python function or a library counts as a launch, and the profiler sees all kernels that it
launches. If the steps are captured in a CUDA graph, the replay of the graph is the only launch. No helper kernel of
perfsvc is queued in that range: no blocking kernel, no eviction, no check.
"""

import contextlib
import faulthandler
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import nvtx

from perfsvc import entries
from perfsvc.device import NVTX_DOMAIN, NVTX_PROFILED, VISIBLE
from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError, PerfsvcError
from perfsvc.measure.protocol import profiling_folder
from perfsvc.measure.protocol.profiling_folder import LaunchReport, LoadedLaunch
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program, load_functions
from perfsvc.model import Call, Launch, LibraryCall
from perfsvc.suite.benchfile import stored_modules

Around = Callable[[int], AbstractContextManager[object]]
"""Returns the context manager that encloses a launch, given the launch's number in the case."""


def main(folder: Path) -> int:
    """Run the launches as the parent adds them, write a report of each, and return the exit status.

    A launch that fails costs only its own report, unless it ends the device's context. A launch that exceeds its time
    limit ends the process.
    """
    session, helper_kernels = profiling_folder.read_session(folder)
    if session.visible:
        os.environ[VISIBLE] = session.visible  # before the driver starts, which reads the variable then
    try:
        with contextlib.closing(open_device(session.device, helper_kernels)) as device:
            for launch_folder in profiling_folder.launches(folder, session.parent):
                # A thread in C ends the process: it needs no lock of Python, which a hanging launch may hold.
                faulthandler.dump_traceback_later(session.limit_s, exit=True)
                report = _run(device, launch_folder)
                faulthandler.cancel_dump_traceback_later()
                profiling_folder.write_report(launch_folder, report)
                if report.fatal:
                    return LaunchError.exit_code
    except PerfsvcError as error:  # the device cannot be opened or closed
        profiling_folder.write_report(folder, LaunchReport(what=error.what, cure=error.cure))
        return error.exit_code
    return 0


def _run(device: Device, folder: Path) -> LaunchReport:
    """Run the launch in a folder, and return its report."""
    began = time.monotonic()
    try:
        chosen, kernel, symbol = _launch(device, profiling_folder.read(folder))
    except PerfsvcError as error:
        fatal = isinstance(error, LaunchError) and error.fatal
        return LaunchReport(what=error.what, cure=error.cure, fatal=fatal)
    return LaunchReport(chosen, kernel, symbol, wall_s=time.monotonic() - began)


def _launch(device: Device, loaded: LoadedLaunch) -> tuple[int, str, str]:
    """Launch a case as its folder describes; return the number of the launch inside the ranges, its kernel and symbol.

    The names are empty if a Python function, a library or a CUDA graph launches the kernel.
    """
    request, record = loaded.launch, loaded.launch.record
    launches = [step for step in record.steps if isinstance(step, Launch | Call | LibraryCall)]
    if not launches:
        raise LaunchError(f"{record.case.id} launches no kernel", cure="profile a variant that launches one")
    calls = [step for step in launches if isinstance(step, Call)]
    with (
        stored_modules(dict(request.python_modules)),  # before and after a change, they may have the same names
        device.measuring(record, 0),
        CaseMemory(device, record.buffers) as memory,
    ):
        functions = load_functions(calls, request.bench, loaded.modules)
        with Program(device, record, loaded.modules, memory, functions) as program:
            steps = _Steps(device, program, memory, loaded)
            if any(not isinstance(step, Launch) for step in launches):
                steps.compile()
            if record.graph:
                steps.replay_in_range()
                return 0, "", ""
            chosen = request.launch
            if chosen is None:
                chosen = steps.longest_launch() if len(launches) > 1 else 0
            steps.run_in_range(chosen)
    launch = launches[chosen]
    if not isinstance(launch, Launch):
        return chosen, "", ""
    return chosen, launch.entry, entries.symbol(loaded.modules[launch.module], launch.entry)


class _Steps:
    """The steps of a sample, run from fresh inputs each time."""

    def __init__(self, device: Device, program: Program, memory: CaseMemory, loaded: LoadedLaunch) -> None:
        self._device = device
        self._program = program
        self._memory = memory
        self._inputs = loaded.inputs
        self._range = loaded.launch.range

    def compile(self) -> None:
        """Let functions compile, tune and load what they launch, before any of it is profiled.

        The blocking kernel is not used here: under a profiler, a launch may wait for the launch before.
        """

        def host_s(run: Callable[[], None]) -> float:
            self._device.synchronize()
            started = time.monotonic()
            run()
            self._device.synchronize()
            return time.monotonic() - started

        self._load()
        self._program.prepare(host_s)

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
        """Run the steps with the chosen launch inside two NVTX ranges.

        The profiler looks for the outer range. The inner range has the name by which the launch is found in the report.
        """
        self._run(lambda number: self._profiled() if number == chosen else contextlib.nullcontext())

    def replay_in_range(self) -> None:
        """Run the steps one after the other, and then capture and replay them as a graph inside the two NVTX ranges.

        The profiler profiles each kernel of the graph. The capture runs nothing. It is in the ranges too, because a
        profiler may look for the ranges when a kernel is captured.
        """
        self._run(lambda _: contextlib.nullcontext())
        self._load()
        with self._profiled(), self._program.graph.other(self._program.timed) as graph:
            graph.launch()
            self._device.synchronize()

    @contextlib.contextmanager
    def _profiled(self) -> Iterator[None]:
        """Enclose a launch in the two NVTX ranges."""
        self._device.synchronize()
        with (
            nvtx.annotate(NVTX_PROFILED, domain=NVTX_DOMAIN),
            nvtx.annotate(self._range, domain=NVTX_DOMAIN),
        ):
            yield

    def _run(self, around: Around) -> None:
        """Run the steps, each launch in the context that ``around`` returns for its number."""
        self._load()
        number = 0
        for step, run in self._program.timed:
            is_launch = isinstance(step, Launch | Call | LibraryCall)
            with around(number) if is_launch else contextlib.nullcontext():
                run()
                if isinstance(step, Call | LibraryCall):
                    self._device.synchronize()  # before the range ends, because a function may use other threads
            number += is_launch
        self._device.synchronize()

    def _load(self) -> None:
        """Load the inputs, poison the outputs, and fill the constants."""
        self._memory.reset(lambda name, address: self._device.upload(address, self._inputs[name]))
        self._program.set_constants()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
