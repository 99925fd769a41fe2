"""All units of a plan, compiled in parallel before any device is touched."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed

from perfsvc.build import process, sources
from perfsvc.build.cache import Cache
from perfsvc.build.toolchain import Binary, Toolchain
from perfsvc.errors import CaseError, CompileError
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
    """Compiles every distinct unit, as many at once as there are cores.

    Args:
        units: what to compile; equal units are compiled once.
        toolchain: the compiler, for one target.
        cache: where binaries are looked up and kept.
        workers: how many at once; by default one a core that this process may use.
        on_done: called in the calling thread with each unit and its outcome, as they come.

    Returns:
        The binary of each unit, or the ``CaseError`` that it failed with: one failure stops no other. In the order of
        ``units``.

    Raises:
        InfrastructureError: no compiler, or a cache that cannot be written. Like ``KeyboardInterrupt`` and whatever
            ``on_done`` raises, it ends the compilers that were started.
    """
    distinct = tuple(dict.fromkeys(units))
    built: dict[Unit, Built] = {}
    texts: dict[bytes, bytes] = {}  # a header that every unit includes is held once
    try:
        with ThreadPoolExecutor(workers or _cores(), thread_name_prefix="build") as pool:
            try:
                futures = {pool.submit(_build, unit, toolchain, cache, texts): unit for unit in distinct}
                for future in as_completed(futures):
                    unit = futures[future]
                    built[unit] = future.result()
                    if on_done:
                        on_done(unit, built[unit])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                process.stop()
                raise
    finally:
        process.allow()
    return {unit: built[unit] for unit in distinct}


def _build(unit: Unit, toolchain: Toolchain, cache: Cache, texts: dict[bytes, bytes]) -> Built:
    start = time.perf_counter()
    try:
        files = sources.local_files(unit)
        key = digest(toolchain.preimage(unit))
        known = cache.get(key)
        code = toolchain.compile(unit) if known is None else known
        _require_same(unit, files)
        if known is None:
            cache.put(key, code)
    except CaseError as error:
        return error
    shared = {name: texts.setdefault(text, text) for name, text in files.items()}
    return Binary(code, digest(code), known is not None, time.perf_counter() - start, shared)


def _require_same(unit: Unit, before: Mapping[str, bytes]) -> None:
    """Key, code and sources were read one after the other: they belong together where nothing changed meanwhile."""
    now = sources.local_files(unit)
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise CompileError(
            f"{unit.source.name}: {', '.join(changed)} changed while it was compiled", cure="run again once it is saved"
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
