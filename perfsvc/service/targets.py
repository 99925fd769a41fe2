"""The devices of a run, each with the cases it is to measure, and their binaries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from perfsvc import build
from perfsvc.build import Binary, Cache
from perfsvc.errors import CaseError, UnsupportedError
from perfsvc.model import DeviceInfo, Environment, Unit
from perfsvc.service.progress import Progress
from perfsvc.suite import CaseSpec, Selection, Suite, unmet

Binaries = Mapping[tuple[str, Unit], Binary | CaseError]
"""What became of each unit, by the target it was compiled for."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device with the cases it is to measure, what their binaries are made with, and its environment."""

    device: DeviceInfo
    specs: tuple[CaseSpec, ...]
    toolchain: build.Toolchain

    @property
    def environment(self) -> Environment:
        """What decides whether times of two nights compare without a thought."""
        return Environment(self.device.driver, self.toolchain.version, self.device.power_limit_w)


@dataclass(frozen=True, slots=True)
class Runnable:
    """A case with all it needs to run on its device."""

    spec: CaseSpec
    modules: tuple[Binary, ...]


def choose(
    suite: Suite, devices: Sequence[DeviceInfo], selection: Selection, points: Literal["smoke", "full"] | None
) -> tuple[Target, ...]:
    """Resolves the selected cases for each device: full points on a GPU, smoke points elsewhere, unless said."""
    return tuple(
        Target(
            device,
            suite.resolve(selection, points or ("full" if device.kind == "cuda" else "smoke")),
            build.toolchain_for(device.target),
        )
        for device in devices
    )


def compile_units(targets: Sequence[Target], progress: Progress) -> Binaries:
    """Compiles every unit once for each target, all in parallel, before any device is opened."""
    cache = Cache()
    units = {
        target.device.target: (target.toolchain, {u for spec in _able(target) for u in spec.units})
        for target in targets
    }
    progress.begin("compiling", sum(len(wanted) for _, wanted in units.values()))
    return {
        (name, unit): result
        for name, (toolchain, wanted) in units.items()
        for unit, result in build.compile_all(
            wanted, toolchain, cache, on_done=lambda unit, _: progress.step(unit.source.name)
        ).items()
    }


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


def _able(target: Target) -> list[CaseSpec]:
    return [spec for spec in target.specs if not unmet(spec, target.device)]
