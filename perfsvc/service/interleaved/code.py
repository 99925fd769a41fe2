"""What two revisions of a case have in common: their compiled code, their launches, their Python functions."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from perfsvc.build import Binary
from perfsvc.elf import code_digest, program_digest
from perfsvc.errors import SuiteError
from perfsvc.model import Call, Kind, PythonCode, ReplayRecord
from perfsvc.service.compare.sides import called, changed_inputs, launch_of
from perfsvc.service.git import Worktree, changed, git
from perfsvc.service.prepare.targets import arrays, replay_record
from perfsvc.suite import CaseSpec
from perfsvc.suite.isolated import DEFAULT_LIMIT_S
from perfsvc.suite.python_source import same_source

OURS = "perfsvc"
"""perfsvc itself is never imported from a revision of its own repository."""

SUFFIX = ".py"

_DOCUMENTS = frozenset({"README", "CHANGELOG", "LICENSE", "NOTICE"})
_NO_DATA = frozenset({SUFFIX, ".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".inl", ".md", ".rst"})
"""The suffixes of files that compilers, Python's imports and people read; any other file may be read by a case."""

PythonModules = tuple[tuple[str, str], ...]
"""The names and texts of Python modules."""


@dataclass(frozen=True, slots=True)
class BuiltCase:
    """A case of a revision with its compiled binaries.

    Attributes:
        spec: the case.
        modules: its binaries, in the order of the spec's parts.
        python_modules: the modules of the repository that its Python functions may import, if the revisions differ in
            them.
        inputs: what its inputs are and what they were made from, if files differ that they may be made from.
    """

    spec: CaseSpec
    modules: tuple[Binary, ...]
    python_modules: PythonModules = ()
    inputs: PythonCode | None = None

    @property
    def record(self) -> ReplayRecord:
        """The replay record of the case."""
        return replay_record(self.spec, self.modules)

    @property
    def code(self) -> tuple[str, ...]:
        """The digests of the code in the binaries, without what no launch depends on, such as the compiler's name."""
        digest_of = program_digest if self.spec.kind is Kind.PROGRAM else code_digest
        return tuple(digest_of(module.code) for module in self.modules)

    @property
    def calls_python(self) -> bool:
        """Whether a step of the case is a Python function."""
        return any(isinstance(step, Call) for step in self.spec.steps)


@dataclass(frozen=True)
class Change:
    """What differs between a case of the base revision and the same case of the new revision.

    Attributes:
        data: the files of the repository that differ and that the case may read.
    """

    base: BuiltCase
    new: BuiltCase
    data: tuple[str, ...] = ()

    @cached_property
    def inputs(self) -> str:
        """Which inputs differ, or what they were made from; empty if none does."""
        return changed_inputs(self.base.inputs, self.new.inputs)

    @cached_property
    def compiled(self) -> bool:
        """Whether the compiled code differs."""
        return self.base.code != self.new.code

    @cached_property
    def launch(self) -> bool:
        """Whether the steps differ: grids, blocks, arguments, or the shapes of arrays."""
        before, after = (replace(launch_of(case.record), bench="") for case in (self.base, self.new))
        return before != after

    @cached_property
    def source(self) -> bool:
        """Whether the Python functions of the case, or those that make its inputs, differ in the benchmark file."""
        names = called(self.base.record) | called(self.new.record)
        return not same_source(self.base.spec.bench_text, self.new.spec.bench_text, names)

    @cached_property
    def python(self) -> bool:
        """Whether the Python functions of the case, or those that make its inputs, differ or may differ."""
        modules = self.base.python_modules != self.new.python_modules
        return self.source or (self.new.calls_python and (modules or bool(self.data)))

    @property
    def is_none(self) -> bool:
        """Whether both revisions run the same code, so that there is nothing to measure."""
        return not (self.compiled or self.launch or self.python or self.inputs)


def with_inputs(case: BuiltCase) -> BuiltCase:
    """Return a case with its inputs, as the files of its revision make them; as it is if they cannot be made."""
    if case.spec.kind is Kind.PROGRAM:
        return case
    try:
        made = arrays(case.spec, DEFAULT_LIMIT_S).make()
    except SuiteError:  # measuring the case will report it
        return case
    made.close()
    return replace(case, inputs=PythonCode(inputs=made.inputs, inputs_from=made.made_from))


def changed_data(suite: Path, base: Worktree, new: Worktree) -> tuple[str, ...]:
    """Return the files that differ between two revisions and that a case may read while it runs."""
    files = changed(suite, base.commit, new.commit, [""])
    return tuple(file for file in files if Path(file).suffix not in _NO_DATA and Path(file).stem not in _DOCUMENTS)


def changed_modules(suite: Path, base: Worktree, new: Worktree) -> tuple[PythonModules, PythonModules]:
    """Return the Python modules of a repository that two revisions differ in, with their texts at each revision.

    A module counts if Python would import it from the suite's own checkout, because its folder is on ``sys.path``. A
    package counts with all of its Python files, because they import each other. Its compiled parts do not count.
    """
    checkout = Path(git(suite, "rev-parse", "--show-toplevel") or suite).resolve()
    files = [Path(name) for name in changed(suite, base.commit, new.commit, [""]) if name.endswith(SUFFIX)]
    tops = dict.fromkeys(
        (root, file.relative_to(root).parts[0])
        for root in _import_roots(checkout)
        for file in files
        if file.is_relative_to(root)
    )
    return _texts(base.root, tops), _texts(new.root, tops)


def _import_roots(checkout: Path) -> Iterator[Path]:
    """Yield the folders of a checkout that Python imports from, relative to the checkout."""
    for entry in dict.fromkeys(Path(entry).resolve() for entry in sys.path if entry):
        if entry.is_relative_to(checkout):
            yield entry.relative_to(checkout)


def _texts(tree: Path, tops: Iterable[tuple[Path, str]]) -> PythonModules:
    """Return the modules with some top-level names in a checkout: the folder of each, and the name of a file in it."""
    texts: dict[str, str] = {}
    for folder, top in tops:
        path = tree / folder / top
        for file in [path] if top.endswith(SUFFIX) else sorted(path.rglob(f"*{SUFFIX}")):
            name = _module_name(file.relative_to(tree / folder))
            if name.partition(".")[0] != OURS and file.is_file():
                with contextlib.suppress(UnicodeDecodeError):  # Python would need its declared encoding
                    texts[name] = file.read_text(encoding="utf-8")
    return tuple(sorted(texts.items()))


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
