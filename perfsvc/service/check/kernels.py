"""The kernels of a suite as a compiler made them for some architectures, whatever devices there are."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Literal

from perfsvc import build, suite
from perfsvc.build import Cache
from perfsvc.build.disassembly import Disassembler, find_nvdisasm
from perfsvc.build.facts import Kernels, UnitFacts, VerboseNvcc, facts_of_all, source_digest
from perfsvc.build.nvcc import is_ptx
from perfsvc.build.occupancy import occupancy
from perfsvc.errors import CaseError, CompileError, NoDisassemblerError, SuiteError, UsageError
from perfsvc.measure.host.input_prefetcher import MOST_THREADS
from perfsvc.model import Case, CheckedKernel, DeviceInfo, Launch, Status, Unit, digest
from perfsvc.service.progress import Progress
from perfsvc.suite import CaseSpec, Inputs, KnownShapes, Selection, unmet

_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)")


@dataclass(frozen=True, slots=True)
class Looked:
    """What there is in a suite.

    Attributes:
        checked: every kernel of every selected case, for each architecture.
        problems: what is wrong with benchmarks that the selection reaches.
        warnings: what is wrong with the others.
        sources: the file that each kernel is in, or that fails, by case and kernel.
    """

    checked: tuple[CheckedKernel, ...] = ()
    problems: tuple[SuiteError, ...] = ()
    warnings: tuple[SuiteError, ...] = ()
    sources: Mapping[tuple[Case, str], Path] = field(default_factory=dict)


class Looker:
    """Looks at suites with one compiler and one disassembler.

    Args:
        architectures: ``sm_90``; each once.
        progress: is told how far it is.

    Attributes:
        toolkit: the compiler and its version.
        disassembler: likewise; empty where there is none.

    Raises:
        UsageError: the compiler does not build for one of the architectures.
        NoCompilerError: there is no compiler.
    """

    def __init__(self, architectures: Sequence[str], progress: Progress) -> None:
        self._cache = Cache()
        self._progress = progress
        self._toolchains = {name: VerboseNvcc(name) for name in dict.fromkeys(architectures)}
        first = next(iter(self._toolchains.values()))
        _require_known(self._toolchains, first)
        self._disassembler = self._working_disassembler()
        self.toolkit = first.version
        self.disassembler = self._disassembler.version if self._disassembler else ""

    def look(self, folder: Path, selection: Selection, points: Literal["smoke", "full"]) -> Looked:
        """The kernels of a suite's selected cases.

        Raises:
            UsageError: a selection matches nothing, or the suite is empty.
            InfrastructureError: the cache cannot be written.
        """
        return self._look(suite.discover(folder), selection, points)

    def look_back(
        self, folder: Path, selection: Selection, points: Literal["smoke", "full"], now: Iterable[CheckedKernel]
    ) -> Looked:
        """The same of an older suite, of which a selection of today may find less, or by other names.

        Args:
            folder: of the older suite.
            selection: which cases.
            points: at which points.
            now: what the suite of today has.

        Raises:
            InfrastructureError: the cache cannot be written.
        """
        try:
            found = suite.discover(folder)
        except UsageError:  # there was no benchmark then
            return Looked()
        problems, warnings = found.split_problems(selection)
        try:
            looked = self._look(found, _of_then(found, selection, points, now), points)
        except UsageError:  # of all that is asked for there was nothing then, or nothing that could be used
            looked = Looked()
        return replace(looked, problems=problems, warnings=warnings)

    def _look(self, found: suite.Suite, selection: Selection, points: Literal["smoke", "full"]) -> Looked:
        known = KnownShapes(build.default_folder() / "shapes")
        specs = _each_once(found.resolve(selection, points, Inputs(threads=MOST_THREADS, known=known)))
        wanted = {name: _units(specs, device_of(name)) for name in self._toolchains}
        self._progress.begin("compiling", sum(map(len, wanted.values())))
        digests = {unit: _source(unit) for unit in {unit for units in wanted.values() for unit in units}}
        checked = [
            one
            for name, units in wanted.items()
            for facts in [self._facts(name, units)]
            for spec in specs
            for one in _checked(spec, name, facts, digests)
        ]
        problems, warnings = found.split_problems(selection)
        sources = {
            (spec.case, name): unit.source
            for spec in specs
            for (unit, _), name in _names(spec, {unit: unit.entries for unit in spec.units}).items()
        }
        first = {(spec.case, ""): spec.units[0].source for spec in specs if spec.units}
        return Looked(tuple(checked), problems, warnings, first | sources)

    def _facts(self, architecture: str, units: Sequence[Unit]) -> dict[Unit, UnitFacts]:
        """What there is of each unit; where the disassembler does not know the architecture, without its counts."""
        find = partial(facts_of_all, units, self._toolchains[architecture], self._cache)
        try:
            return find(
                self._disassembler, on_done=lambda unit: self._progress.step(f"{unit.source.name} for {architecture}")
            )
        except NoDisassemblerError as error:
            self._progress.say(f"instructions for {architecture} are not counted: {error.what}")
            return find(None)

    def _working_disassembler(self) -> Disassembler | None:
        found = find_nvdisasm()
        try:
            return Disassembler(found, self._cache) if found else None
        except NoDisassemblerError as error:
            self._progress.say(f"instructions are not counted: {error.what}")
            return None


def _of_then(found: suite.Suite, selection: Selection, points: str, now: Iterable[CheckedKernel]) -> Selection:
    """A selection as an older suite can understand it: what takes nothing there is left out, former names are taken."""
    there = [listed.case for listed in found.cases if listed.points == points]
    former = {replace(one.case, variant=name).id: None for one in now for name in one.case.formerly}
    unwanted = tuple(glob for glob in selection.exclude if Selection((glob,)).filter(there))
    if not selection.select:
        return Selection(exclude=unwanted)
    wanted = tuple(glob for glob in (*selection.select, *former) if Selection((glob,)).filter(there))
    return Selection(wanted or selection.select, unwanted)


def device_of(architecture: str) -> DeviceInfo:
    """A device of an architecture, as far as what a case requires can be told by that."""
    found = _ARCHITECTURE.fullmatch(architecture)
    capability = f"{found[1]}.{found[2]}" if found else ""
    return DeviceInfo("cuda", architecture, architecture, architecture, architecture, capability)


def _require_known(architectures: Iterable[str], toolchain: VerboseNvcc) -> None:
    unknown = [name for name in architectures if name not in toolchain.targets or not _ARCHITECTURE.fullmatch(name)]
    if unknown:
        plain = [name for name in toolchain.targets if _ARCHITECTURE.fullmatch(name)]
        raise UsageError(
            f"{toolchain.version} does not build for {', '.join(unknown)}",
            cure=f"name some of {', '.join(plain)}; what requires sm_90a is compiled for that wherever sm_90 is named",
        )


def _each_once(specs: Iterable[CaseSpec]) -> tuple[CaseSpec, ...]:
    """One spec a case: the cache states of a case are made of the same code."""
    return tuple({spec.case: spec for spec in specs}.values())


def _units(specs: Iterable[CaseSpec], device: DeviceInfo) -> tuple[Unit, ...]:
    able = (spec for spec in specs if not unmet(spec, device))
    return tuple(dict.fromkeys(unit for spec in able for unit in spec.units if not is_ptx(unit)))


def _source(unit: Unit) -> str:
    try:
        return source_digest(unit)
    except CompileError:  # which compiling it tells
        return ""


def _checked(
    spec: CaseSpec, architecture: str, found: Mapping[Unit, UnitFacts], sources: Mapping[Unit, str]
) -> Iterator[CheckedKernel]:
    """The kernels of a case for an architecture, or why there are none."""
    units = [unit for unit in spec.units if not is_ptx(unit)]
    if reason := _nothing(spec, units) or unmet(spec, device_of(architecture)):
        yield CheckedKernel(spec.case, architecture, "", Status.SKIPPED, reason)
        return
    facts: dict[Unit, Kernels] = {}
    for unit in units:
        match found[unit]:
            case CaseError() as error:
                yield CheckedKernel(spec.case, architecture, "", Status.FAILED, error.what)
                return
            case of_kernels:
                facts[unit] = of_kernels
    launches = {unit: _launches(spec, unit) for unit in units}
    names = _names(spec, {unit: launches[unit] or facts[unit] for unit in units})
    for (unit, kernel), name in names.items():
        one = CheckedKernel(spec.case, architecture, name, facts=facts[unit][kernel], source=sources[unit])
        most = facts[unit].most_threads.get(kernel)
        yield _launched(one, launches[unit][kernel], most) if launches[unit] else one


def _names(spec: CaseSpec, kernels: Mapping[Unit, Iterable[str]]) -> dict[tuple[Unit, str], str]:
    """What the kernels of a case's units are called: by their symbols, with the file's name where several share one.

    Where files share that, too, or one is compiled in several ways, they are numbered: ``scale.cu#2:scale``.
    """
    shared = Counter(kernel for of_unit in kernels.values() for kernel in of_unit)
    files = Counter(unit.source.name for unit in kernels)
    seen: Counter[str] = Counter()
    names: dict[tuple[Unit, str], str] = {}
    for unit in spec.units:
        file = unit.source.name
        seen[file] += 1
        label = f"{file}#{seen[file]}" if files[file] > 1 else file
        for kernel in kernels.get(unit, ()):
            names[unit, kernel] = f"{label}:{kernel}" if shared[kernel] > 1 else kernel
    return names


def _nothing(spec: CaseSpec, units: Sequence[Unit]) -> str:
    """Why there is nothing to look at; empty where there is something."""
    if not spec.units:
        return "nvcc compiles nothing of it"
    return "" if units else "it is PTX, of which the driver makes the binary"


def _launches(spec: CaseSpec, unit: Unit) -> dict[str, list[Launch]]:
    """The launches of a unit's kernels, by kernel; none where Python launches them."""
    found: dict[str, list[Launch]] = {}
    for step in spec.steps:
        if isinstance(step, Launch) and spec.units[step.module] == unit:
            found.setdefault(step.entry, []).append(step)
    return found


def _launched(checked: CheckedKernel, launches: Sequence[Launch], most_threads: int | None) -> CheckedKernel:
    """A kernel as that of its launches has it which leaves the least room; failed where one is of too many threads."""
    threads = max(prod(launch.block) for launch in launches)
    if most_threads is not None and threads > most_threads:
        reason = f"no block of it can run: it has {threads} threads, and __launch_bounds__ allow {most_threads}"
        return replace(checked, status=Status.FAILED, reason=reason, facts=None)
    return min((_as(checked, launch) for launch in launches), key=_room)


def _as(checked: CheckedKernel, launch: Launch) -> CheckedKernel:
    """A kernel as one launch has it."""
    threads, shared = prod(launch.block), launch.shared_bytes
    facts = checked.facts
    return replace(
        checked,
        occupancy=occupancy(checked.architecture, facts, threads, shared) if facts else None,
        threads=threads,
        dynamic_shared_bytes=shared,
        source=digest(f"{checked.source} {threads} {shared}".encode()),
    )


def _room(checked: CheckedKernel) -> tuple[float, int, int]:
    share = checked.occupancy.share if checked.occupancy else 0.0
    return share, -checked.dynamic_shared_bytes, -checked.threads
