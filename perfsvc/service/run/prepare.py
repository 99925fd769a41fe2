"""A request for a run: resolve it to devices and cases, and compile their binaries. No device is opened yet."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perfsvc import build, judge, suite
from perfsvc.build import Binary, Cache, lines
from perfsvc.build.nvcc import NvccToolchain
from perfsvc.device import helper_kernels
from perfsvc.device.find import find, why_no_gpu
from perfsvc.errors import CaseError, CompileError, InfrastructureError, SuiteError, UnsupportedError
from perfsvc.measure.plan.order import Spread
from perfsvc.model import DeviceInfo, ProgramFile, ReplayRecord, Unit, digest
from perfsvc.selection import Selection
from perfsvc.service import peaks
from perfsvc.service.compare import compare
from perfsvc.service.confirm.pairs import BUDGET_S
from perfsvc.service.progress import Progress
from perfsvc.service.revisions import BASELINE
from perfsvc.service.run import groups
from perfsvc.suite import CaseSpec, Suite, unmet, wrong_gpus

if TYPE_CHECKING:
    from perfsvc.config.settings import SlurmSettings

Binaries = Mapping[tuple[str, Unit | ProgramFile], Binary | CaseError]
"""The binary of each unit, or why it has none, by compile target and unit; the file of a program counts as a unit."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of a run.

    Attributes:
        points: which points; None for the full points on a GPU and the smoke points elsewhere.
        precision: the target half-width of a median's interval, relative to the median. None for the default of the
            kind of device; likewise ``samples`` and ``seconds``, the caps on sampling.
        places: at how many places of its arrays a case is measured; None for the default of the kind of device.
        energy: also measure the energy of a launch.
        spread: whether every GPU measures each case, or one GPU of each model.
        budget_s: seconds that the run may take on each device; None for no limit.
        limit_s: seconds that a case may take in a replica before its worker is killed.
        confirm: measure suspects again, the baseline's binary and this run's in A/B pairs.
        confirm_budget_s: seconds that measuring the suspects again may take on each device.
        profile: profile both binaries of each confirmed regression.
        profile_budget_s: seconds after which no further regression is profiled.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of the kind of device.
        on: the cluster that measures, ``ray://HOST:PORT`` or ``slurm``; empty for this host.
        slurm: how to request GPUs of a Slurm cluster; None for the default settings.
        against: the run that series without a pin are compared with, or ``@baseline``.
        segment_parts: globs of the parts of the full environment whose change starts a new segment, in addition to
            driver, toolkit, power limit and places.
    """

    database: str
    suite: Path
    devices: tuple[str, ...] = ("auto",)
    selection: Selection = field(default_factory=Selection)
    points: Literal["smoke", "full"] | None = None
    replicas: int = 3
    precision: float | None = None
    samples: int | None = None
    seconds: float | None = None
    places: int | None = None
    energy: bool = False
    spread: Spread = "each-device"
    budget_s: float | None = None
    limit_s: float = 60.0
    seed: int | None = None
    label: str = ""
    confirm: bool = False
    confirm_budget_s: float = BUDGET_S
    profile: bool = False
    profile_budget_s: float = math.inf
    threshold: judge.ThresholdOption = None
    against: str = BASELINE
    segment_parts: tuple[str, ...] = ()
    on: str = ""
    slurm: "SlurmSettings | None" = None
    command_line: str = ""


def seed_of(requested: int | None) -> int:
    """Return the requested seed, or a random one."""
    return int.from_bytes(os.urandom(4)) if requested is None else requested


@dataclass(frozen=True, slots=True)
class Target:
    """A device with the cases that it measures and the compiler for it.

    Attributes:
        peaks: perfsvc's own cases, which measure the peaks of the device.
        helper_kernels: the unit with the device's helper kernels; None if the device needs none.
        alike: how many devices of its model the run has.
    """

    device: DeviceInfo
    specs: tuple[CaseSpec, ...]
    toolchain: build.Toolchain
    peaks: tuple[CaseSpec, ...] = ()
    helper_kernels: Unit | None = None
    alike: int = 1

    @property
    def units(self) -> set[Unit]:
        """All units to compile, without the units of cases that the device cannot run."""
        units = {unit for spec in self._supported for unit in spec.units}
        return units | ({self.helper_kernels} if self.helper_kernels else set())

    @property
    def program_files(self) -> dict[ProgramFile, None]:
        """The files of all programs, in the order of the cases, without those of cases that the device cannot run."""
        return dict.fromkeys(file for spec in self._supported for file in spec.files)

    @property
    def _supported(self) -> list[CaseSpec]:
        return [spec for spec in (*self.specs, *self.peaks) if not self.unmet(spec)]

    def unmet(self, spec: CaseSpec) -> str:
        """Return why the device cannot run a case; empty if it can."""
        return wrong_gpus(spec, self.device, self.alike) or unmet(spec, self.device)


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """A request resolved on this machine; nothing is compiled yet.

    Attributes:
        devices: the devices by UUID.
        suite: the suite, with its problems.
        targets: the devices, each with its cases.
    """

    request: RunRequest
    devices: Mapping[str, DeviceInfo]
    suite: Suite
    targets: tuple[Target, ...]


def resolve(request: RunRequest, progress: Progress, lent: Sequence[DeviceInfo] = ()) -> ResolvedRun:
    """Find the devices and the cases of a request.

    Args:
        request: the options.
        progress: receives messages.
        lent: the GPUs that a cluster lends; the run measures on them alone.

    Raises:
        UsageError: a selection matches nothing, or the suite is empty.
        InfrastructureError: there is no device, or no compiler for a device.
    """
    devices = lent or find(request.devices)
    if not lent and "auto" in request.devices and (reason := why_no_gpu()):
        progress.report(f"measuring on the CPU device, for there is no GPU to use: {reason}")
    discovered = suite.discover(request.suite)
    if not discovered.problems:  # a rule may match cases of a benchmark file that cannot be read
        for rule in compare.unmatched_rules(request.threshold, [listed.case for listed in discovered.cases]):
            progress.report(f"{rule} matches no case of the suite: see perfsvc list")
    targets, problems = _targets(discovered, devices, request.selection, request.points, may_group=not lent)
    discovered = replace(discovered, problems=(*discovered.problems, *problems))
    return ResolvedRun(request, {target.device.uuid: target.device for target in targets}, discovered, targets)


def _targets(
    discovered: Suite,
    devices: Sequence[DeviceInfo],
    selection: Selection,
    points: Literal["smoke", "full"] | None,
    *,
    may_group: bool,
) -> tuple[tuple[Target, ...], tuple[SuiteError, ...]]:
    """Return each device with its selected cases, and the problems of benchmarks that cannot be resolved.

    After the devices follow the groups of GPUs for the cases that use several. Without ``may_group`` these cases cannot
    run, because the GPUs may be on several hosts.

    If ``points`` is None, a GPU gets the full points, and any other device the smoke points.
    """
    points_of = {device.uuid: points or ("full" if device.kind == "cuda" else "smoke") for device in devices}
    ways = {device.uuid: (points_of[device.uuid], groups.all_gpus(device, devices)) for device in devices}
    resolved = {
        way: discovered.resolve(selection, way[0], build.known_shapes(), way[1]) for way in dict.fromkeys(ways.values())
    }
    singles, grouped = [], []
    for device in devices:
        specs, _ = resolved[ways[device.uuid]]
        if device.gpus > 1:  # a group that the user named
            singles.append(_target(device, [spec for spec in specs if spec.gpus == device.gpus]))
            continue
        if not may_group:
            is_first = groups.alike(device, devices)[0] is device  # which reports that the others cannot run
            singles.append(_target(device, [spec for spec in specs if spec.gpus == 1 or is_first]))
            continue
        own, of_groups = groups.divide(specs, device, devices)
        singles.append(_target(device, own, len(groups.alike(device, devices))))
        grouped += [_target(group, its) for group, its in of_groups.items()]
    distinct = {str(problem): problem for _, problems in resolved.values() for problem in problems}
    return (*singles, *grouped), tuple(distinct.values())


def _target(device: DeviceInfo, specs: Sequence[CaseSpec], alike: int = 1) -> Target:
    """Return a device with its cases, its compiler and what perfsvc itself runs on it."""
    toolchain, helpers = build.toolchain_for(device.target), helper_kernels.unit(device.kind)
    return Target(device, tuple(specs), toolchain, peaks.specs(device), helpers, alike)


def compile_units(
    targets: Sequence[Target], progress: Progress, *, with_lines: bool = False, builds_at_once: int = 1
) -> Binaries:
    """Compile every unit once for each compile target, all in parallel; return the binary or the error of each.

    Programs are built and read first.

    Args:
        targets: the devices with their cases.
        progress: receives messages and the number of steps done.
        with_lines: also find the source lines of GPU code, for profiles.
        builds_at_once: how many programs are built at once; 1 unless each is built in a source tree of its own.
    """
    build_cache = Cache()
    units: dict[str, tuple[build.Toolchain, set[Unit]]] = {}
    for target in targets:
        units.setdefault(target.device.target, (target.toolchain, set()))[1].update(target.units)
    files = dict.fromkeys(file for target in targets for file in target.program_files)
    progress.begin("compiling", len(files) + sum(len(wanted) for _, wanted in units.values()))
    read = build.read_programs(
        files, builds_at_once=builds_at_once, on_done=lambda file, _: progress.step(file.path.name)
    )
    binaries: dict[tuple[str, Unit | ProgramFile], Binary | CaseError] = {
        (target.device.target, file): read[file] for target in targets for file in target.program_files
    }
    for compile_target, (toolchain, wanted) in units.items():
        built = build.compile_all(
            wanted, toolchain, build_cache, on_done=lambda unit, _: progress.step(unit.source.name)
        )
        if with_lines and isinstance(toolchain, NvccToolchain):
            built = lines.with_lines(built, toolchain, build_cache, report=progress.report)
        binaries |= {(compile_target, unit): result for unit, result in built.items()}
    return binaries


def modules_of(target: Target, spec: CaseSpec, binaries: Binaries) -> tuple[Binary, ...] | CaseError:
    """Return the binaries of a case, one for each of its parts, or why the device cannot run the case."""
    if reason := target.unmet(spec):
        return UnsupportedError(reason)
    modules = []
    for part in spec.parts:
        binary = binaries[target.device.target, part]
        if not isinstance(binary, Binary):
            return binary
        modules.append(binary)
    if spec.files and (size := sum(len(module.code) for module in modules)) > build.MOST_PROGRAM_BYTES:
        return CompileError(
            f"the files of its program have {size >> 20} MiB: more than {build.MOST_PROGRAM_BYTES >> 20} MiB",
            cure="name fewer files=, and give the program the paths of those that never change",
        )
    return tuple(modules)


def replay_record(spec: CaseSpec, modules: Sequence[Binary]) -> ReplayRecord:
    """Return the record for replaying a case later; it names the code and the benchmark file by digest only."""
    return spec.record([module.digest for module in modules], digest(spec.bench_text.encode()))


def helper_kernels_of(targets: Sequence[Target], binaries: Binaries) -> dict[str, bytes]:
    """Return the helper kernels of each device that needs them, by UUID.

    Raises:
        InfrastructureError: helper kernels do not compile, which is no fault of any case.
    """
    codes = {}
    for target in targets:
        if target.helper_kernels is None:
            continue
        match binaries[target.device.target, target.helper_kernels]:
            case Binary() as binary:
                codes[target.device.uuid] = binary.code
            case error:
                raise InfrastructureError(
                    f"perfsvc's own kernels for {target.device.model} cannot be built: {error.what}",
                    cure="see whether the compiler fits the device: perfsvc doctor",
                )
    return codes


def compile_helper_kernels(devices: Iterable[DeviceInfo], progress: Progress) -> dict[str, bytes]:
    """Compile the helper kernels of some devices; return them by UUID, or raise ``InfrastructureError``."""
    targets = [
        Target(device, (), build.toolchain_for(device.target), helper_kernels=unit)
        for device in devices
        if (unit := helper_kernels.unit(device.kind))
    ]
    return helper_kernels_of(targets, compile_units(targets, progress)) if targets else {}
