"""Compile all units of a plan in parallel, or take their binaries from the cache, before any device is used."""

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue

from perfsvc.build import sources
from perfsvc.build.cache import Cache
from perfsvc.build.toolchain import Binary, Toolchain
from perfsvc.errors import CaseError, CompileError, NoCompilerError
from perfsvc.model import Unit, digest
from perfsvc.process import programs
from perfsvc.temporary import temporary_folder

Built = Binary | CaseError

MOST_LISTS = 8
"""How many lists of files the cache keeps for a unit: what it includes may depend on the contents of its headers."""
_ASKS = b"__has_include"
SIGNALS_S = 0.2
"""Seconds after which the wait for compilers wakes up: a signal just before a wait does not interrupt it."""


def compile_all(
    units: Iterable[Unit],
    toolchain: Toolchain,
    cache: Cache,
    *,
    workers: int | None = None,
    on_done: Callable[[Unit, Built], None] | None = None,
) -> dict[Unit, Built]:
    """Return the binary of every unit: compile the units that the cache does not have, several at once.

    Args:
        units: what to compile; equal units are compiled once.
        toolchain: the compiler, for one target.
        cache: where binaries are looked up and kept.
        workers: how many compilers run at once; by default one for each core that this process may use.
        on_done: called in the calling thread with each unit and its outcome, as soon as the unit is done.

    Returns:
        The binary of each unit, or the ``CaseError`` that it failed with, in the order of ``units``. One failure does
        not stop the others.

    Raises:
        InfrastructureError: there is no compiler, it does not even compile an empty kernel, or the cache cannot be
            written. This error, ``KeyboardInterrupt`` and whatever ``on_done`` raises end all compilers that were
            started.
    """
    distinct = tuple(dict.fromkeys(units))
    built: dict[Unit, Built] = {}
    done: SimpleQueue[Future[Built]] = SimpleQueue()  # not ``futures.wait``, where a signal leaves futures locked
    builder = _Builder(toolchain, cache)
    try:
        with ThreadPoolExecutor(workers or _usable_cores(), thread_name_prefix="build") as pool:
            try:
                futures = {pool.submit(builder.build, unit): unit for unit in distinct}
                for future in futures:
                    future.add_done_callback(done.put)
                while len(built) < len(distinct):
                    try:
                        future = done.get(timeout=SIGNALS_S)
                    except Empty:
                        continue
                    built[futures[future]] = outcome = future.result()
                    if on_done:
                        on_done(futures[future], outcome)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                programs.kill_all()
                raise
    except Exception:
        programs.allow_again()  # not after a signal: then no thread may start another one
        raise
    outcomes = built.values()
    if any(isinstance(outcome, CompileError) for outcome in outcomes) and not any(
        isinstance(outcome, Binary) and not outcome.cached for outcome in outcomes
    ):
        _require_working(toolchain)
    return {unit: built[unit] for unit in distinct}


def _require_working(toolchain: Toolchain) -> None:
    """Raise ``NoCompilerError`` if a compiler with which nothing compiled does not compile an empty kernel either."""
    with temporary_folder() as folder:
        source = folder / "empty.cu"
        source.write_text('extern "C" __global__ void empty() {}\n', encoding="utf-8")
        try:
            toolchain.compile(Unit(source, ("empty",)))
        except CompileError as error:
            message = error.what.removeprefix("empty.cu does not compile:").strip()
            variable = "NVCC_CCBIN" if toolchain.target.startswith("sm_") else "CXX"
            raise NoCompilerError(
                f"{toolchain.version} compiles nothing, not even an empty kernel: {message}",
                cure=f"install a host compiler that works, such as g++ or an older g++, and name it in {variable}",
            ) from error


class _Builder:
    """Builds one unit at a time; may be used from several threads."""

    def __init__(self, toolchain: Toolchain, cache: Cache) -> None:
        self._toolchain = toolchain
        self._cache = cache
        self._texts: dict[bytes, bytes] = {}  # one copy of a header that many units include

    def build(self, unit: Unit) -> Built:
        """Return the unit's binary, from the cache if possible; return the ``CaseError`` if it does not compile."""
        start = time.perf_counter()
        try:
            if sources.is_python(unit):
                text = sources.python_text(unit)
                return Binary(text, digest(text), cached=True, seconds=0.0, sources={unit.source.name: text})
            return self._build(unit, start)
        except CaseError as error:
            return error

    def _build(self, unit: Unit, start: float) -> Binary:
        """Return the binary of a unit that is compiled; raise ``CaseError`` if it does not compile.

        The cache has lists of the files that the compiler read for the unit when it was compiled earlier. A binary is
        stored under the digests of all files of such a list. If a text of the user asks which files there are, the
        compiler has to list them each time.
        """
        preimage = self._toolchain.preimage(unit) + json.dumps(sources.variables()).encode()
        lists = self._lists(preimage)
        for files in lists:
            state = sources.state_of(unit, files)
            code = self._cache.get(_key(preimage, state))
            if code is not None and not any(_ASKS in text for text in sources.texts(unit, files).values()):
                return self._binary(unit, files, state, code, cached=True, start=start)
        files = self._toolchain.dependencies(unit)
        state = sources.state_of(unit, files)
        known = self._cache.get(_key(preimage, state))
        code = self._toolchain.compile(unit) if known is None else known
        if known is None:
            sources.require_same(unit, files, state)
            self._cache.put(_key(preimage, state), code)
        if files not in lists:
            self._cache.put(digest(preimage), json.dumps([files, *lists][:MOST_LISTS]).encode())
        return self._binary(unit, files, state, code, cached=known is not None, start=start)

    def _lists(self, preimage: bytes) -> list[tuple[str, ...]]:
        """Return the lists of files that the cache has for a unit, the newest first."""
        stored = self._cache.get(digest(preimage))
        return [tuple(files) for files in json.loads(stored)] if stored else []

    def _binary(
        self, unit: Unit, files: Sequence[str], state: dict[str, str], code: bytes, *, cached: bool, start: float
    ) -> Binary:
        texts = sources.texts(unit, files)
        shared = {name: self._texts.setdefault(text, text) for name, text in texts.items()}
        with_parts = sources.built_with(unit, {name: state[name] for name in files})
        return Binary(code, digest(code), cached, time.perf_counter() - start, shared, built_with=with_parts)


def _key(preimage: bytes, state: dict[str, str]) -> str:
    return digest(preimage + json.dumps(sorted(state.items())).encode())


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
