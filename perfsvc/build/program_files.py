"""Build the programs of a suite with their authors' commands, and read their files."""

import os
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from perfsvc.build.compile import Built
from perfsvc.build.toolchain import Binary, last_lines
from perfsvc.errors import CaseError, CompileError
from perfsvc.model import ProgramFile, digest
from perfsvc.process import programs

MOST_PROGRAM_BYTES = 1 << 28
"""The largest size of all files of a program together: the database stores them whenever they change."""


def read_programs(
    files: Collection[ProgramFile],
    *,
    builds_at_once: int = 1,
    on_done: Callable[[ProgramFile, Built], object] = lambda *_: None,
) -> dict[ProgramFile, Built]:
    """Run each build command once, then read each file.

    Args:
        files: the files of programs.
        builds_at_once: how many commands may run at once. Two commands in the same source tree may disturb each other.
        on_done: called in the calling thread with each file and its outcome.

    Returns:
        Each file as a ``Binary``, or the ``CompileError`` that says why it is missing.
    """
    commands = dict.fromkeys((file.folder, file.build) for file in files if file.build)
    outcomes: dict[ProgramFile, Built] = {}
    try:
        with ThreadPoolExecutor(builds_at_once, thread_name_prefix="build") as pool:
            try:
                builds = {command: pool.submit(_build, *command) for command in commands}
                for file in files:
                    started = time.perf_counter()
                    failure = builds[file.folder, file.build].result() if file.build else None
                    outcomes[file] = failure or _read(file, started)
                    on_done(file, outcomes[file])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                programs.kill_all()
                raise
    except Exception:
        programs.allow_again()  # not after a signal: then no thread may start another one
        raise
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
