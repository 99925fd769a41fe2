"""A request for a run, and the devices and cases that it means. Nothing is compiled yet."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perfsvc import build, judge, suite
from perfsvc.device import memory
from perfsvc.device.find import find, why_no_gpu
from perfsvc.errors import SuiteError
from perfsvc.measure.plan.order import Spread
from perfsvc.model import DeviceInfo
from perfsvc.selection import Selection
from perfsvc.service import peaks
from perfsvc.service.compare import compare
from perfsvc.service.confirm.pairs import BUDGET_S
from perfsvc.service.prepare import targets
from perfsvc.service.prepare.targets import Target
from perfsvc.service.progress import Progress
from perfsvc.service.revisions import BASELINE
from perfsvc.suite import CaseSpec, Suite

if TYPE_CHECKING:
    from perfsvc.config.settings import SlurmSettings


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
    ways = {device.uuid: (points_of[device.uuid], targets.all_gpus(device, devices)) for device in devices}
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
            is_first = targets.alike(device, devices)[0] is device  # which reports that the others cannot run
            singles.append(_target(device, [spec for spec in specs if spec.gpus == 1 or is_first]))
            continue
        own, of_groups = targets.divide(specs, device, devices)
        singles.append(_target(device, own, len(targets.alike(device, devices))))
        grouped += [_target(group, its) for group, its in of_groups.items()]
    distinct = {str(problem): problem for _, problems in resolved.values() for problem in problems}
    return (*singles, *grouped), tuple(distinct.values())


def _target(device: DeviceInfo, specs: Sequence[CaseSpec], alike: int = 1) -> Target:
    """Return a device with its cases, its compiler and what perfsvc itself runs on it."""
    toolchain, helpers = build.toolchain_for(device.target), memory.unit(device.kind)
    return Target(device, tuple(specs), toolchain, peaks.specs(device), helpers, alike)
