"""The fake device's profiler: metrics by script and every failure on demand, for tests of the rooms above.

The script is the entry ``profiler`` of the device's script (``perfsvc.device.fake``); without it the device has no
profiler::

    {"profiler": {"version": "1.0", "metrics": {"*": {"duration_s": 1e-4}, "5d41…": {"duration_s": 2e-4}}}}

``metrics``
    The metrics of each case by the SHA-256 digest of its binary, or by ``*`` for all cases.
``fault``
    What goes wrong: ``permission`` and ``held`` (the counters cannot be read), ``old``, ``hang`` (past the time limit),
    ``nothing`` (it sees no launch), ``unread`` (it writes a report that cannot be read).
``partial``
    Whether the report has the launches before a crash, if the profiled program crashes. By default it has.

Unless the script's fault prevents it, the program is really run. Its last argument is a folder with a folder for each
launch: this has the binary, ``launch.json`` with the name of the range, and ``report.json`` after the launch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from perfsvc.device import fake
from perfsvc.errors import CountersError, NoProfilerError, PerfsvcError, ProfileError, TimeLimitError
from perfsvc.model import DeviceInfo, Profile, ProfiledKernel, ProfilerRule, codec, digest
from perfsvc.process import programs
from perfsvc.profile.profiler import LIMIT_S

Fault = Literal["permission", "held", "old", "hang", "nothing", "unread"]

FAULTS: Mapping[Fault, tuple[type[PerfsvcError], str]] = {
    "permission": (CountersError, "the script forbids reading counters"),
    "held": (CountersError, "the script lets another profiler hold the counters"),
    "old": (NoProfilerError, "the script makes the profiler too old"),
    "hang": (TimeLimitError, "time limit: the script makes the profiler hang"),
    "unread": (ProfileError, "the script makes the reader of reports die"),
    "nothing": (ProfileError, "the script hides the launch from the profiler"),
}


@dataclass(frozen=True, slots=True)
class ProfilerScript:
    """The script of the fake profiler, as the module describes it."""

    __pydantic_config__: ClassVar = fake.STRICT

    version: str = "1.0"
    metrics: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    rules: tuple[ProfilerRule, ...] = ()
    fault: Fault | None = None
    partial: bool = True


class FakeProfiler:
    """A ``Profiler`` that follows a script."""

    name, suffix = "fake", ".fake-rep"

    def __init__(self, script: ProfilerScript, device: str = "Fake GPU") -> None:
        self.version = script.version
        self._script = script
        self._device = device

    @classmethod
    def of(cls, device: DeviceInfo) -> Self:
        """Return the profiler that a fake device's script describes; raises ``NoProfilerError`` if there is none."""
        scripted = fake.read_script(Path(device.spec.removeprefix("fake:"))).profiler
        if scripted is None:
            raise NoProfilerError(f"the script of {device.model} has no profiler", cure="profile a run on a GPU")
        return cls(codec.decode(ProfilerScript, codec.encode(dict(scripted))), device.model)

    def run(
        self, program: Sequence[str], report: Path, *, environment: Mapping[str, str], limit_s: float = LIMIT_S
    ) -> None:
        """Run the program, and write the script's metrics of its launches as its report."""
        if self._script.fault and self._script.fault != "unread":
            raise _error(self._script.fault)
        ended = programs.run(program, folder=Path.cwd(), limit_s=limit_s, environment=environment)
        if ended.timed_out:
            raise _error("hang")
        profiles = self._profiles(Path(program[-1]))
        if profiles and (self._script.partial or not ended.code):
            report.write_bytes(codec.encode(profiles))
        if ended.code:
            raise ProfileError(
                f"the program ended with {ended.code}: {ended.output.strip()}", cure="run the program alone"
            )
        if not profiles:
            raise _error("nothing")

    def _profiles(self, folder: Path) -> dict[str, Profile]:
        """Return the scripted profiles of the launches in a folder, by the names of their ranges."""
        profiles = {}
        for report in sorted(folder.glob("*/report.json")):
            if json.loads(report.read_bytes())["launch"] is not None:
                files = [digest(file.read_bytes()) for file in sorted(report.parent.iterdir())]
                key = next((key for key in (*files, "*") if key in self._script.metrics), "*")
                metrics = self._script.metrics.get(key, {})
                launch = json.loads((report.parent / "launch.json").read_bytes())
                kernels = self._kernels(launch["record"], metrics.get("duration_s"))
                profiles[launch["range"]] = Profile(
                    kernels[0].name if kernels else "",
                    metrics,
                    self._script.rules,
                    self._device,
                    "FAKE",
                    self.version,
                    kernels=kernels,
                )
        return profiles

    @staticmethod
    def _kernels(record: Mapping[str, Any], duration_s: float | None) -> tuple[ProfiledKernel, ...]:
        """Return the kernels of a case's CUDA graph, all with the same time; none for a case without a graph."""
        launches = [step for step in record["steps"] if step["step"] == "launch"] if record.get("graph") else []
        return tuple(ProfiledKernel(step["entry"], duration_s) for step in launches)

    def read(self, report: Path, kernels: Mapping[str, str]) -> Mapping[str, Profile | PerfsvcError]:
        """Return the profiles that ``run`` wrote."""
        if self._script.fault == "unread":
            raise _error("unread")
        profiles = codec.decode(dict[str, Profile], report.read_bytes())
        return {
            name: replace(profiles[name], kernel=kernel or profiles[name].kernel)
            if name in profiles
            else _error("nothing")
            for name, kernel in kernels.items()
        }


def _error(fault: Fault) -> PerfsvcError:
    kind, message = FAULTS[fault]
    return kind(message, cure="change the script")
