"""Build a case at many commits: checked out, resolved and compiled once for each version of its files."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc import build, suite
from perfsvc.build import Binary
from perfsvc.build.sources import user_path
from perfsvc.elf import code_digest, program_digest
from perfsvc.errors import CaseError, PerfsvcError, SuiteError, UsageError
from perfsvc.model import TIME, CacheState, Case, DeviceInfo, Kind, ReplayRecord
from perfsvc.selection import Selection
from perfsvc.service.compare.sides import launch_of
from perfsvc.service.git import Worktree, checked_out, git, move_to, objects
from perfsvc.service.interleaved.code import BuiltCase, Change, changed_data, changed_modules, with_inputs
from perfsvc.service.prepare.targets import Binaries, Target, compile_units, modules_of, replay_record
from perfsvc.service.progress import Progress
from perfsvc.suite import CaseSpec

MOST_TREES = 8
"""Worktrees at once: each holds the whole repository."""

Code = tuple[ReplayRecord, tuple[str, ...]]
"""How a case is launched and the digests of its modules: equal if two commits have the same code."""


@dataclass(frozen=True, slots=True)
class CommitBuild:
    """A case at a commit, ready to run.

    Attributes:
        modules: the case's binaries, one for each source that is compiled.
        code: equal for two commits at which the case has the same code.
        paths: the files and folders of the repository on which the case depends; empty if not all of them are known.
    """

    spec: CaseSpec
    modules: tuple[Binary, ...]
    code: Code
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """Why a case cannot be measured at a commit; another commit with the same files at ``paths`` fails equally."""

    error: PerfsvcError
    reason: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Builds:
    """A case at every commit.

    Attributes:
        at: the case's build, or why it has none, by commit hash.
        builds: at how many commits the case was built; every other commit has the same files as one of these commits.
        compiled: how many binaries were not in the cache.
    """

    at: Mapping[str, CommitBuild | BuildFailure]
    builds: int
    compiled: int


class CaseBuilder:
    """Builds a case at commits of its suite's repository.

    Args:
        folder: the suite.
        case: the id of the case at the newest commit.
        cache: the cache state; None for the case's first cache state at the newest commit.
        device: the device that will run the case.
        metric: the metric that will be measured.
        progress: receives messages and the number of steps done.
    """

    def __init__(
        self,
        folder: Path,
        case: str,
        cache: CacheState | None,
        device: DeviceInfo,
        *,
        metric: str,
        progress: Progress,
    ) -> None:
        self._folder = folder
        self._inside = (git(folder, "rev-parse", "--show-prefix") or "").rstrip("/")
        self._names: tuple[str, ...] = (case,)
        self._cache = cache
        self._metric = metric
        self._target = Target(device, (), build.toolchain_for(device.target))
        self._progress = progress
        self._at: dict[str, CommitBuild | BuildFailure] = {}
        self._builds = 0
        self._compiled = 0

    def build(self, commits: Sequence[str]) -> Builds:
        """Build the case at each commit, from the oldest to the newest.

        If the builds at the oldest and the newest commit fail, build no other commit.

        Raises:
            UsageError: a commit cannot be checked out, or the oldest commit lacks the suite's folder.
            InfrastructureError: no compiler, or a cache that cannot be written.
        """
        oldest, *_, newest = commits
        with contextlib.ExitStack() as stack:
            trees = [stack.enter_context(checked_out(self._folder, oldest))]
            for end in (newest, oldest):
                spec = self._build_trees([move_to(trees[0], end)], commits)[end]
                if isinstance(spec, CaseSpec):
                    self._follow(spec)
                built = self._at[end]
                if isinstance(built, CommitBuild):
                    break
            else:
                return Builds(self._at, self._builds, self._compiled)
            while remaining := [commit for commit in commits if commit not in self._at]:
                batch = self._distinct(remaining, built.paths)
                more = range(len(trees), len(batch))
                trees += [stack.enter_context(checked_out(self._folder, oldest)) for _ in more]
                with ThreadPoolExecutor(len(batch), thread_name_prefix="checkout") as threads:
                    self._build_trees(list(threads.map(move_to, trees, batch)), remaining)
        return Builds(self._at, self._builds, self._compiled)

    def further_change(self, good: str, bad: str) -> str:
        """Return what differs for the case between two commits: its inputs, modules or files that it may read.

        Both commits were built and have equal code. Empty if nothing differs. A bisection measures no such change: each
        commit runs with what there is today.
        """
        with checked_out(self._folder, good) as before, checked_out(self._folder, bad) as after:
            modules = changed_modules(self._folder, before, after)
            sides = [
                with_inputs(BuiltCase(spec, build.modules, of_tree))
                for tree, of_tree in zip((before, after), modules, strict=True)
                if isinstance(build := self._at[tree.commit], CommitBuild)
                and isinstance(spec := self._resolve(tree), CaseSpec)
            ]
            if len(sides) != len(modules):
                return ""
            change = Change(sides[0], sides[1], changed_data(self._folder, before, after))
            if change.inputs or not change.python:
                return change.inputs
            texts = {name for name, _ in {*modules[0]} ^ {*modules[1]}}
            return ", ".join([*sorted(texts), *change.data])

    def _follow(self, spec: CaseSpec) -> None:
        """Look for the case under its former names too at other commits, but only in the cache state of ``spec``."""
        self._names = tuple(dict.fromkeys((*self._names, *_names(spec.case))))
        self._cache = spec.cache

    def _distinct(self, commits: Sequence[str], paths: tuple[str, ...]) -> list[str]:
        """Return the oldest commit of each version of the files at ``paths``; at most as many as are built at once."""
        versions = objects(self._folder, commits, paths)
        oldest = {versions.get(commit, (commit,)): commit for commit in reversed(commits)}
        return list(oldest.values())[: min(MOST_TREES, os.cpu_count() or 1)]

    def _build_trees(self, trees: Sequence[Worktree], commits: Sequence[str]) -> Mapping[str, CaseSpec | BuildFailure]:
        """Build the case in each worktree, and store the result for every commit with the same files.

        Return the resolved case of each worktree's commit, or why it cannot be resolved.
        """
        specs = {tree.commit: self._resolve(tree) for tree in trees}
        target = replace(self._target, specs=tuple(spec for spec in specs.values() if isinstance(spec, CaseSpec)))
        binaries = compile_units([target], self._progress, builds_at_once=len(trees))  # a case in each tree
        self._compiled += sum(isinstance(binary, Binary) and not binary.cached for binary in binaries.values())
        self._builds += len(trees)
        for tree in trees:
            spec = specs[tree.commit]
            result = self._prepare(tree, spec, binaries) if isinstance(spec, CaseSpec) else spec
            self._at[tree.commit] = result
            if result.paths:
                versions = objects(self._folder, [tree.commit, *commits], result.paths)
                same = [commit for commit, files in versions.items() if files == versions[tree.commit]]
                self._at |= dict.fromkeys(same, result)
        return specs

    def _resolve(self, tree: Worktree) -> CaseSpec | BuildFailure:
        """Return the resolved case of the suite in a worktree, or why the case cannot be resolved."""
        try:
            return self._find(suite.discover(tree.suite))
        except (SuiteError, UsageError) as error:
            return BuildFailure(error, _reason(error, tree), (self._inside,))

    def _find(self, discovered: suite.Suite) -> CaseSpec:
        """Return the resolved case, under its name or a former name; raise ``SuiteError`` or ``UsageError``."""
        listed = next((case for name in self._names for case in discovered.cases if name in _names(case.case)), None)
        if listed is None:
            raise self._missing(discovered)
        if listed.kind is Kind.HOST and self._metric == TIME:
            raise UsageError(f"{listed.case.id} has metrics of its own and no time", cure="name one of them: --metric")
        specs, problems = discovered.resolve(Selection((listed.case.id,)), listed.points, build.known_shapes())
        for problem in problems:
            raise problem
        by_cache = {spec.cache: spec for spec in specs if spec.case == listed.case}
        cache = self._cache or next(iter(by_cache))
        if cache not in by_cache:
            cure = f"it is measured {', '.join(by_cache)}"
            raise UsageError(f"{listed.case.id} is not measured {cache}", cure=cure)
        return by_cache[cache]

    def _missing(self, discovered: suite.Suite) -> SuiteError | UsageError:
        """Return the error for a case that the suite lacks: the problem of its benchmark file, else a usage error."""
        wanted = Selection(self._names[:1])
        problems, _ = discovered.split_problems(wanted)
        if problems:
            return problems[0]
        cure = "name a whole case id: perfsvc list"
        try:
            discovered.select(wanted, "full" if self._target.device.kind == "cuda" else "smoke")
        except UsageError as error:
            cure = error.cure  # it lists what to select instead
        return UsageError(f"there is no case {self._names[0]}", cure=cure)

    def _prepare(self, tree: Worktree, spec: CaseSpec, binaries: Binaries) -> CommitBuild | BuildFailure:
        """Return the case at a worktree's commit with its compiled binaries, or why a binary is missing."""
        modules = modules_of(self._target, spec, binaries)
        if isinstance(modules, CaseError):
            return BuildFailure(modules, _reason(modules, tree))
        digest_of = program_digest if spec.kind is Kind.PROGRAM else code_digest
        digests = tuple(digest_of(module.code) for module in modules)
        code = launch_of(replay_record(spec, modules)), digests
        return CommitBuild(spec, modules, code, _paths(tree, spec, modules))


def _names(case: Case) -> tuple[str, ...]:
    """Return the id of a case, then its ids under its former names."""
    return (case.id, *(replace(case, variant=name).id for name in case.formerly))


def _reason(error: PerfsvcError, tree: Worktree) -> str:
    """Return what is wrong at a commit, with paths relative to the repository's root."""
    where = f"{error.where}: " if isinstance(error, SuiteError) else ""
    return f"{where}{error.what}".replace(f"{tree.root}/", "")


def _paths(tree: Worktree, spec: CaseSpec, modules: Sequence[Binary]) -> tuple[str, ...]:
    """Return a benchmark's folder and the files that its sources include from elsewhere in the repository.

    Empty if a command builds the case's program: then not all files of the case are known.
    """
    if any(file.build for file in spec.files):
        return ()
    bench_folder = spec.bench.parent
    used = [
        Path(os.path.normpath(user_path(unit, name)))
        for unit, module in zip(spec.units, modules, strict=False)  # the files of a program follow the units
        for name in module.sources
    ]
    used += [file.path for file in spec.files]
    elsewhere = sorted({path for path in used if not path.is_relative_to(bench_folder)})
    # Files outside the repository are the same at every commit.
    inside = [path.relative_to(tree.root) for path in (bench_folder, *elsewhere) if path.is_relative_to(tree.root)]
    return tuple("" if path == Path() else path.as_posix() for path in inside)
