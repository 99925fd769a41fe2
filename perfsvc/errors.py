"""The tree of errors.

Each error holds what happened, to what, and the cure. Each branch sets the exit code of a command that ends with it.

    PerfsvcError
    ├── UsageError             2  the command, a selection or a revision is not valid
    │   ├── ConfigError           perfsvc.toml, or a variable for one of its keys, is not valid (file and line)
    │   ├── NotMeasuredError      the named runs hold no such measurement
    │   ├── FormatError           a result file of another tool is not valid (file and place in it)
    │   └── ReportError           the file is not a report of one launch of the kernel
    ├── SuiteError             4  a bench.py is not valid (file and line)
    ├── CaseError              4  one case failed; all other cases continue
    │   ├── CompileError          its source does not compile, or lacks the entry point
    │   ├── ResultError           its output is wrong, or it wrote outside its buffers
    │   ├── LaunchError           the device refused or aborted the launch
    │   ├── DisturbedError        its GPU was disturbed and did not recover
    │   ├── TimeLimitError        it ran past its time limit
    │   ├── CrashError            its worker process died
    │   ├── ProgramError          it is a program, which failed or printed no usable time
    │   ├── ProfileError          a profiler ran it and returned no profile
    │   └── UnsupportedError      this device cannot run it: reported as skipped, never as failed
    └── InfrastructureError    5  nothing can be measured or stored
        ├── NoDeviceError
        ├── NoCompilerError
        ├── NoDisassemblerError
        ├── NoProfilerError
        ├── CountersError
        ├── DatabaseError
        │   ├── NoDatabaseError   there is no such file, or the database is empty
        │   ├── DamagedError      stored content cannot be read
        │   └── UntrustedError    stored code is signed by no key that this user trusts, or was changed
        ├── NotSentError          a message was not delivered
        └── MissingPackageError

This module imports nothing.
"""

NOTHING_MEASURED = "nothing was measured"
"""The note of an exception that stops a run before it measures: the command's last line says it."""


class PerfsvcError(Exception):
    """An error that perfsvc reports on purpose.

    Args:
        what: what happened, and to what, as a sentence without a full stop.
        cure: what the reader can do next, in the imperative; empty only if nothing can be done.
    """

    exit_code = 5

    def __init__(self, what: str, *, cure: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.what}\n  cure: {self.cure}" if self.cure else self.what


class UsageError(PerfsvcError):
    """The command, a selection, a revision or an option is not valid."""

    exit_code = 2


class ConfigError(UsageError):
    """``perfsvc.toml``, or an environment variable for one of its keys, is not valid.

    Args:
        what: what is wrong.
        path: the file, or the name of the variable.
        line: the line in the file, 1-based; 0 if no single line is wrong.
        nearest: the valid key most similar to the wrong one; empty if none is similar.
        cure: what to change.
        others: all other errors, because all are reported together.
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
        """Return ``path:line``, which editors understand."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def __str__(self) -> str:
        return "\n".join([f"{self.where}: {super().__str__()}", *map(str, self.others)])


class NotMeasuredError(UsageError):
    """The database does not hold the run, measurement, night or finding that was asked for."""


class FormatError(UsageError):
    """A result file of another tool cannot be read or is not valid; ``what`` names the file and the place in it."""


class ReportError(UsageError):
    """The file is not an Nsight Compute report, is truncated, or does not hold one launch of the kernel."""


class SuiteError(PerfsvcError):
    """A benchmark file is not valid.

    Args:
        what: what is wrong.
        path: the benchmark file.
        line: the line in the file, 1-based; 0 if no single line is wrong.
        cure: what to change.
    """

    exit_code = 4

    def __init__(self, what: str, *, path: str, line: int = 0, cure: str = "") -> None:
        super().__init__(what, cure=cure)
        self.path = path
        self.line = line

    @property
    def where(self) -> str:
        """Return ``path:line``, which editors and CI understand."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def __str__(self) -> str:
        return f"{self.where}: {super().__str__()}"


class CaseError(PerfsvcError):
    """One case failed; all other cases continue."""

    exit_code = 4


class CompileError(CaseError):
    """The source of a case does not compile, or lacks its entry point; ``what`` holds the compiler's message."""


class ResultError(CaseError):
    """The output of a case is wrong, or it wrote outside its buffers."""


class LaunchError(CaseError):
    """The device refused or aborted a launch; ``fatal`` if the process's device context is lost as well."""

    def __init__(self, what: str, *, cure: str = "", fatal: bool = False) -> None:
        super().__init__(what, cure=cure)
        self.fatal = fatal


class DisturbedError(CaseError):
    """The GPU stayed throttled, or in use by another program, until the case's waiting time was over."""


class TimeLimitError(CaseError):
    """A case ran past its time limit and its worker was killed."""


class CrashError(CaseError):
    """The worker process died while measuring the case."""


class ProgramError(CaseError):
    """The program that the case runs could not be started, failed, left processes behind, or printed no usable time."""


class ProfileError(CaseError):
    """A profiler ran the case and returned no profile: it failed, saw no launch, or its report crashed the reader."""


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
    """A disassembler does not work, or does not know an architecture: only instruction counts are missing."""


class NoProfilerError(InfrastructureError):
    """No profiler for the device was found, or it is too old for the device."""


class CountersError(InfrastructureError):
    """The profiler cannot read the GPU's counters: the driver forbids it, or another profiler is using them."""


class DatabaseError(InfrastructureError):
    """The database cannot be opened, has another schema revision, or refused a statement.

    ``again`` is True if the same statement may succeed later: the database is locked, or its server does not answer.
    """

    def __init__(self, what: str, *, cure: str = "", again: bool = False) -> None:
        super().__init__(what, cure=cure)
        self.again = again


class NoDatabaseError(DatabaseError):
    """The file of the database does not exist, or the database is empty, and the command makes none."""


class DamagedError(DatabaseError):
    """Stored content cannot be read."""


class UntrustedError(DatabaseError):
    """Stored code, or the stored settings of a night, are signed by no key that this user trusts, or were changed."""


class NotSentError(InfrastructureError):
    """A message was probably not delivered; ``again`` is True if sending it again soon may succeed.

    ``what`` never contains the address, which is a secret.
    """

    def __init__(self, what: str, *, cure: str = "", again: bool) -> None:
        super().__init__(what, cure=cure)
        self.again = again


class MissingPackageError(InfrastructureError):
    """An optional package that this command needs is not installed."""
