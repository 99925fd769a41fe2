"""A profiling session: one process launches cases one after the other, under one profiler that starts only once.

Cases are added while the process runs: a thread of this process makes the inputs of the next case while the profiler
counts the case before. A launch that crashes or hangs ends the session, and the outcome names it.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from perfsvc.errors import LaunchError, PerfsvcError, ProfileError, TimeLimitError
from perfsvc.measure.protocol import profiling_folder
from perfsvc.measure.protocol.profiling_folder import LaunchReport, ProfilingLaunch
from perfsvc.model import Call, DeviceInfo, Launch, LibraryCall, ReplayRecord
from perfsvc.process.shared_memory import Arrays
from perfsvc.service.confirm.pairs import StoredCase
from perfsvc.suite import StoredBench, isolated


@dataclass(frozen=True, slots=True, eq=False)
class SessionCase:
    """A case that a session launches.

    Attributes:
        range: the name of the NVTX range of its launch.
        like: what another session reported about a launch of this case, or the case in this session that comes before.
            If this case has a launch of the same kernel at the same position, that launch is profiled instead of the
            longest.
    """

    case: StoredCase
    range: str
    like: "LaunchReport | SessionCase | None" = None


@dataclass(slots=True)
class SessionOutcome:
    """What became of the cases of a session; a case that is in neither mapping was not launched.

    Attributes:
        reports: the reports of the launches that ended, some of them with an error.
        failures: why other cases were not profiled: no inputs could be made, or the launch crashed or hung.
        crashed: whether a launch crashed, hung, or ended the context of the device. The other cases deserve another
            session.
        over: whether the deadline kept the session from launching all cases.
        error: the error of the profiler, or of the whole process; None if they succeeded.
    """

    reports: dict[SessionCase, LaunchReport] = field(default_factory=dict)
    failures: dict[SessionCase, PerfsvcError] = field(default_factory=dict)
    crashed: bool = False
    over: bool = False
    error: PerfsvcError | None = None


@dataclass(slots=True)
class InputCache:
    """The inputs that were made last: both sides of a pair have the same."""

    key: tuple[object, ...] = ()
    inputs: Arrays = field(default_factory=dict)

    def of(self, case: StoredCase) -> Arrays:
        """Return the inputs of a case; raise ``SuiteError`` if its benchmark file makes none."""
        record = case.record
        key = (record.bench, record.case.point, record.seed)
        if self.key != key:
            bench = StoredBench(case.bench, record.case.benchmark)
            self.key, self.inputs = (), {}  # frees the memory of the last inputs first
            self.inputs = isolated.replay_inputs(bench, record.case.point, record.seed)
            self.key = key
        return self.inputs


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session runs.

    Attributes:
        helper_kernels: the helper kernels of the device.
        limit_s: seconds after which a launch is killed.
        deadline: no launch begins after this time of ``time.monotonic``.
        launched: called with each case whose launch has ended, from another thread.
    """

    device: DeviceInfo
    helper_kernels: bytes
    limit_s: float
    deadline: float
    launched: Callable[[SessionCase], object] = lambda _: None


def run_session(
    folder: Path,
    cases: Sequence[SessionCase],
    settings: SessionSettings,
    inputs: InputCache,
    run: Callable[[], None],
) -> SessionOutcome:
    """Launch cases in one process, in their order, and return what became of them.

    Args:
        folder: an empty folder.
        cases: the cases.
        settings: how to launch them.
        inputs: the inputs that an earlier session may have made.
        run: runs ``profiling_folder.command(folder)`` under a profiler.
    """
    isolated.start()
    feeder = _Feeder(folder, cases, settings, inputs)
    profiling_folder.begin(folder, settings.device, settings.helper_kernels, settings.limit_s)
    error: PerfsvcError | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="perfsvc-profiling") as thread:
        feeding = thread.submit(feeder.feed)
        try:
            run()
        except PerfsvcError as caught:
            error = caught
        except BaseException:
            isolated.stop()  # inputs may be in the making, which can take minutes
            raise
        finally:
            ended = time.time()
            feeder.stopped.set()
    feeding.result()
    return feeder.outcome(error, ended)


class _Feeder:
    """Adds cases to the folder of a session, each when the launch before has ended."""

    def __init__(
        self, folder: Path, cases: Sequence[SessionCase], settings: SessionSettings, inputs: InputCache
    ) -> None:
        self.stopped = threading.Event()
        self._folder = folder
        self._cases = cases
        self._settings = settings
        self._inputs = inputs
        self._added: list[SessionCase] = []
        self._outcome = SessionOutcome()

    def feed(self) -> None:
        """Add the cases, until the time is over or the process has ended."""
        try:
            for case in self._cases:
                if not self._add(case):
                    break
            self._last_has_ended()
        finally:
            profiling_folder.end(self._folder)

    def _add(self, case: SessionCase) -> bool:
        """Add a case; return False if the session is over."""
        try:
            inputs = self._inputs.of(case.case)
            locations = profiling_folder.prepare(self._folder, case.case.modules, inputs)
        except (PerfsvcError, OSError) as error:
            self._outcome.failures[case] = error if isinstance(error, PerfsvcError) else _no_room(error)
            return not self.stopped.is_set()
        if not self._last_has_ended() or self._outcome.crashed:
            return False
        if time.monotonic() > self._settings.deadline:
            self._outcome.over = True
            return False
        like = self._outcome.reports.get(case.like) if isinstance(case.like, SessionCase) else case.like
        if isinstance(case.like, SessionCase) and (like is None or like.launch is None):
            return True  # nothing to compare this case with
        record = case.case.record
        launch = ProfilingLaunch(
            record,
            case.range,
            locations,
            _same_launch(record, like),
            bench=case.case.bench if record.calls else "",
            python_modules=case.case.python_modules,
        )
        profiling_folder.add(self._folder, len(self._added), launch)
        self._added.append(case)
        return True

    def _last_has_ended(self) -> bool:
        """Wait until the last launch has ended, and keep its report; return False if the process has ended before."""
        if not self._added or self._added[-1] in self._outcome.reports:
            return True
        case, number = self._added[-1], len(self._added) - 1
        while True:
            is_over = self.stopped.is_set()
            if report := profiling_folder.read_report(self._folder, number):  # looked up after the end of the process
                break
            if is_over:
                return False
            self.stopped.wait(profiling_folder.LOOK_S)
        self._outcome.reports[case] = report
        self._outcome.crashed = report.fatal
        profiling_folder.drop_inputs(self._folder, number)
        self._settings.launched(case)
        return True

    def outcome(self, error: PerfsvcError | None, ended: float) -> SessionOutcome:
        """Return what became of the cases, given the error of the profiler and the time when it ended."""
        outcome = self._outcome
        whole = profiling_folder.read_report(self._folder)
        outcome.error = LaunchError(whole.what, cure=whole.cure) if whole and whole.what else error
        if error and not whole and self._added and self._added[-1] not in outcome.reports:
            began = profiling_folder.started(self._folder, len(self._added) - 1)
            if began is not None:
                outcome.crashed = True
                is_late = ended - began >= self._settings.limit_s
                outcome.failures[self._added[-1]] = self._time_limit() if is_late else error
        return outcome

    def _time_limit(self) -> TimeLimitError:
        return TimeLimitError(
            f"time limit: its launch was still being profiled after {self._settings.limit_s:g} s, so it was killed",
            cure="profile a smaller point, or collect less: --set basic",
        )


def _same_launch(record: ReplayRecord, like: LaunchReport | None) -> int | None:
    """Return the position of the launch that a report is about; None if the case has no such launch."""
    launches = [
        step
        for step in record.steps
        if isinstance(step, Launch | LibraryCall) or (isinstance(step, Call) and step.timed)
    ]
    if like is None or like.launch is None or like.launch >= len(launches):
        return None
    same = launches[like.launch]
    return like.launch if not isinstance(same, Launch) or same.entry == like.kernel else None


def _no_room(error: OSError) -> ProfileError:
    """Return the error for a file that a launch needs and perfsvc cannot write."""
    return ProfileError(
        f"what a profiler needs cannot be written: {error.strerror or error}",
        cure=f"make room in {tempfile.gettempdir()}, or set TMPDIR to a folder with more room",
    )


def launch_error(report: LaunchReport) -> PerfsvcError:
    """Return the error of a launch that failed."""
    return LaunchError(report.what, cure=report.cure)
