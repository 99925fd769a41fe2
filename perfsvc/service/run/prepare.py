"""Resolve a request to devices and cases, and compile their binaries. No device is opened yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from perfsvc import build, suite
from perfsvc.build import Binary, Cache
from perfsvc.device import helper_kernels
from perfsvc.device.find import find, why_no_gpu
from perfsvc.errors import CaseError, InfrastructureError, UnsupportedError
from perfsvc.measure.host.input_prefetcher import MOST_THREADS
from perfsvc.measure.protocol import shared_arrays
from perfsvc.model import DeviceInfo, Environment, ReplayRecord, Unit, digest
from perfsvc.service.compare import compare
from perfsvc.service.progress import Progress
from perfsvc.service.run import peaks
from perfsvc.service.run.request import RunRequest
from perfsvc.suite import CaseSpec, Inputs, KnownShapes, Selection, Suite, unmet

Binaries = Mapping[tuple[str, Unit], Binary | CaseError]
"""What became of each unit, by the target it was compiled for."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device with the cases it is to measure, what their binaries are made with, and its environment.

    ``peaks`` are the cases of ours that measure the device itself, ``helper_kernels`` the unit that it works with.
    """

    device: DeviceInfo
    specs: tuple[CaseSpec, ...]
    toolchain: build.Toolchain
    peaks: tuple[CaseSpec, ...] = ()
    helper_kernels: Unit | None = None

    @property
    def environment(self) -> Environment:
        """What decides whether times of two nights compare without a thought."""
        return Environment(self.device.driver, self.toolchain.version, self.device.power_limit_w)

    @property
    def units(self) -> set[Unit]:
        """All that is compiled for it: of a case that it cannot run, nothing."""
        able = [spec for spec in (*self.specs, *self.peaks) if not unmet(spec, self.device)]
        return {unit for spec in able for unit in spec.units} | (
            {self.helper_kernels} if self.helper_kernels else set()
        )


@dataclass(frozen=True)
class Runnable:
    """A case with all it needs to run on its device."""

    spec: CaseSpec
    modules: tuple[Binary, ...]

    @cached_property
    def record(self) -> ReplayRecord:
        """What is kept of it beside its modules and its benchmark file."""
        return self.spec.record([module.digest for module in self.modules], digest(self.spec.bench_text.encode()))


def choose(
    suite: Suite,
    devices: Sequence[DeviceInfo],
    selection: Selection,
    points: Literal["smoke", "full"] | None,
    inputs: Inputs,
) -> tuple[Target, ...]:
    """Resolves the selected cases for each device: full points on a GPU, smoke points elsewhere, unless said."""
    resolved = cache(lambda at: suite.resolve(selection, at, inputs))
    return tuple(
        Target(
            device,
            resolved(points or ("full" if device.kind == "cuda" else "smoke")),
            build.toolchain_for(device.target),
            peaks.specs(device),
            helper_kernels.unit(device.kind),
        )
        for device in devices
    )


def compile_units(targets: Sequence[Target], progress: Progress) -> Binaries:
    """Compiles every unit once for each target, all in parallel, before any device is opened."""
    store = Cache()
    units: dict[str, tuple[build.Toolchain, set[Unit]]] = {}
    for target in targets:
        units.setdefault(target.device.target, (target.toolchain, set()))[1].update(target.units)
    progress.begin("compiling", sum(len(wanted) for _, wanted in units.values()))
    return {
        (name, unit): result
        for name, (toolchain, wanted) in units.items()
        for unit, result in build.compile_all(
            wanted, toolchain, store, on_done=lambda unit, _: progress.step(unit.source.name)
        ).items()
    }


def helper_kernels_of(targets: Sequence[Target], binaries: Binaries) -> dict[str, bytes]:
    """The binaries that devices work with, by UUID.

    Raises:
        InfrastructureError: one does not compile, which no case is to blame for.
    """
    found = {}
    for target in targets:
        if target.helper_kernels is None:
            continue
        match binaries[target.device.target, target.helper_kernels]:
            case Binary() as binary:
                found[target.device.uuid] = binary.code
            case error:
                raise InfrastructureError(
                    f"what perfsvc itself runs on {target.device.model} cannot be built: {error.what}",
                    cure="see whether the compiler fits the device: perfsvc doctor",
                )
    return found


def compile_helper_kernels(devices: Iterable[DeviceInfo], progress: Progress) -> dict[str, bytes]:
    """The binaries that devices work with, by UUID, where nothing else is compiled; raises as ``instruments_of``."""
    targets = [
        Target(device, (), build.toolchain_for(device.target), helper_kernels=unit)
        for device in devices
        if (unit := helper_kernels.unit(device.kind))
    ]
    return helper_kernels_of(targets, compile_units(targets, progress)) if targets else {}


def prepare(target: Target, spec: CaseSpec, binaries: Binaries) -> Runnable | CaseError:
    """A case ready to run on a device, or why it cannot."""
    if reason := unmet(spec, target.device):
        return UnsupportedError(reason)
    modules = []
    for unit in spec.units:
        match binaries[target.device.target, unit]:
            case Binary() as binary:
                modules.append(binary)
            case error:
                return error
    return Runnable(spec, tuple(modules))


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request with what it means on this machine; nothing of it is compiled, and no device is open.

    Attributes:
        devices: by UUID.
        found: the suite, with what is wrong in it.
        inputs: what was made of the cases' inputs already.
        targets: the devices, each with its cases.
    """

    request: RunRequest
    devices: Mapping[str, DeviceInfo]
    found: Suite
    inputs: Inputs
    targets: tuple[Target, ...]


def resolve(request: RunRequest, progress: Progress) -> Resolved:
    """Finds the devices and the cases that a request means.

    Raises:
        UsageError: a selection matches nothing, or the suite is empty.
        InfrastructureError: no device, or no compiler for one.
    """
    devices = find(request.devices)
    if "auto" in request.devices and (reason := why_no_gpu()):
        progress.say(f"measuring on the CPU device, for there is no GPU to use: {reason}")
    found = suite.discover(request.suite)
    if not found.problems:  # what cannot be read may well have the cases
        for rule in compare.idle(request.threshold, [listed.case for listed in found.cases]):
            progress.say(f"{rule} takes no case of the suite: see perfsvc list")
    known = KnownShapes(build.default_folder() / "shapes")
    inputs = Inputs(keep_bytes=shared_arrays.budget_bytes(), threads=MOST_THREADS, known=known)
    targets = choose(found, devices, request.selection, request.points, inputs)
    return Resolved(request, {device.uuid: device for device in devices}, found, inputs, targets)
