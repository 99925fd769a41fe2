"""What the author's Python code uses while it runs: files that it reads, shared objects, variables of the environment.

A use belongs to the author's module whose code is nearest on the stack. A module of the author runs only once in a
process, and what it then uses counts for every later case that needs the module. Only the author's own files count:
not those of Python, of installed packages, of the system, of caches and of perfsvc.
"""

import _imp
import _io
import builtins
import contextlib
import ctypes
import importlib
import inspect
import io
import os
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib.util import source_from_cache
from pathlib import Path
from types import FrameType
from typing import Any

from perfsvc.files import checkout_of, file_digest
from perfsvc.model import Parts

BENCH = "perfsvc_bench"
"""The name of the module in which every benchmark file runs."""

_OURS = f"{Path(__file__).parent}/"
_LIBRARIES = tuple(f"{path}/" for path in {*sysconfig.get_paths().values(), *site.getsitepackages(), sys.base_prefix})
_SYSTEM = ("/bin/", "/boot/", "/dev/", "/etc/", "/lib", "/proc/", "/run/", "/sbin/", "/sys/", "/usr/", "/var/")


@dataclass(slots=True)
class Uses:
    """What a module used: other modules, absolute paths of files and shared objects, and variables."""

    modules: dict[str, None] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)
    variables: dict[str, None] = field(default_factory=dict)

    def parts(self) -> Parts:
        """Return the files with their digests and the variables that are set with their values, by name."""
        files = {label(path): file_digest(Path(path)) for path in self.files}
        variables = {name: value for name in self.variables if (value := os.environ.get(name)) is not None}
        return tuple(sorted({**files, **variables}.items()))


_of_module: defaultdict[str, Uses] = defaultdict(Uses)
_written: set[str] = set()
_loaded_with: dict[str, frozenset[str]] = {}


@contextlib.contextmanager
def watched(*, fresh: bool = True) -> Iterator[None]:
    """Note what the author's code uses in the block, which must not contain code that is timed.

    With ``fresh``, first forget what benchmark files have used: another case begins.
    """
    if fresh:
        _of_module.pop(BENCH, None)
    environment = type(os.environ)
    with contextlib.ExitStack() as stack:
        for owner, name, watch in _WATCHES:
            original = getattr(owner, name)
            stack.callback(setattr, owner, name, original)
            setattr(owner, name, watch(original))
        stack.callback(setattr, os.environ, "__class__", environment)
        os.environ.__class__ = _Environment
        yield


def used(modules: Iterable[str] | None = None) -> Uses:
    """Return what a benchmark file has used, and what modules have used at any time; None stands for all modules."""
    found = Uses()
    for name in (*_of_module,) if modules is None else (BENCH, *modules):
        if name in _of_module:
            found.modules |= _of_module[name].modules
            found.files |= _of_module[name].files
            found.variables |= _of_module[name].variables
    return found


def label(path: str) -> str:
    """Return the name of a file for people, equal in every checkout: relative to the checkout's top folder."""
    root = checkout_of(Path(path).parent)
    return os.path.relpath(path, root) if root else path


# --- whose code it is ------------------------------------------------------------------------------------------------


def _author() -> str:
    """Return the name of the author's module that is nearest on the stack; empty if there is none."""
    frame = inspect.currentframe()
    while frame is not None:
        if _is_authors(frame.f_code.co_filename):
            return str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return ""


@cache
def _is_authors(file: str) -> bool:
    """Return whether a file of code is neither Python's, nor an installed package's, nor ours."""
    return not (file.startswith(("<frozen", "<string", _OURS, *_LIBRARIES)) or "-packages/" in file)


@cache
def is_own(path: str) -> bool:
    """Return whether a file that is read counts."""
    root = checkout_of(Path(path).parent)
    inside = Path(path).relative_to(root) if root else Path(path)
    if "-packages/" in path or path.startswith(_OURS) or any(part.startswith(".") for part in inside.parts):
        return False
    return root is not None or not path.startswith((*_SYSTEM, *_LIBRARIES, f"{tempfile.gettempdir()}/"))


# --- modules ---------------------------------------------------------------------------------------------------------


def _importing(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def imported(name: str, *args: Any, **keywords: Any) -> Any:
        """Import as ``builtins.__import__`` or ``importlib.import_module``, which take other arguments."""
        module = original(name, *args, **keywords)
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        if caller and _is_authors(caller.f_code.co_filename):
            found = str(getattr(module, "__name__", name))  # any object may stand for a module
            listed = args[2] if len(args) > 2 else keywords.get("fromlist")  # noqa: PLR2004
            names = [found, *(f"{found}.{part}" for part in listed or ()), *([] if name.startswith(".") else [name])]
            _of_module[str(caller.f_globals.get("__name__", ""))].modules |= dict.fromkeys(names)
        return module

    return imported


# --- files -----------------------------------------------------------------------------------------------------------


def _opening(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def opened(file: Any, *args: Any, **keywords: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike):
            _note_file(os.path.abspath(os.fsdecode(file)), args[0] if args else keywords.get("mode", "r"))  # noqa: PTH100
        return original(file, *args, **keywords)

    return opened


def _note_file(path: str, mode: Any) -> None:
    """Note that a file is opened; ``mode`` is that of ``open``, or the flags of ``os.open``."""
    writes = mode & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if isinstance(mode, int) else set(str(mode)) & set("wax")
    if writes:
        _written.add(path)
        return
    if path.endswith(".pyc"):
        with contextlib.suppress(ValueError):
            path = source_from_cache(path)
    if path not in _written and is_own(path) and (author := _author()):
        _of_module[author].files[path] = None


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def started(process: Any, args: Any, *more: Any, **keywords: Any) -> Any:
        """Start a process; the files among its arguments are probably read by it."""
        words = args.split() if isinstance(args, str) else args
        for word in words if isinstance(words, list | tuple) else [words]:
            with contextlib.suppress(TypeError, ValueError, OSError):  # the call itself reports wrong arguments
                path = Path(os.fsdecode(keywords.get("cwd") or "."), os.fsdecode(word))
                if path.is_file():
                    _note_file(os.path.abspath(path), "r")  # noqa: PTH100 - links stay as they are
        return original(process, args, *more, **keywords)

    return started


# --- shared objects --------------------------------------------------------------------------------------------------


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def loaded(name: Any, *args: Any, **keywords: Any) -> Any:
        text = os.fsdecode(name) if name else "/usr/"
        if "/" in text and not is_own(os.path.realpath(text)):
            return original(name, *args, **keywords)
        before = _mapped()
        handle = original(name, *args, **keywords)
        if author := _author():
            real = Path(os.path.realpath(text) if "/" in text else text).name
            _note_library(author, before, [path for path in _mapped() if Path(path).name == real])
        return handle

    return loaded


def _loading_extension(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def created(spec: Any, *args: Any) -> Any:
        path = os.path.realpath(spec.origin or "/usr/")
        if not is_own(path):
            return original(spec, *args)
        before = _mapped()
        module = original(spec, *args)
        if author := _author():
            _note_library(author, before, [path])
        return module

    return created


def _note_library(author: str, before: frozenset[str], own: Iterable[str]) -> None:
    """Note a library that a module has loaded, with those that came with it when it was loaded first."""
    for path in own:
        if new := _mapped() - before:
            _loaded_with[path] = new
        for used_path in {path, *_loaded_with.get(path, ())}:
            if is_own(used_path):
                _of_module[author].files[used_path] = None


def other_libraries() -> list[str]:
    """Return the author's shared objects in this process that no module of the author is known to have loaded."""
    known = {path for uses in _of_module.values() for path in uses.files}
    return sorted(path for path in _mapped() if path not in known and is_own(path))


def _mapped() -> frozenset[str]:
    """Return the paths of the shared objects in this process; none where the system does not list them."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line[line.index("/") :] for line in lines if "/" in line and ".so" in line)


_WATCHES = (
    (builtins, "__import__", _importing),
    (importlib, "import_module", _importing),
    (builtins, "open", _opening),
    (io, "open", _opening),
    (_io, "open_code", _opening),
    (os, "open", _opening),
    (_imp, "create_dynamic", _loading_extension),
    (ctypes, "_dlopen", _loading),
    (subprocess.Popen, "__init__", _starting),
)

# --- variables -------------------------------------------------------------------------------------------------------


_whole: tuple[int, int] | None = None
"""The frame, and the instruction in it, that reads all variables."""


def _reader() -> FrameType | None:
    """Return the frame that uses ``os.environ``, its copy or ``os.getenv``."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") in {"os", "collections.abc", __name__}:
        frame = frame.f_back
    return frame


def _place(frame: FrameType | None) -> tuple[int, int] | None:
    return (id(frame), frame.f_lasti) if frame else None


def _note_variable(name: Any) -> None:
    """Note a variable that the author's code reads by its name: of code that reads all, most matter to nothing."""
    frame = _reader()
    if frame and isinstance(name, str) and _place(frame) != _whole and _is_authors(frame.f_code.co_filename):
        _of_module[str(frame.f_globals.get("__name__", ""))].variables[name] = None


class _Environment(type(os.environ)):  # type: ignore[misc]
    """``os.environ``, which notes the variables that the author's code reads."""

    def __getitem__(self, key: Any) -> Any:
        _note_variable(key)
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        global _whole  # noqa: PLW0603
        _whole = _place(_reader())
        return iter(super().__iter__())

    def copy(self) -> dict[Any, Any]:
        return _Copy(super().copy())


class _Copy(dict[Any, Any]):
    """A copy of ``os.environ``, which notes the same."""

    def __getitem__(self, key: Any) -> Any:
        _note_variable(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        _note_variable(key)
        return super().get(key, default)
