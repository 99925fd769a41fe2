"""Reading a bench.py: its text runs in a module of its own, and nothing is left behind.

No bytecode is written into the author's folder, and the module is known to the interpreter only while its text runs.
The same way reads the text of an earlier night from the store, so a bench.py is one self-contained file.
"""

import linecache
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from perfsvc.errors import SuiteError
from perfsvc.model import digest
from perfsvc.suite.authoring import Benchmark, Function
from perfsvc.suite.functions import last_line_in
from perfsvc.suite.problem import Problem

FILE_NAME = "bench.py"
_MODULE = "perfsvc_bench"
_ONE_AT_A_TIME = threading.RLock()
"""Held while a text runs, for all have the same module name; a text that reads another one holds it twice."""


@dataclass(frozen=True, slots=True, eq=False)
class BenchFile:
    """A benchmark file that has been read, and the names that it defines."""

    path: Path
    text: str
    name: str
    benchmark: Benchmark
    names: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the text, by which a replay record knows it."""
        return digest(self.text.encode())


def load(path: Path) -> BenchFile:
    """Reads the benchmark file at ``path``; raises ``SuiteError`` with the line that is wrong."""
    return _load(_read(path), path, path.absolute().parent.name)


def load_again(path: Path, text: str) -> BenchFile:
    """Reads what a benchmark file said earlier in this run; raises ``SuiteError`` as ``load`` does."""
    return _load(text, path, path.absolute().parent.name)


def load_text(text: str, name: str) -> BenchFile:
    """Reads the stored text of the benchmark ``name``, to replay a case of an earlier night.

    Raises:
        SuiteError: this perfsvc or its packages cannot run that text any more.
    """
    return _load(text, Path(name) / FILE_NAME, name)


def functions(source: Path | str, names: Iterable[str]) -> dict[str, Function]:
    """The functions that ``call`` steps name; all are of one reading, so that they share what the file keeps.

    Args:
        source: the benchmark file's path, or its text.
        names: the functions' names.

    Raises:
        SuiteError: the file cannot be read, or does not define one of them.
    """
    path = source if isinstance(source, Path) else Path(FILE_NAME)
    text = _read(source) if isinstance(source, Path) else source
    try:
        there = _run(text, str(path))
    except Problem as problem:
        raise problem.at(path) from problem
    found = {name: there.get(name) for name in names}
    for name, function in found.items():
        if not callable(function):
            raise SuiteError(
                f"no function {name!r}", path=str(path), cure=f"define it at the top level: def {name}(...)"
            )
    return found  # type: ignore[return-value] # each was asked


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"cannot be read: {error}", path=str(path), cure="save it as readable UTF-8 text") from error


def _load(text: str, path: Path, name: str) -> BenchFile:
    try:
        names = _run(text, str(path))
    except Problem as problem:
        raise problem.at(path) from problem
    benchmark = names.get("benchmark")
    if not isinstance(benchmark, Benchmark):
        what = "no benchmark" if benchmark is None else f"'benchmark' is a {type(benchmark).__name__}"
        raise SuiteError(what, path=str(path), cure="assign one: benchmark = Benchmark(...)")
    return BenchFile(path, text, _own_name(benchmark) or name, benchmark, names)


def _own_name(benchmark: Benchmark) -> str:
    return benchmark.name if isinstance(benchmark.name, str) else ""  # anything else is reported with all other fields


def _run(text: str, filename: str) -> dict[str, Any]:
    module = ModuleType(_MODULE)
    module.__file__ = filename
    # Tracebacks and compilers of Python (Triton) look for the lines of a function, and the text need not be in a file.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    with _ONE_AT_A_TIME:
        before = sys.modules.get(_MODULE)
        sys.modules[_MODULE] = module  # dataclasses in the file look their module up
        try:
            exec(_compiled(text, filename), module.__dict__)  # noqa: S102 - the user's own program
        except (Exception, SystemExit) as error:
            raise _problem(error, filename) from error
        finally:
            del sys.modules[_MODULE]
            if before is not None:
                sys.modules[_MODULE] = before
    return module.__dict__


@lru_cache  # what was read for its cases is read again for their inputs, and once more for the fresh ones
def _compiled(text: str, filename: str) -> CodeType:
    return compile(text, filename, "exec", dont_inherit=True)


def _problem(error: BaseException, filename: str) -> Problem:
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
