"""One tree of errors.

Each error says what happened, to what, and the cure; each branch owns the exit code of a command that ends with it.

    PerfsvcError
    ├── UsageError             2  the command, a selection or a revision cannot be understood
    │   ├── ConfigError           perfsvc.toml, or a variable of its keys, cannot be used (file and line)
    │   ├── NotMeasuredError      the runs asked for hold no such measurement
    │   └── ReportError           a file that is no report of one launch of the kernel
    ├── SuiteError             4  a bench.py that cannot be used (file and line)
    ├── CaseError              4  one case failed; every other case goes on
    │   ├── CompileError          its source does not compile, or lacks the entry point
    │   ├── ResultError           its output is wrong, or it wrote outside its buffers
    │   ├── LaunchError           the device refused or aborted the launch
    │   ├── DisturbedError        its GPU was disturbed and did not recover
    │   ├── TimeLimitError        it ran past its time limit
    │   ├── CrashError            its worker process died
    │   ├── ProfileError          a profiler ran it and brought nothing home
    │   └── UnsupportedError      this device cannot run it: reported as skipped, never as failed
    └── InfrastructureError    5  nothing can be measured or stored
        ├── NoDeviceError
        ├── NoCompilerError
        ├── NoDisassemblerError
        ├── NoProfilerError
        ├── CountersError
        ├── DatabaseError
        ├── NotSentError          a message did not arrive
        └── MissingPackageError

This module imports nothing.
"""


class PerfsvcError(Exception):
    """Anything perfsvc reports on purpose.

    Args:
        what: what happened, and to what, as a sentence without its full stop.
        cure: what the reader can do next, in the imperative; empty only where nothing can be done.
    """

    exit_code = 5

    def __init__(self, what: str, *, cure: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.what}\n  cure: {self.cure}" if self.cure else self.what


class UsageError(PerfsvcError):
    """The command, a selection, a revision or an option cannot be understood."""

    exit_code = 2


class ConfigError(UsageError):
    """``perfsvc.toml``, or an environment variable that stands for a key of it, cannot be used.

    Args:
        what: what is wrong with it.
        path: the file, or the variable's name.
        line: the line in the file, 1-based; 0 where no single line is at fault.
        nearest: the right key that is most like the wrong one; empty where none is at all alike.
        cure: what to change.
        others: what else is wrong, for all of it is told at once.
    """

    def __init__(
        self,
        what: str,
        *,
        path: str,
        line: int = 0,
        nearest: str = "",
        cure: str = "",
        others: "tuple[ConfigError, ...]" = (),
    ) -> None:
        super().__init__(what, cure=cure)
        self.path = path
        self.line = line
        self.nearest = nearest
        self.others = others

    @property
    def where(self) -> str:
        """``path:line``, as editors understand it."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def __str__(self) -> str:
        return "\n".join([f"{self.where}: {super().__str__()}", *map(str, self.others)])


class NotMeasuredError(UsageError):
    """The runs asked for hold no such measurement."""


class ReportError(UsageError):
    """A file that is no report of Nsight Compute, is not whole, or does not hold one launch of the kernel."""


class SuiteError(PerfsvcError):
    """A benchmark file that cannot be used.

    Args:
        what: what is wrong with it.
        path: the benchmark file.
        line: the line in it, 1-based; 0 where no single line is at fault.
        cure: what to change.
    """

    exit_code = 4

    def __init__(self, what: str, *, path: str, line: int = 0, cure: str = "") -> None:
        super().__init__(what, cure=cure)
        self.path = path
        self.line = line

    @property
    def where(self) -> str:
        """``path:line``, as editors and CI understand it."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def __str__(self) -> str:
        return f"{self.where}: {super().__str__()}"


class CaseError(PerfsvcError):
    """One case failed; every other case goes on."""

    exit_code = 4


class CompileError(CaseError):
    """The source of a case does not compile, or lacks its entry point; ``what`` holds the compiler's message."""


class ResultError(CaseError):
    """The output of a case is wrong, or it wrote outside its buffers."""


class LaunchError(CaseError):
    """The device refused or aborted a launch; ``fatal`` where the process's device context is lost with it."""

    def __init__(self, what: str, *, cure: str = "", fatal: bool = False) -> None:
        super().__init__(what, cure=cure)
        self.fatal = fatal


class DisturbedError(CaseError):
    """The GPU was throttled or shared all the time that the case waited for it."""


class TimeLimitError(CaseError):
    """A case ran past its time limit and its worker was killed."""


class CrashError(CaseError):
    """The worker process died while it measured the case."""


class ProfileError(CaseError):
    """A profiler ran the case and brought nothing home: it failed, saw no launch, or its report ends the reader."""


class UnsupportedError(CaseError):
    """This device cannot run the case: reported as skipped with the reason, never as failed."""


class InfrastructureError(PerfsvcError):
    """Nothing can be measured or stored: no device, no compiler, no database."""

    exit_code = 5


class NoDeviceError(InfrastructureError):
    """The device asked for is not on this machine."""


class NoCompilerError(InfrastructureError):
    """No compiler for the device's binaries was found."""


class NoDisassemblerError(InfrastructureError):
    """A disassembler does not work, or does not know an architecture: nothing but counts of instructions is lost."""


class NoProfilerError(InfrastructureError):
    """No profiler for the device was found, or one that is too old for it."""


class CountersError(InfrastructureError):
    """The GPU's counters are kept from the profiler: by the driver, or by another one that reads them."""


class DatabaseError(InfrastructureError):
    """The database cannot be opened, is of another schema revision, or refused a statement."""


class NotSentError(InfrastructureError):
    """A message did not arrive, as far as anybody can tell; ``again`` where trying again soon may help.

    ``what`` never holds the address, which is a secret.
    """

    def __init__(self, what: str, *, cure: str = "", again: bool) -> None:
        super().__init__(what, cure=cure)
        self.again = again


class MissingPackageError(InfrastructureError):
    """An optional package that this command needs is not installed."""
