"""Targets: devices with the cases that they measure. Their code is compiled here; no device is opened yet."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from perfsvc import build
from perfsvc.build import Binary, Cache, lines
from perfsvc.build.nvcc import NvccToolchain
from perfsvc.device import memory
from perfsvc.device.find import interconnect_of
from perfsvc.device.groups import best_group, group
from perfsvc.errors import CaseError, CompileError, InfrastructureError, UnsupportedError
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import NO_ARRAYS, Recipe
from perfsvc.model import JOINS_GPUS, DeviceInfo, Kind, ProgramFile, ReplayRecord, Unit, digest
from perfsvc.process.shared_memory import SharedArrays
from perfsvc.service.progress import Progress
from perfsvc.suite import CaseSpec, isolated, unmet, wrong_gpus
from perfsvc.suite.isolated.requests import ReplayArrays

CPU = "cpu"
LEAST_GPUS = 2
"""The CPU device stands in for as many GPUs as a case needs, and for two if the case uses all of them."""


def alike(device: DeviceInfo, devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Return the single devices of a device's kind and model, in their order."""
    return [other for other in devices if other.gpus == 1 and (other.kind, other.model) == (device.kind, device.model)]


def all_gpus(device: DeviceInfo, devices: Sequence[DeviceInfo]) -> int:
    """Return how many GPUs ``gpus="all"`` means for a device; at least two, as one GPU is no group."""
    return max(device.gpus, LEAST_GPUS if device.kind == CPU else len(alike(device, devices)), LEAST_GPUS)


def divide(
    specs: Sequence[CaseSpec], lead: DeviceInfo, devices: Sequence[DeviceInfo]
) -> tuple[list[CaseSpec], Mapping[DeviceInfo, list[CaseSpec]]]:
    """Return the cases of a single device, and the groups that it leads with their cases.

    The first device of a model leads the groups of this model. It also keeps the cases that need more GPUs than the run
    has, so that their absence is reported. If the user has named a group, no other group is formed.

    Args:
        specs: all cases, with ``gpus="all"`` resolved for the model.
        lead: the device.
        devices: all devices of the run.
    """
    own = [spec for spec in specs if spec.gpus == 1]
    same = alike(lead, devices)
    if lead.uuid != same[0].uuid or any(device.gpus > 1 for device in devices):
        return own, {}
    grouped: dict[int, list[CaseSpec]] = defaultdict(list)
    for spec in specs:
        if spec.gpus > 1:
            grouped[spec.gpus].append(spec)
    of_groups = {}
    for gpus, its in sorted(grouped.items()):
        if lead.kind == CPU:
            of_groups[group([lead] * gpus)] = its
        elif gpus <= len(same):
            of_groups[best_group(same, gpus, interconnect_of(lead.kind))] = its
        else:
            own += its
    return own, of_groups


def with_groups(devices: Sequence[DeviceInfo], uuids: Sequence[str]) -> Iterator[DeviceInfo]:
    """Yield the devices, and each group among ``uuids`` whose GPUs are all here."""
    yield from devices
    here = {device.uuid: device for device in devices}
    for uuid in dict.fromkeys(uuids):
        members = [here[member] for member in uuid.split(JOINS_GPUS) if member in here]
        if JOINS_GPUS in uuid and uuid not in here and len(members) == len(uuid.split(JOINS_GPUS)):
            yield best_group(members, len(members), interconnect_of(members[0].kind))


def arrays(spec: CaseSpec, limit_s: float) -> Recipe:
    """Return how to make a case's inputs and references; ``limit_s`` is the time limit of a case."""
    if spec.kind is Kind.PROGRAM:
        return NO_ARRAYS
    arrays_limit_s = isolated.ARRAYS_LIMIT * limit_s
    return Recipe(
        spec.arrays,
        partial(_make, spec, arrays_limit_s),
        partial(isolated.make_fresh, spec, limit_s=arrays_limit_s),
        cancel=isolated.stop,
        source=spec,
    )


def _make(spec: CaseSpec, limit_s: float) -> SharedArrays:
    # Not in ``arrays``: the look at the folder would take seconds for thousands of cases.
    return isolated.make_arrays(spec, build.known_shapes(), limit_s)


def replayed(name: str, source: ReplayArrays) -> Recipe:
    """Return how to make the arrays of a stored case; ``name`` is equal for cases that share their arrays."""
    make = partial(isolated.replay_arrays, source.bench, source.point, source.seed, source.variant)
    return Recipe(name, make, cancel=isolated.stop, source=source)


GPU_SAMPLING = Sampling(least_s=0.06, places=8)
"""The median of a long kernel reaches the default precision after a few milliseconds. Sampling for 60 ms halves the
remaining noise; for a replica of ten cases that takes no longer than starting its worker."""
CPU_SAMPLING = Sampling(samples=20, seconds=0.15, least=20, recovery_s=0.0)
"""The CPU device's times are rough, so sampling is short and does not aim for a precision."""


def default_sampling(device: DeviceInfo) -> Sampling:
    """Return how cases are sampled on a device by default."""
    return {"cpu": CPU_SAMPLING, "cuda": GPU_SAMPLING}.get(device.kind, Sampling())


Binaries = Mapping[tuple[str, Unit | ProgramFile], Binary | CaseError]
"""The binary of each unit, or why it has none, by compile target and unit; the file of a program counts as a unit."""


@dataclass(frozen=True)
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

    @cached_property
    def _supported(self) -> list[CaseSpec]:
        return [spec for spec in (*self.specs, *self.peaks) if not self.unmet(spec)]

    def unmet(self, spec: CaseSpec) -> str:
        """Return why the device cannot run a case; empty if it can."""
        return wrong_gpus(spec, self.device, self.alike) or unmet(spec, self.device)


def seed_of(requested: int | None) -> int:
    """Return the requested seed, or a random one."""
    return int.from_bytes(os.urandom(4)) if requested is None else requested


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
        if (unit := memory.unit(device.kind))
    ]
    return helper_kernels_of(targets, compile_units(targets, progress)) if targets else {}
