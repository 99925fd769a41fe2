"""Build the programs of a suite with their authors' commands, and read their files."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from perfsvc.build.compile import Built
from perfsvc.build.toolchain import Binary, last_lines
from perfsvc.errors import CaseError, CompileError
from perfsvc.model import ProgramFile, digest
from perfsvc.process import programs

MOST_PROGRAM_BYTES = 1 << 28
"""How much the files of a program may have together. They are stored in the database whenever they change."""


def read_programs(
    files: Iterable[ProgramFile], *, on_done: Callable[[ProgramFile, Built], object] = lambda *_: None
) -> dict[ProgramFile, Built]:
    """Run each build command once, one after the other, then read each file.

    Args:
        files: the files of programs.
        on_done: called with each file and its outcome.

    Returns:
        Each file as a ``Binary``, or the ``CompileError`` that says why it is missing.
    """
    built: dict[tuple[Path, str], CaseError | None] = {}
    outcomes: dict[ProgramFile, Built] = {}
    for file in files:
        started = time.perf_counter()
        command = file.folder, file.build
        if file.build and command not in built:
            built[command] = _build(*command)
        outcomes[file] = built.get(command) or _read(file, started)
        on_done(file, outcomes[file])
    return outcomes


def _build(folder: Path, command: str) -> CaseError | None:
    """Run a build command in a folder; return why it failed, or None."""
    try:
        ended = programs.run(["/bin/sh", "-c", command], folder=folder)
    except OSError as error:
        return CompileError(f"{command!r} could not be started: {error.strerror}", cure="correct build= in bench.py")
    if ended.timed_out:
        return CompileError(
            f"{command!r} was still running after {programs.LIMIT_S:g} s and was killed",
            cure=f"run it once in {folder}, so that perfsvc builds only what has changed",
        )
    if ended.code:
        said = last_lines(ended.output)
        return CompileError(
            f"{command!r} failed ({programs.describe_exit(ended.code)}){':' if said else ''}\n{said}".strip(),
            cure=f"run it in {folder}",
        )
    return None


def _read(file: ProgramFile, started: float) -> Built:
    """Return the content of a file as a binary, or why it cannot be used."""
    what = f"the program {file.path}" if file.executable else f"the file {file.path} of a program"
    made = f"see why {file.build!r} does not make it" if file.build else 'build it first, or give build="make ..."'
    try:
        size = file.path.stat().st_size
        if not file.path.is_file():
            return CompileError(f"{what} is not a regular file", cure="name the file itself")
        if size > MOST_PROGRAM_BYTES:
            return CompileError(
                f"{what} has {size >> 20} MiB, and at most {MOST_PROGRAM_BYTES >> 20} MiB are stored",
                cure="strip it, or link it to shared libraries that are installed",
            )
        code = file.path.read_bytes()
    except FileNotFoundError:
        return CompileError(f"{what} does not exist", cure=made)
    except OSError as error:
        return CompileError(f"{what} cannot be read: {error.strerror}", cure="correct its permissions")
    if file.executable and not os.access(file.path, os.X_OK):
        return CompileError(f"{what} is not executable", cure=f"chmod +x {file.path}")
    return Binary(code, digest(code), cached=False, seconds=time.perf_counter() - started)
