"""Read the static facts of a suite's kernels, as a compiler makes them for some architectures. Needs no GPU."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Literal

from perfsvc import build, suite
from perfsvc.build import Cache
from perfsvc.build.disassembly import Disassembler, find_nvdisasm
from perfsvc.build.facts import Kernels, UnitFacts, VerboseNvcc, facts_of_all
from perfsvc.build.local_memory import KernelLines, local_lines_of_all
from perfsvc.build.nvcc import is_ptx
from perfsvc.build.occupancy import occupancy
from perfsvc.build.sources import is_python
from perfsvc.errors import CaseError, NoDisassemblerError, SuiteError, UsageError
from perfsvc.judge.static_checks import REGISTERS, SPILLS, STACK
from perfsvc.model import Case, CheckedKernel, CheckVerdict, DeviceInfo, FactChange, Launch, Status, Unit, digest
from perfsvc.selection import Selection
from perfsvc.service.check.triton_kernels import check_triton, triton_calls
from perfsvc.service.progress import Progress
from perfsvc.suite import CaseSpec, unmet

_Compiled = tuple[Unit, str]
"""What a kernel comes from: a unit, and the kernel's symbol in the unit's binary."""
_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)")


@dataclass(frozen=True, slots=True)
class SuiteKernels:
    """The kernels of a suite.

    Attributes:
        checked: every kernel of every selected case, for each architecture.
        problems: errors in benchmarks that the selection reaches.
        warnings: errors in other benchmarks.
        sources: the source file of each kernel, or of each failure, by case and kernel.
        compiled: what each kernel comes from, by case, architecture and kernel.
    """

    checked: tuple[CheckedKernel, ...] = ()
    problems: tuple[SuiteError, ...] = ()
    warnings: tuple[SuiteError, ...] = ()
    sources: Mapping[tuple[Case, str], Path] = field(default_factory=dict)
    compiled: Mapping[tuple[Case, str, str], _Compiled] = field(default_factory=dict)


class KernelReader:
    """Reads the kernels of suites with one compiler and one disassembler.

    Args:
        architectures: names such as ``sm_90``; duplicates count once.
        progress: receives messages and the number of steps done.

    Attributes:
        toolkit: the compiler and its version.
        disassembler: the disassembler and its version; empty if there is none.

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

    def read(self, folder: Path, selection: Selection, points: Literal["smoke", "full"]) -> SuiteKernels:
        """Return the kernels of a suite's selected cases.

        Raises:
            UsageError: a selection matches nothing, or the suite is empty.
            InfrastructureError: the cache cannot be written.
        """
        return self._read(suite.discover(folder), selection, points)

    def read_older(
        self, folder: Path, selection: Selection, points: Literal["smoke", "full"], kernels: Iterable[CheckedKernel]
    ) -> SuiteKernels:
        """Return the selected kernels of an older suite, where cases may be missing or have former names.

        Args:
            folder: the older suite.
            selection: the cases to read.
            points: the points of these cases to read.
            kernels: the kernels of today's suite.

        Raises:
            InfrastructureError: the cache cannot be written.
        """
        try:
            discovered = suite.discover(folder)
        except UsageError:  # there were no benchmarks yet
            return SuiteKernels()
        problems, warnings = discovered.split_problems(selection)
        try:
            older = self._read(discovered, _selection_in_older(discovered, selection, points, kernels), points)
        except UsageError:  # none of the selected cases existed, or none could be used
            older = SuiteKernels()
        return replace(older, problems=problems, warnings=warnings)

    def _read(self, discovered: suite.Suite, selection: Selection, points: Literal["smoke", "full"]) -> SuiteKernels:
        """Compile the selected cases for every architecture, and return the facts of their kernels."""
        resolved, unresolved = discovered.resolve(selection, points, build.known_shapes())
        specs = _one_spec_per_case(resolved)
        wanted = {name: _units(specs, device_of(name)) for name in self._toolchains}
        self._progress.begin("compiling", sum(map(len, wanted.values())))
        in_triton = check_triton(
            [spec for spec in specs if not unmet(_without_torch(spec), device_of(next(iter(self._toolchains))))],
            tuple(self._toolchains),
            self._disassembler,
            self._cache,
            self._progress,
        )
        checked: list[CheckedKernel] = []
        compiled: dict[tuple[Case, str, str], _Compiled] = {}
        for name, units in wanted.items():
            facts = self._facts(name, units)
            for spec in specs:
                own = in_triton.get((spec.case, name), [])
                checked += own
                for kernel, origin in _checked(spec, name, facts):
                    if own and kernel.status is Status.SKIPPED:
                        continue  # nvcc compiles nothing of it, and Triton does
                    checked.append(kernel)
                    if origin:
                        compiled[kernel.case, name, kernel.kernel] = origin
        problems, warnings = discovered.split_problems(selection)
        problems += unresolved
        sources = {(spec.case, ""): spec.units[0].source for spec in specs if spec.units}
        for spec in specs:
            names = _kernel_names(spec, {unit: unit.entries for unit in spec.units})
            sources |= {(spec.case, name): unit.source for (unit, _), name in names.items()}
        return SuiteKernels(tuple(checked), problems, warnings, sources, compiled)

    def _facts(self, architecture: str, units: Sequence[Unit]) -> dict[Unit, UnitFacts]:
        """Return the facts of each unit, without instruction counts if the disassembler lacks the architecture."""
        facts_with = partial(facts_of_all, units, self._toolchains[architecture], self._cache)
        try:
            return facts_with(
                self._disassembler, on_done=lambda unit: self._progress.step(f"{unit.source.name} for {architecture}")
            )
        except NoDisassemblerError as error:
            self._progress.report(f"instructions for {architecture} are not counted: {error.what}")
            return facts_with(None)

    def with_local_lines(self, kernels: SuiteKernels, verdicts: Sequence[CheckVerdict]) -> list[CheckVerdict]:
        """Return verdicts, with the source lines that access local memory where spills, stack or registers got worse.

        Without a disassembler, for kernels whose lines are unknown, and for Triton kernels, verdicts have no lines.

        Args:
            kernels: today's kernels.
            verdicts: the verdicts on them.

        Raises:
            InfrastructureError: the cache cannot be written.
        """
        worse = [verdict.checked for verdict in verdicts if _ran_short(verdict.changes)]
        keys = {kernel: (kernel.case, kernel.architecture, kernel.kernel) for kernel in worse}
        origins = {kernel: kernels.compiled[key] for kernel, key in keys.items() if key in kernels.compiled}
        units: dict[str, dict[Unit, None]] = {}
        for kernel, (unit, _) in origins.items():
            units.setdefault(kernel.architecture, {})[unit] = None
        if not units or self._disassembler is None:
            return list(verdicts)
        self._progress.begin("finding source lines", sum(map(len, units.values())))
        found = {name: self._local_lines(name, of_name, self._disassembler) for name, of_name in units.items()}
        lines = {
            kernel: found[kernel.architecture].get(unit, {}).get(symbol, ())
            for kernel, (unit, symbol) in origins.items()
        }
        return [replace(verdict, local_lines=lines.get(verdict.checked, ())) for verdict in verdicts]

    def _local_lines(
        self, architecture: str, units: Collection[Unit], disassembler: Disassembler
    ) -> dict[Unit, KernelLines]:
        """Return the lines of units' kernels that access local memory; report each unit whose lines are unknown."""
        try:
            found = local_lines_of_all(
                units,
                self._toolchains[architecture],
                self._cache,
                disassembler,
                on_done=lambda unit: self._progress.step(f"{unit.source.name} for {architecture}"),
            )
        except NoDisassemblerError:  # reported when it could not count instructions
            return {}
        for unit, lines in found.items():
            if isinstance(lines, CaseError):
                name = f"{unit.source.name} for {architecture}"
                self._progress.report(f"the source lines of {name} are unknown: {lines.what}")
        return {unit: lines for unit, lines in found.items() if not isinstance(lines, CaseError)}

    def _working_disassembler(self) -> Disassembler | None:
        """Return the disassembler of this machine; None if there is none, or if it does not work, which is reported."""
        path = find_nvdisasm()
        try:
            return Disassembler(path, self._cache) if path else None
        except NoDisassemblerError as error:
            self._progress.report(f"instructions are not counted: {error.what}")
            return None


def _selection_in_older(
    discovered: suite.Suite, selection: Selection, points: str, kernels: Iterable[CheckedKernel]
) -> Selection:
    """Adapt a selection to an older suite: drop patterns that match nothing there, and add the cases' former names."""
    cases = [listed.case for listed in discovered.cases if listed.points == points]
    former = {replace(kernel.case, variant=name).id: None for kernel in kernels for name in kernel.case.formerly}
    exclude = tuple(glob for glob in selection.exclude if Selection((glob,)).filter(cases))
    if not selection.select:
        return Selection(exclude=exclude)
    select = tuple(glob for glob in (*selection.select, *former) if Selection((glob,)).filter(cases))
    return Selection(select or selection.select, exclude)


def _ran_short(changes: Iterable[FactChange]) -> bool:
    """Return whether a kernel needs more spills, a larger stack, or so many more registers that it is judged."""
    return any(change.fact in {SPILLS, STACK, REGISTERS} and change.better is False for change in changes)


def device_of(architecture: str) -> DeviceInfo:
    """Return a made-up CUDA device of an architecture, to check whether it meets a case's requirements."""
    match = _ARCHITECTURE.fullmatch(architecture)
    capability = f"{match[1]}.{match[2]}" if match else ""
    return DeviceInfo("cuda", architecture, architecture, architecture, architecture, capability)


def _require_known(architectures: Iterable[str], toolchain: VerboseNvcc) -> None:
    """Raise ``UsageError`` if the compiler does not build for one of the architectures."""
    unknown = [name for name in architectures if name not in toolchain.targets or not _ARCHITECTURE.fullmatch(name)]
    if unknown:
        plain = [name for name in toolchain.targets if _ARCHITECTURE.fullmatch(name)]
        raise UsageError(
            f"{toolchain.version} does not build for {', '.join(unknown)}",
            cure=f"name some of {', '.join(plain)}; with sm_90, what requires sm_90a is compiled for sm_90a",
        )


def _one_spec_per_case(specs: Iterable[CaseSpec]) -> tuple[CaseSpec, ...]:
    """Return one spec for each case; specs that differ only in the cache state have the same code."""
    return tuple({spec.case: spec for spec in specs}.values())


def _units(specs: Iterable[CaseSpec], device: DeviceInfo) -> tuple[Unit, ...]:
    """Return the units that nvcc compiles for a device, each once; PTX, which the driver compiles, is left out."""
    supported = (spec for spec in specs if not unmet(spec, device))
    return tuple(dict.fromkeys(unit for spec in supported for unit in spec.units if _has_facts(unit)))


def _has_facts(unit: Unit) -> bool:
    """Return whether nvcc makes machine code of a unit: not of PTX, and not of a Python file."""
    return not is_ptx(unit) and not is_python(unit)


def _without_torch(spec: CaseSpec) -> CaseSpec:
    """Return a case without its requirement of PyTorch, which Triton needs to launch a kernel, not to compile it."""
    return replace(spec, requires=tuple(word for word in spec.requires if word != "import torch"))


def _checked(
    spec: CaseSpec, architecture: str, unit_facts: Mapping[Unit, UnitFacts]
) -> Iterator[tuple[CheckedKernel, _Compiled | None]]:
    """Yield the kernels of a case for an architecture, each with what it comes from.

    A case without kernels yields one nameless kernel that holds the reason.
    """
    units = [unit for unit in spec.units if _has_facts(unit)]
    if reason := _why_nothing(spec, units, architecture) or unmet(spec, device_of(architecture)):
        yield CheckedKernel(spec.case, architecture, "", Status.SKIPPED, reason), None
        return
    facts: dict[Unit, Kernels] = {}
    for unit in units:
        match unit_facts[unit]:
            case CaseError() as error:
                yield CheckedKernel(spec.case, architecture, "", Status.FAILED, error.what), None
                return
            case kernels:
                facts[unit] = kernels
    launches = {unit: _launches(spec, unit) for unit in units}
    names = _kernel_names(spec, {unit: launches[unit] or facts[unit] for unit in units})
    if not names:
        reason = "its library has no kernels: it calls those of another library"
        yield CheckedKernel(spec.case, architecture, "", Status.SKIPPED, reason), None
    for (unit, symbol), name in names.items():
        kernel = CheckedKernel(spec.case, architecture, name, facts=facts[unit][symbol], source=facts[unit].source)
        most_threads = facts[unit].most_threads.get(symbol)
        if launches[unit]:
            kernel = _launched(kernel, launches[unit][symbol], most_threads)
        yield kernel, (unit, symbol)


def _kernel_names(spec: CaseSpec, symbols: Mapping[Unit, Iterable[str]]) -> dict[tuple[Unit, str], str]:
    """Return a name for each kernel: its symbol, or file and symbol if several units have the symbol.

    Files of the same name, or one file that is compiled in several ways, are numbered: ``scale.cu#2:scale``.
    """
    symbol_counts = Counter(symbol for unit_symbols in symbols.values() for symbol in unit_symbols)
    file_counts = Counter(unit.source.name for unit in symbols)
    seen: Counter[str] = Counter()
    names: dict[tuple[Unit, str], str] = {}
    for unit in spec.units:
        file = unit.source.name
        seen[file] += 1
        label = f"{file}#{seen[file]}" if file_counts[file] > 1 else file
        for symbol in symbols.get(unit, ()):
            names[unit, symbol] = f"{label}:{symbol}" if symbol_counts[symbol] > 1 else symbol
    return names


def _why_nothing(spec: CaseSpec, units: Sequence[Unit], architecture: str) -> str:
    """Return why a case has nothing to check; empty if it has something."""
    if all(map(is_python, spec.units)):
        if triton_calls(spec) and (missing := unmet(_without_torch(spec), device_of(architecture))):
            return missing
        return "it is a program, which perfsvc does not compile" if spec.files else "nvcc compiles nothing of it"
    return "" if units else "it is PTX, which the driver compiles"


def _launches(spec: CaseSpec, unit: Unit) -> dict[str, list[Launch]]:
    """Return the launches of a unit's kernels, by symbol; empty if Python launches them."""
    launches: dict[str, list[Launch]] = {}
    for step in spec.steps:
        if isinstance(step, Launch) and spec.units[step.module] == unit:
            launches.setdefault(step.entry, []).append(step)
    return launches


def _launched(kernel: CheckedKernel, launches: Sequence[Launch], most_threads: int | None) -> CheckedKernel:
    """Return a kernel with its launch of lowest occupancy; mark the kernel failed if a launch has too many threads."""
    threads = max(prod(launch.block) for launch in launches)
    if most_threads is not None and threads > most_threads:
        reason = f"no block of it can run: it has {threads} threads, and __launch_bounds__ allow {most_threads}"
        return replace(kernel, status=Status.FAILED, reason=reason, facts=None)
    return min((_with_launch(kernel, launch) for launch in launches), key=_occupancy_key)


def _with_launch(kernel: CheckedKernel, launch: Launch) -> CheckedKernel:
    """Return a kernel with the occupancy of a launch, and with a source digest that also covers the launch."""
    threads, shared = prod(launch.block), launch.shared_bytes
    facts = kernel.facts
    return replace(
        kernel,
        occupancy=occupancy(kernel.architecture, facts, threads, shared) if facts else None,
        threads=threads,
        dynamic_shared_bytes=shared,
        source=digest(f"{kernel.source} {threads} {shared}".encode()),
    )


def _occupancy_key(kernel: CheckedKernel) -> tuple[float, int, int]:
    share = kernel.occupancy.share if kernel.occupancy else 0.0
    return share, -kernel.dynamic_shared_bytes, -kernel.threads
