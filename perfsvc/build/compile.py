"""All units of a plan, from the cache or compiled in parallel, before any device is touched."""

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from perfsvc.build import process, sources
from perfsvc.build.cache import Cache
from perfsvc.build.toolchain import Binary, Toolchain
from perfsvc.errors import CaseError
from perfsvc.model import Unit, digest

Built = Binary | CaseError


def compile_all(
    units: Iterable[Unit],
    toolchain: Toolchain,
    cache: Cache,
    *,
    workers: int | None = None,
    on_done: Callable[[Unit, Built], None] | None = None,
) -> dict[Unit, Built]:
    """Compiles every distinct unit that the cache does not have, as many at once as there are cores.

    Args:
        units: what to compile; equal units are compiled once.
        toolchain: the compiler, for one target.
        cache: where binaries are looked up and kept.
        workers: how many at once; by default one a core that this process may use.
        on_done: called in the calling thread with each unit and its outcome, as they come: first, of a toolchain that
            knows without running the compiler, what the cache has.

    Returns:
        The binary of each unit, or the ``CaseError`` that it failed with: one failure stops no other. In the order of
        ``units``.

    Raises:
        InfrastructureError: no compiler, or a cache that cannot be written. Like ``KeyboardInterrupt`` and whatever
            ``on_done`` raises, it ends the compilers that were started.
    """
    distinct = tuple(dict.fromkeys(units))
    built: dict[Unit, Built] = {}

    def done(unit: Unit, outcome: Built) -> None:
        built[unit] = outcome
        if on_done:
            on_done(unit, outcome)

    builder = _Builder(toolchain, cache)
    if not toolchain.preprocesses:
        for unit, binary in builder.known(distinct):
            done(unit, binary)
    _build([unit for unit in distinct if unit not in built], builder, workers or _cores(), done)
    return {unit: built[unit] for unit in distinct}


def _build(units: Sequence[Unit], builder: "_Builder", workers: int, done: Callable[[Unit, Built], None]) -> None:
    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="build") as pool:
            try:
                futures = {pool.submit(builder.build, unit): unit for unit in units}
                for future in as_completed(futures):
                    done(futures[future], future.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                process.stop()
                raise
    finally:
        process.allow()


class _Builder:
    """Makes units into binaries, each by itself and from any thread."""

    def __init__(self, toolchain: Toolchain, cache: Cache) -> None:
        self._toolchain = toolchain
        self._cache = cache
        self._texts: dict[bytes, bytes] = {}  # a header that every unit includes is held once

    def known(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, Binary]]:
        """What the cache has of units: nothing, too, of one whose files cannot be read, which ``build`` tells."""
        read = functools.cache(lambda source, options: sources.local_files(Unit(source, (), options=options)))
        for unit in units:
            start = time.perf_counter()
            try:
                files = read(unit.source, unit.options)
                code = self._cache.get(self._key(unit, files))
            except CaseError:
                continue
            if code is not None:
                yield unit, self._binary(code, files, start, cached=True)

    def build(self, unit: Unit) -> Built:
        """What the cache has of a unit, or else what the compiler makes of it."""
        start = time.perf_counter()
        try:
            files = sources.local_files(unit)
            key = self._key(unit, files)
            known = self._cache.get(key)
            code = self._compiled(unit, files, key) if known is None else known
        except CaseError as error:
            return error
        return self._binary(code, files, start, cached=known is not None)

    def _key(self, unit: Unit, files: Mapping[str, bytes]) -> str:
        return digest(self._toolchain.preimage(unit, files))

    def _compiled(self, unit: Unit, files: Mapping[str, bytes], key: str) -> bytes:
        code = self._toolchain.compile(unit)
        sources.require_same(unit, files)  # the compiler has read them anew
        self._cache.put(key, code)
        return code

    def _binary(self, code: bytes, files: Mapping[str, bytes], start: float, *, cached: bool) -> Binary:
        shared = {name: self._texts.setdefault(text, text) for name, text in files.items()}
        return Binary(code, digest(code), cached, time.perf_counter() - start, shared)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
