"""The fake device's profiler: counters by script, and every failure on demand. For tests of all that stands above it.

It is what the device's script (``perfsvc.device.fake``) says under ``profiler``; without it the device has none::

    {"profiler": {"version": "1.0", "metrics": {"*": {"duration_s": 1e-4}, "5d41…": {"duration_s": 2e-4}}}}

``metrics``
    By the SHA-256 digest of a file in the folder that the profiled program is given (a case's binary), or ``*``.
``fault``
    What goes wrong: ``permission`` and ``held`` (the counters are kept from it), ``old``, ``hang`` (past the time
    limit), ``nothing`` (it sees no launch), ``unread`` (its report is, and cannot be read).

The program is run for real.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from perfsvc.build import process
from perfsvc.device import fake
from perfsvc.errors import CountersError, NoProfilerError, PerfsvcError, ProfileError, TimeLimitError
from perfsvc.model import DeviceInfo, Profile, ProfilerRule, codec, digest
from perfsvc.profile.profiler import LIMIT_S

Fault = Literal["permission", "held", "old", "hang", "nothing", "unread"]

FAULTS: Mapping[Fault, tuple[type[PerfsvcError], str]] = {
    "permission": (CountersError, "the script lets nobody read counters"),
    "held": (CountersError, "the script has another profiler hold the counters"),
    "old": (NoProfilerError, "the script has a profiler that is too old"),
    "hang": (TimeLimitError, "time limit: the script has the profiler hang"),
    "unread": (ProfileError, "the script has the reader of reports die"),
    "nothing": (ProfileError, "the script lets the profiler see no launch"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """What the profiler plays."""

    __pydantic_config__: ClassVar = fake.STRICT

    version: str = "1.0"
    metrics: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    rules: tuple[ProfilerRule, ...] = ()
    fault: Fault | None = None


class FakeProfiler:
    """A ``Profiler`` that plays a script."""

    name, suffix = "fake", ".fake-rep"

    def __init__(self, script: Script, device: str = "Fake GPU") -> None:
        self.version = script.version
        self._script = script
        self._device = device

    @classmethod
    def of(cls, device: DeviceInfo) -> Self:
        """The profiler of a fake device; raises ``NoProfilerError`` where its script has none."""
        scripted = fake.read(Path(device.spec.removeprefix("fake:"))).profiler
        if scripted is None:
            raise NoProfilerError(f"the script of {device.model} has no profiler", cure="profile a run on a GPU")
        return cls(codec.decode(Script, codec.encode(dict(scripted))), device.model)

    def run(
        self, program: Sequence[str], report: Path, *, environment: Mapping[str, str], limit_s: float = LIMIT_S
    ) -> None:
        """Runs the program, and writes what the script says of it."""
        if self._script.fault and self._script.fault != "unread":
            raise _scripted(self._script.fault)
        ended = process.run(program, folder=Path.cwd(), limit_s=limit_s, environment=environment)
        if ended.timed_out:
            raise _scripted("hang")
        if ended.code:
            raise ProfileError(f"the program ended with {ended.code}: {ended.output.strip()}", cure="run it alone")
        report.write_bytes(codec.encode(self._profile(Path(program[-1]))))

    def _profile(self, folder: Path) -> Profile:
        digests = [digest(file.read_bytes()) for file in sorted(folder.iterdir())] if folder.is_dir() else []
        keys = [key for key in (*digests, "*") if key in self._script.metrics]
        metrics = self._script.metrics[keys[0]] if keys else {}
        return Profile("", metrics, self._script.rules, self._device, "FAKE", self.version)

    def read(self, report: Path, kernel: str) -> Profile:
        """What ``run`` wrote."""
        if self._script.fault == "unread":
            raise _scripted("unread")
        return replace(codec.decode(Profile, report.read_bytes()), kernel=kernel)


def _scripted(fault: Fault) -> PerfsvcError:
    kind, what = FAULTS[fault]
    return kind(what, cure="change the script")
