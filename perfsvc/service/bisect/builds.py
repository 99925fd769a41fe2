"""A case as it is at each of many commits: checked out, resolved and compiled once for each version of its files."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc import build, suite
from perfsvc.build import Binary
from perfsvc.elf import code_digest
from perfsvc.errors import CaseError, PerfsvcError, SuiteError, UsageError
from perfsvc.model import TIME, CacheState, DeviceInfo, Kind, ReplayRecord
from perfsvc.service.compare.code import launch_of
from perfsvc.service.git import Tree, checked_out, git, moved, objects
from perfsvc.service.progress import Progress
from perfsvc.service.run.prepare import Binaries, Runnable, Target, compile_units, prepare
from perfsvc.suite import CaseSpec, Inputs, Selection

MOST_TREES = 8
"""Worktrees at once: each holds the whole repository."""

_ELSEWHERE = "<"  # begins the names of sources in folders that only the compiler's options name

Code = tuple[ReplayRecord, tuple[str, ...]]
"""What a case does when it is measured: equal where two commits have the same code."""


@dataclass(frozen=True, slots=True)
class Built:
    """A case at a commit, ready to run.

    Attributes:
        code: what it does.
        paths: of the repository: files and folders that decide it; none where nobody knows them all.
    """

    runnable: Runnable
    code: Code
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """Why a case cannot be measured at a commit, and the paths that decide that, as in ``Built``."""

    error: PerfsvcError
    reason: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A case at every commit.

    Attributes:
        at: what it is there, by hash.
        builds: at how many commits that was looked up; the others have the same files as one of those.
        compiled: how many binaries the cache did not have.
    """

    at: Mapping[str, Built | Unbuilt]
    builds: int
    compiled: int


class Rebuilding:
    """Builds a case at commits of its suite's repository.

    Args:
        folder: the suite.
        case: its id at the newest commit.
        cache: which of its cache states; None for its first one there.
        device: where it is to run.
        metric: what is to be measured of it.
        inputs: tells the shapes of its inputs.
        progress: is told how far it is.
    """

    def __init__(
        self,
        folder: Path,
        case: str,
        cache: CacheState | None,
        device: DeviceInfo,
        *,
        metric: str,
        inputs: Inputs,
        progress: Progress,
    ) -> None:
        self._folder = folder
        self._inside = (git(folder, "rev-parse", "--show-prefix") or "").rstrip("/")
        self._names: tuple[str, ...] = (case,)
        self._mode = cache
        self._metric = metric
        self._target = Target(device, (), build.toolchain_for(device.target))
        self._progress = progress
        self._inputs = inputs
        self._at: dict[str, Built | Unbuilt] = {}
        self._builds = 0
        self._compiled = 0

    def at(self, commits: Sequence[str]) -> Rebuilt:
        """The case at each of some commits, of which the newest comes last.

        Where it cannot be built at the newest, it is looked for at no other.

        Raises:
            UsageError: a commit cannot be checked out, or the newest lacks the suite's folder.
            InfrastructureError: no compiler, or a cache that cannot be written.
        """
        newest = commits[-1]
        with contextlib.ExitStack() as stack:
            trees = [stack.enter_context(checked_out(self._folder, newest))]
            self._build(trees, commits)
            match self._at[newest]:
                case Built(runnable=runnable, paths=paths):
                    self._follow(runnable.spec)
                case Unbuilt():
                    return Rebuilt(self._at, self._builds, self._compiled)
            while left := [commit for commit in commits if commit not in self._at]:
                batch = self._different(left, paths)
                more = range(len(trees), len(batch))
                trees += [stack.enter_context(checked_out(self._folder, newest)) for _ in more]
                with ThreadPoolExecutor(len(batch), thread_name_prefix="checkout") as threads:
                    self._build(list(threads.map(moved, trees, batch)), left)
        return Rebuilt(self._at, self._builds, self._compiled)

    def _follow(self, spec: CaseSpec) -> None:
        """Looks for the case by its earlier names as well from now on, and in one cache state."""
        earlier = (replace(spec.case, variant=name).id for name in spec.case.formerly)
        self._names = (spec.case.id, *earlier)
        self._mode = spec.cache

    def _different(self, commits: Sequence[str], paths: tuple[str, ...]) -> list[str]:
        """Some commits at which the files that decide the case now were different, as many as there may be trees."""
        versions = objects(self._folder, commits, paths)
        once = {versions.get(commit, (commit,)): commit for commit in reversed(commits)}  # the oldest of each
        return list(once.values())[: min(MOST_TREES, os.cpu_count() or 1)]

    def _build(self, trees: Sequence[Tree], commits: Sequence[str]) -> None:
        """Builds the case where the trees are, which tells it of all commits with the same files."""
        specs = {tree.commit: self._resolve(tree) for tree in trees}
        target = replace(self._target, specs=tuple(one for one in specs.values() if isinstance(one, CaseSpec)))
        binaries = compile_units([target], self._progress)
        self._compiled += sum(isinstance(one, Binary) and not one.cached for one in binaries.values())
        self._builds += len(trees)
        for tree in trees:
            found = specs[tree.commit]
            built = self._prepare(tree, found, binaries) if isinstance(found, CaseSpec) else found
            self._at[tree.commit] = built
            if built.paths:
                versions = objects(self._folder, [tree.commit, *commits], built.paths)
                self._at |= {one: built for one, files in versions.items() if files == versions[tree.commit]}

    def _resolve(self, tree: Tree) -> CaseSpec | Unbuilt:
        """The case as the suite had it; no function of its benchmark file is left in it."""
        try:
            return self._find(suite.discover(tree.suite))
        except (SuiteError, UsageError) as error:
            return Unbuilt(error, _reason(error, tree), (self._inside,))

    def _find(self, found: suite.Suite) -> CaseSpec:
        listed = next((one for name in self._names for one in found.cases if one.case.id == name), None)
        if listed is None:
            raise self._missing(found)
        if listed.kind is Kind.HOST and self._metric == TIME:
            raise UsageError(f"{listed.case.id} has metrics of its own and no time", cure="name one of them: --metric")
        specs = found.resolve(Selection((listed.case.id,)), listed.points, self._inputs)
        caches = {spec.cache: spec for spec in specs if spec.case == listed.case}
        cache = self._mode or next(iter(caches))
        if cache not in caches:
            raise UsageError(f"{listed.case.id} is not measured {cache}", cure=f"it is measured {', '.join(caches)}")
        return caches[cache]

    def _missing(self, found: suite.Suite) -> SuiteError | UsageError:
        """Why a suite does not have the case."""
        wanted = Selection(self._names[:1])
        reached, _ = found.split_problems(wanted)
        if reached:
            return reached[0]
        try:
            found.select(wanted, "full" if self._target.device.kind == "cuda" else "smoke")
        except UsageError as error:
            return error  # with what there is instead
        return UsageError(f"there is no case {self._names[0]}", cure="name one whole: perfsvc list")

    def _prepare(self, tree: Tree, spec: CaseSpec, binaries: Binaries) -> Built | Unbuilt:
        """The case with its binaries."""
        match prepare(self._target, spec, binaries):
            case Runnable() as runnable:
                code = launch_of(runnable.record), tuple(code_digest(module.code) for module in runnable.modules)
                return Built(runnable, code, _paths(tree, runnable))
            case CaseError() as error:
                return Unbuilt(error, _reason(error, tree))


def _reason(error: PerfsvcError, tree: Tree) -> str:
    """What is wrong at a commit, with paths from the repository's root."""
    where = f"{error.where}: " if isinstance(error, SuiteError) else ""
    return f"{where}{error.what}".replace(f"{tree.root}/", "")


def _paths(tree: Tree, runnable: Runnable) -> tuple[str, ...]:
    """The folder of a benchmark, and what its sources include from elsewhere in the repository."""
    home = runnable.spec.bench.parent
    read = [
        (name, Path(os.path.normpath(unit.source.parent / name)))
        for unit, module in zip(runnable.spec.units, runnable.modules, strict=True)
        for name in module.sources
    ]
    if any(name.startswith(_ELSEWHERE) for name, _ in read):
        return ()
    beside = {path for _, path in read if not path.is_relative_to(home)}
    # What lies outside the repository is the same at every commit.
    inside = [path.relative_to(tree.root) for path in (home, *sorted(beside)) if path.is_relative_to(tree.root)]
    return tuple("" if path == Path() else path.as_posix() for path in inside)
