"""Read a bench.py by running its text as a module of its own, which is removed afterwards.

No bytecode is written into the author's folder, and ``sys.modules`` holds the module only while its text runs. The text
of an earlier run is read from the store in the same way, so a bench.py is one self-contained file.
"""

import contextlib
import linecache
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from perfsvc import uses
from perfsvc.errors import SuiteError
from perfsvc.model import digest
from perfsvc.suite.authoring import Benchmark, Function
from perfsvc.suite.values import Problem, last_line_in

FILE_NAME = "bench.py"
_MODULE = uses.BENCH
_MODULE_LOCK = threading.RLock()
"""Held while a text runs, because all texts use one module name; reentrant, because a text may read another file."""
NO_MODULES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class BenchFile:
    """A benchmark file that was read, and the names that it defines."""

    path: Path
    text: str
    name: str
    benchmark: Benchmark
    names: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the text, by which a replay record refers to it."""
        return digest(self.text.encode())


def load(path: Path) -> BenchFile:
    """Read the benchmark file at ``path``; raises ``SuiteError`` with the line that is wrong."""
    return load_again(path, _read(path))


def load_again(path: Path, text: str) -> BenchFile:
    """Read the text that a benchmark file had earlier in this run; raises ``SuiteError`` as ``load`` does."""
    return _load(text, path, path.absolute().parent.name)


def load_text(text: str, name: str, modules: Mapping[str, str] = NO_MODULES) -> BenchFile:
    """Read the stored text of a benchmark to replay a case of an earlier run.

    Args:
        text: the stored text.
        name: the name of the benchmark.
        modules: the stored texts of modules that the text imports, by name. Any other module is imported as it is
            today.

    Raises:
        SuiteError: this perfsvc, or its packages, can no longer run the text.
    """
    with _MODULE_LOCK, stored_modules(modules):
        return _load(text, Path(name) / FILE_NAME, name)


def functions(source: Path | str, names: Iterable[str], file: str = FILE_NAME) -> dict[str, Function]:
    """Return a benchmark file's functions by name, for ``call`` steps; they share the state of one run of the file.

    A kernel of a Python package counts as a function, even if it cannot be called without a grid.

    Args:
        source: the path or the text of a benchmark file, or of a Python file that a step names as its source.
        names: the functions' names.
        file: the name of the file, if only its text is given.

    Raises:
        SuiteError: the file cannot be read, or one of the functions is missing from it.
    """
    path = source if isinstance(source, Path) else Path(file)
    text = _read(source) if isinstance(source, Path) else source
    defined = _run(text, path)
    by_name = {name: defined.get(name) for name in names}
    for name, function in by_name.items():
        if not callable(function) and not hasattr(function, "run"):  # Triton's tuner has run, and cannot be called
            raise SuiteError(
                f"no function {name!r}", path=str(path), cure=f"define it at the top level: def {name}(...)"
            )
    return by_name  # type: ignore[return-value] # each was checked


def _read(path: Path) -> str:
    """Return the text of a file; raise ``SuiteError`` if it cannot be read or is not UTF-8."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"cannot be read: {error}", path=str(path), cure="save it as readable UTF-8 text") from error


def _load(text: str, path: Path, name: str) -> BenchFile:
    """Run the text of a benchmark file and return the file with its benchmark.

    Args:
        text: the text.
        path: the path of the file, for messages.
        name: the benchmark's name, unless the text itself gives it one.

    Raises:
        SuiteError: the text fails, or assigns no ``Benchmark`` to ``benchmark``.
    """
    names = _run(text, path)
    benchmark = names.get("benchmark")
    if not isinstance(benchmark, Benchmark):
        problem = "no benchmark" if benchmark is None else f"'benchmark' is a {type(benchmark).__name__}"
        raise SuiteError(problem, path=str(path), cure="assign one: benchmark = Benchmark(...)")
    own_name = benchmark.name if isinstance(benchmark.name, str) else ""  # ``checking`` reports other types
    return BenchFile(path, text, own_name or name, benchmark, names)


def _run(text: str, path: Path) -> dict[str, Any]:
    """Run a text and return the names that it defines; raise ``SuiteError`` if the text fails."""
    filename = str(path)
    module = ModuleType(_MODULE)
    module.__file__ = filename
    # Tracebacks and Python compilers (Triton) read the source lines of a function, and the text may be in no file.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    with _MODULE_LOCK:
        before = sys.modules.get(_MODULE)
        sys.modules[_MODULE] = module  # dataclasses in the file look up their module
        try:
            exec(_compiled(text, filename), module.__dict__)  # noqa: S102 - the user's own program
        except (Exception, SystemExit) as error:
            raise _problem(error, filename).at(path) from error
        finally:
            del sys.modules[_MODULE]
            if before is not None:
                sys.modules[_MODULE] = before
    return module.__dict__


@lru_cache  # a text is run again for the inputs of each case, and once more for its fresh inputs
def _compiled(text: str, filename: str) -> CodeType:
    return compile(text, filename, "exec", dont_inherit=True)


class StoredModules(MetaPathFinder, InspectLoader):
    """Imports modules from their stored texts instead of from files, if it is the first entry of ``sys.meta_path``.

    Args:
        texts: the stored texts, by the full names of the modules.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return the specification of a stored module; None for any other module."""
        if fullname not in self._texts:
            return None
        return ModuleSpec(fullname, self, is_package=self.is_package(fullname))

    def is_package(self, fullname: str) -> bool:
        """Return whether another stored module lies in this one."""
        return any(name.startswith(f"{fullname}.") for name in self._texts)

    def get_source(self, fullname: str) -> str:
        """Return the text of a module."""
        return self._texts[fullname]

    def exec_module(self, module: ModuleType) -> None:
        """Run the text of a module."""
        text, filename = self._texts[module.__name__], f"{module.__name__} (stored).py"
        module.__file__ = filename
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the user's own program


@contextlib.contextmanager
def stored_modules(texts: Mapping[str, str]) -> Iterator[None]:
    """Import modules from their stored texts during the block; restore today's modules of these names after it."""
    if not texts:
        yield
        return
    finder = StoredModules(texts)
    todays = {name: sys.modules.pop(name) for name in texts if name in sys.modules}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in texts:
            sys.modules.pop(name, None)
        sys.modules.update(todays)


def _problem(error: BaseException, filename: str) -> Problem:
    """Return the problem to report for an exception that running a benchmark file raised."""
    line = last_line_in(filename, error)
    match error:
        case SyntaxError() if error.filename == filename or not line:
            return Problem(f"syntax error: {error.msg}", error.lineno or 0, "correct the line")
        case ModuleNotFoundError():
            return Problem(
                f"no module {error.name!r}",
                line,
                f"install {error.name!r}, or import it inside the function that needs it; "
                "a bench.py is one file and imports none of its neighbours",
            )
    return Problem(f"reading it raised {type(error).__name__}: {error}", line, "correct the line")
