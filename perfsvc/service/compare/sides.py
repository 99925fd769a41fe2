"""Whether both runs of a judgement share code, source, compiler, packages and device, which decides its cause."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from perfsvc import units
from perfsvc.elf import program_digest
from perfsvc.judge import COMPARED, SameOnBothSides, settled
from perfsvc.model import (
    Call,
    Environment,
    Judgement,
    Kind,
    Launch,
    PackageCall,
    Parts,
    PythonCode,
    ReplayRecord,
    Series,
    Step,
    TritonKernel,
    Verdict,
)
from perfsvc.store import BinaryRow, CaseBinary, Store

_DIGEST = re.compile("[0-9a-f]{64}")
MODULES_AT_ONCE = 64
"""How many compiled modules are held in memory at once: a module may have megabytes."""

Pair = tuple[CaseBinary, CaseBinary]
"""What a case used in the baseline's run and in the candidate's."""
UsedCode = tuple[int | None, PythonCode | None]
"""The id of a binary, and what its Python functions ran with."""
CodeOfPair = tuple[UsedCode, UsedCode]


def sides_of(store: Store, judgements: Iterable[Judgement]) -> dict[Series, SameOnBothSides]:
    """Return what both runs of each judged series have in common: code, source, compiler, environment.

    A series is absent if this is unknown. Possible reasons: its verdict compares no two levels, its baseline comes from
    another device, its case has no binary, or the packages of its Python functions are not stored.

    Args:
        store: the database, with the runs, all of which have ended.
        judgements: the judgements, at most one for each series.
    """
    cases = {
        series: [(run, (series.device, series.case, series.cache)) for run in (baseline_run, candidate_run)]
        for series, baseline_run, candidate_run in _compared(judgements)
    }
    built = store.binaries.of_cases({case for both in cases.values() for case in both}) if cases else {}
    pairs = {
        series: (built[baseline], built[candidate])
        for series, (baseline, candidate) in cases.items()
        if baseline in built and candidate in built
    }
    compared = compare_code(store, {_only_code(pair) for pair in pairs.values()})
    return {
        series: replace(
            compared[_only_code(pair)],
            toolkit=pair[0].environment.toolkit == pair[1].environment.toolkit,
            device=_device(pair[0]) == _device(pair[1]),
        )
        for series, pair in pairs.items()
        if _only_code(pair) in compared
    }


def settled_by_code(
    store: Store, judgements: Sequence[Judgement], threshold: Callable[[Series], float]
) -> list[Judgement]:
    """Return all judgements; no inconclusive series of unchanged code stays inconclusive (``judge.settled``)."""
    inconclusive = [judgement for judgement in judgements if judgement.verdict is Verdict.INCONCLUSIVE]
    return settled(judgements, sides_of(store, inconclusive), threshold) if inconclusive else list(judgements)


def launch_of(record: ReplayRecord) -> ReplayRecord:
    """Return a replay record without its modules and variant name: all but the compiled code."""
    return replace(record, case=replace(record.case, variant=""), modules=())


def called(record: ReplayRecord) -> frozenset[str]:
    """Return the names of the functions of the benchmark file that a case calls."""
    return frozenset(name for step in record.calls for name in step.bench_functions)


def _python_modules(record: ReplayRecord) -> frozenset[str]:
    """Return the digests of the modules that are texts of Python files."""
    return frozenset(record.modules[step.source] for step in record.calls if step.source is not None)


def changed_packages(before: PythonCode | None, after: PythonCode | None) -> str:
    """Return which packages, files and environment variables differ: ``triton 3.4.0 → 3.5.0``; empty if a side is None.

    Only packages that both sides loaded are compared, because a process may have loaded more packages for another case.
    """
    return "" if before is None or after is None else _listed(_changes_of_packages(before, after))


def changed_inputs(before: PythonCode | None, after: PythonCode | None) -> str:
    """Return which inputs differ: the files and variables that they are made from, else the arrays; empty if none does.

    Inputs are the same if their values are, whatever they are made from.
    """
    if before is None or after is None or not before.inputs or before.inputs == after.inputs or not after.inputs:
        return ""
    causes = list(_changed_parts(before.inputs_from, after.inputs_from))
    return _listed(causes or (f"the values of {name}" for name in _differing(before.inputs, after.inputs)))


def _listed(changes: Iterable[str]) -> str:
    """Return the first two changes, and how many more there are."""
    changes = list(changes)
    return ", ".join(changes[:2]) + (f" and {len(changes) - 2} more" if len(changes) > 2 else "")  # noqa: PLR2004


def _differing(before: Parts, after: Parts) -> list[str]:
    was, now = dict(before), dict(after)
    return [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]


def _changed_parts(before: Parts, after: Parts) -> Iterator[str]:
    """Yield the files and variables that differ: the name of a file, and the values of a variable."""
    was, now = dict(before), dict(after)
    for name in _differing(before, after):
        values = was.get(name, "unset"), now.get(name, "unset")
        yield name if any(map(_DIGEST.fullmatch, values)) else " → ".join((f"{name} {values[0]}", values[1]))


FIRST = ("triton", "pytorch-triton", "torch", "cupy", "numba", "numpy", "python")
"""The packages that are named first if several differ."""


def _changes_of_packages(before: PythonCode, after: PythonCode) -> Iterator[str]:
    """Yield what differs between two sides: packages that both have, then variables and files, a line for each.

    The packages that ``FIRST`` names come before all others.
    """
    old = {package.name: package for package in before.packages}
    new = {package.name: package for package in after.packages}
    changed = [name for name in old if name in new and old[name] != new[name]]
    for name in sorted(changed, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)):
        if old[name].version != new[name].version:
            yield f"{name} {old[name].version} → {new[name].version}"
        elif old[name].digest and new[name].digest:
            yield f"{name} {new[name].version}, built anew" if new[name].version else f"{name} changed"
    yield from _changed_parts(before.variables, after.variables)
    yield from (f"{name} changed" for name in _differing(before.files, after.files))


def _compared(judgements: Iterable[Judgement]) -> Iterable[tuple[Series, int, int]]:
    """Yield the series, baseline run and candidate run of each judgement that compares two levels."""
    for judgement in judgements:
        if judgement.verdict in COMPARED and judgement.baseline_run is not None and judgement.candidate_run is not None:
            yield judgement.series, judgement.baseline_run, judgement.candidate_run


def _only_code(pair: Pair) -> CodeOfPair:
    old, new = pair
    return (old.binary, old.python), (new.binary, new.python)


def _device(used: CaseBinary) -> Environment:
    return replace(used.environment, toolkit="")


# --- code ------------------------------------------------------------------------------------------------------------


SAME = SameOnBothSides(code=True, source=True, toolkit=True, device=True)
"""Both sides used the same stored code."""


@dataclass(frozen=True, slots=True)
class _Code:
    """The code of one side."""

    row: BinaryRow
    python: PythonCode | None

    @property
    def record(self) -> ReplayRecord:
        return self.row.record

    @property
    def is_known(self) -> bool:
        return self.python is not None or not self.record.calls


def compare_code(store: Store, pairs: Collection[CodeOfPair]) -> dict[CodeOfPair, SameOnBothSides]:
    """Return what is the same in the code of both sides of each pair; a pair with unknown code is absent.

    The attributes ``toolkit`` and ``device`` are always True here: the caller compares them.
    """
    numbers = {number for pair in pairs for number, _ in pair if number is not None}
    rows = store.binaries.get(numbers) if numbers else {}
    known: dict[CodeOfPair, tuple[_Code, _Code]] = {}
    for pair in pairs:
        sides = [_Code(rows[number], python) for number, python in pair if number in rows]
        if len(sides) == len(pair) and all(side.is_known for side in sides):
            known[pair] = (sides[0], sides[1])
    comparer = _Comparer(store, known.values())
    return {pair: SAME if pair[0] == pair[1] else comparer.compare(*both) for pair, both in known.items()}


class _Comparer:
    """Compares the code of the two sides of pairs; reads their texts and modules from the store once.

    Args:
        store: holds the texts and modules.
        pairs: all pairs that will be compared.
    """

    def __init__(self, store: Store, pairs: Collection[tuple[_Code, _Code]]) -> None:
        self._store = store
        # All pairs are read from the store at once, but only what differs between their sides.
        texts: set[str] = set()
        modules: set[str] = set()
        self._python = frozenset().union(*(_python_modules(code.record) for pair in pairs for code in pair))
        for old, new in pairs:
            if old.record.bench != new.record.bench:
                texts |= {old.record.bench, new.record.bench}
            if old.python and new.python and old.python.modules != new.python.modules:
                texts |= {sha256 for _, sha256 in (*old.python.modules, *new.python.modules)}
            if old.record.modules != new.record.modules and _shape(old.record) == _shape(new.record):
                modules |= {*old.record.modules, *new.record.modules}
        self._texts = {name: text.decode() for name, text in store.binaries.modules(texts).items()} if texts else {}
        self._digests = self._code_digests(modules)

    def compare(self, old: _Code, new: _Code) -> SameOnBothSides:
        """Return what is the same in the code of two sides.

        The code is the same if the replay records differ in nothing but the case's name, and the modules have equal
        code sections. A record includes the text of the benchmark file. If the case calls Python, the functions that
        the case calls and the functions that make its inputs must be equal, with all that these functions use.
        """
        same_launch = _without_text(old.record) == _without_text(new.record)
        same_text, same_kernels, same_options, packages = self._same_text(old, new), True, True, ""
        inputs = changed_inputs(old.python, new.python)
        if old.python and new.python:
            packages = changed_packages(old.python, new.python)
            same_kernels = _behaviour(old.python.kernels) == _behaviour(new.python.kernels)
            # With other packages, options are not compared: another Triton may have other options and defaults.
            same_options = bool(packages) or _options(old.python.kernels) == _options(new.python.kernels)
        same_modules = self._same_modules(old.record, new.record)
        is_all_cubins = _are_defined_by_cubins(old, new) and same_launch and same_kernels
        if is_all_cubins and (old.record.bench == new.record.bench or self._same_bench(old, new, frozenset())):
            same_text, same_options, packages, same_modules = True, True, "", self._same_compiled(old, new)
        if not (same_modules or packages) and old.row.sources == new.row.sources:
            packages = _listed(_differing(tuple(old.row.built_with), tuple(new.row.built_with)))
        launch = ""  # stays empty unless the two sides differ only in the options of launches
        same_but_options = same_modules and not packages and _shape(old.record) == _shape(new.record)
        differs_in_options = not (same_launch and same_options and (same_text or not new.record.calls))
        if same_but_options and differs_in_options and self._same_text(old, new, outline=True):
            launch = ", ".join(_changes_of_launches(old, new)) or "other numbers in its launches"
        return SameOnBothSides(
            code=same_modules
            and same_launch
            and same_text
            and same_kernels
            and same_options
            and not (packages or inputs),
            # The sources of a program are unknown, but for scripts.
            source=old.row.sources == new.row.sources
            and same_launch
            and same_text
            and same_options
            and (same_modules or new.record.kind is not Kind.PROGRAM),
            toolkit=True,
            device=True,
            launch=launch,
            packages=packages,
            inputs=inputs,
        )

    def _same_modules(self, old: ReplayRecord, new: ReplayRecord) -> bool:
        """Return whether two records have the same modules, or modules with equal code."""
        if old.modules == new.modules:
            return True
        digests = self._digests
        if not all(name in digests for name in (*old.modules, *new.modules)):
            return False
        return [digests[name] for name in old.modules] == [digests[name] for name in new.modules]

    def _same_text(self, old: _Code, new: _Code, *, outline: bool = False) -> bool:
        """Return whether both sides use equal source of the benchmark file and of the Python modules imported there.

        With ``outline``, the options and numbers of launches in the source may differ.
        """
        # A program takes nothing from the benchmark file but its command, which is part of the record.
        if old.record.bench != new.record.bench and not old.record.kind is new.record.kind is Kind.PROGRAM:
            functions = called(old.record) | called(new.record)
            if not (outline or new.record.calls) or not self._same_bench(old, new, functions, outline=outline):
                return False
        was, now = (dict(code.python.modules) if code.python else {} for code in (old, new))
        return was == now or (
            was.keys() == now.keys()
            and all(
                self._module_source(was[name], outline=outline) == self._module_source(now[name], outline=outline)
                for name in was
            )
        )

    def _same_bench(self, old: _Code, new: _Code, functions: frozenset[str], *, outline: bool = False) -> bool:
        """Return whether some functions and the inputs have the same source in the benchmark files of both sides."""
        before, after = (self._texts.get(code.record.bench) for code in (old, new))
        if before is None or after is None:
            return False
        # Imported here because few comparisons read sources, and the package reads whole suites.
        from perfsvc.suite.python_source import same_source

        return same_source(before, after, functions, outline=outline)

    def _same_compiled(self, old: _Code, new: _Code) -> bool:
        """Return whether both sides have equal modules, apart from texts of Python files."""
        old_digests, new_digests = (
            [self._digests.get(name, name) for name in code.record.modules if name not in _python_modules(code.record)]
            for code in (old, new)
        )
        return old_digests == new_digests

    def _module_source(self, sha256: str, *, outline: bool) -> str:
        if sha256 not in self._texts:
            return sha256
        from perfsvc.suite.python_source import source_digest

        return source_digest(self._texts[sha256], None, outline=outline)

    def _code_digests(self, modules: Collection[str]) -> dict[str, str]:
        """Return the digest of the code in each module."""
        if not modules:
            return {}
        from perfsvc.suite.python_source import source_digest

        digests: dict[str, str] = {}
        names = iter(modules)
        while batch := list(islice(names, MODULES_AT_ONCE)):
            digests |= {
                name: source_digest(code.decode(), None) if name in self._python else program_digest(code)
                for name, code in self._store.binaries.modules(batch).items()
            }
        return digests


def _without_text(record: ReplayRecord) -> ReplayRecord:
    return replace(launch_of(record), bench="")


def _shape(record: ReplayRecord) -> ReplayRecord:
    """Return a record without the options of its launches: grid, block, shared memory and values by name."""

    def plain(step: Step) -> Step:
        if isinstance(step, Call) and step.package:
            return replace(step, package=replace(step.package, configurations=(), block=(), shared_bytes=0))
        return replace(step, grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0) if isinstance(step, Launch) else step

    return replace(_without_text(record), steps=tuple(map(plain, record.steps)))


def _behaviour(kernels: Iterable[TritonKernel]) -> set[tuple[str, str]]:
    return {(kernel.name, kernel.code) for kernel in kernels}


def _options(kernels: Iterable[TritonKernel]) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {(kernel.name, kernel.options) for kernel in kernels}


def _changes_of_launches(old: _Code, new: _Code) -> Iterator[str]:
    """Yield what differs in the launches of two sides, each change once: ``block 128 → 256``, ``num_warps 4 → 16``."""
    changes: dict[str, None] = {}
    for before, after in zip(old.record.steps, new.record.steps, strict=False):
        if isinstance(before, Launch) and isinstance(after, Launch):
            pairs = (
                ("grid", _extent(before.grid), _extent(after.grid)),
                ("block", _extent(before.block), _extent(after.block)),
                ("dynamic shared memory", f"{before.shared_bytes} B", f"{after.shared_bytes} B"),
            )
            changes |= {f"{name} {was} → {now}": None for name, was, now in pairs if was != now}
        if isinstance(before, Call) and isinstance(after, Call) and before.package and after.package:
            changes |= dict.fromkeys(_changes_of_package_calls(before.package, after.package))
    if old.python and new.python:
        old_kernels, new_kernels = _unique(old.python.kernels), _unique(new.python.kernels)
        for name in sorted(old_kernels.keys() & new_kernels.keys()):
            was, now = dict(old_kernels[name].options), dict(new_kernels[name].options)
            for option in dict.fromkeys(chain(was, now)):
                if was.get(option) != now.get(option):
                    changes[f"{option} {was.get(option, 'unset')} → {now.get(option, 'unset')}"] = None
    yield from changes


def _are_defined_by_cubins(old: _Code, new: _Code) -> bool:
    """Return whether the cubins of Triton and the launches are the whole code of both sides.

    They are if perfsvc itself launches all Python kernels through Triton: no other Python runs between them.
    """
    return all(
        bool(code.record.calls)
        and all(
            step.package is not None and step.package.package == "triton" and not step.package.grid
            for step in code.record.calls
        )
        and code.python is not None
        and bool(code.python.kernels)
        and all(kernel.code for kernel in code.python.kernels)
        for code in (old, new)
    )


def _changes_of_package_calls(before: PackageCall, after: PackageCall) -> Iterator[str]:
    """Yield what differs in the launches of a package's kernel: its only configuration, its block, shared memory.

    If a side has several configurations, only the number of them is compared: which one tuning chose is a property of
    the compiled kernel.
    """
    was, now = before.configurations, after.configurations
    if len(was) == len(now) == 1:
        if was[0].grid != now[0].grid:
            yield f"grid {_extent(was[0].grid)} → {_extent(now[0].grid)}"
        old, new = dict(was[0].values), dict(now[0].values)
        for name in dict.fromkeys(chain(old, new)):
            if old.get(name, "unset") != new.get(name, "unset"):
                yield f"{name} {old.get(name, 'unset')} → {new.get(name, 'unset')}"
    elif was != now:
        yield f"{units.count(len(was), 'configuration')} → {len(now)}"
    if before.block != after.block:
        yield f"block {_extent(before.block)} → {_extent(after.block)}"
    if before.shared_bytes != after.shared_bytes:
        yield f"dynamic shared memory {before.shared_bytes} B → {after.shared_bytes} B"


def _unique(kernels: Iterable[TritonKernel]) -> Mapping[str, TritonKernel]:
    """Return the kernels by name, without names that several kernels share."""
    by_name: dict[str, list[TritonKernel]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, []).append(kernel)
    return {name: same[0] for name, same in by_name.items() if len(same) == 1}


def _extent(extent: tuple[int, ...]) -> str:
    """Return the extent of a grid or block without the dimensions of 1 at its end: ``128``, ``32 x 8``."""
    extent = (*extent, 1)
    while len(extent) > 1 and extent[-1] == 1:
        extent = extent[:-1]
    return " x ".join(map(str, extent))
