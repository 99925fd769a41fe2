"""The inputs of points, made once each at most: resolving a suite needs their shapes, measuring it their elements."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from perfsvc.suite.arrays import Arrays, make_inputs, seed_of, shapes
from perfsvc.suite.benchfile import BenchFile
from perfsvc.suite.case import CaseSpec, name_of_arrays
from perfsvc.suite.known_shapes import KnownShapes, Shapes
from perfsvc.suite.points import Point, smoke_point
from perfsvc.suite.problem import Problem


class Inputs:
    """Makes the inputs of points, several at once, and keeps them until they are taken.

    Args:
        keep_bytes: how much is kept; what does not fit is made again by whoever needs it.
        threads: how many points are at work at once.
        known: the shapes that earlier runs found: what is known there is not made before it is to be measured.
    """

    def __init__(self, keep_bytes: int = 0, threads: int = 1, known: KnownShapes | None = None) -> None:
        self._room = keep_bytes
        self._threads = threads
        self._known = known
        self._lock = threading.Lock()
        self._shapes: dict[str, Shapes] = {}
        self._kept: dict[str, Arrays] = {}

    def shapes(self, points: Iterable[tuple[BenchFile, Point]]) -> dict[tuple[BenchFile, Point], Shapes]:
        """The inputs of points without their elements; each point is made only once, however often it is asked for."""
        found = {at: self._known_at(*at) for at in dict.fromkeys(points)}
        unknown = [at for at, known in found.items() if known is None]
        with ThreadPoolExecutor(self._threads, thread_name_prefix="perfsvc-inputs") as threads:
            made = dict(zip(unknown, threads.map(lambda at: self._made_at(*at), unknown), strict=True))
        return {at: made[at] if known is None else known for at, known in found.items()}

    def take(self, spec: CaseSpec) -> Arrays | None:
        """The inputs of a case, which are then kept no more; None where they are not kept."""
        with self._lock:
            made = self._kept.pop(spec.inputs, None)
            self._room += _bytes(made or {})
        return made

    def mistook(self, spec: CaseSpec) -> None:
        """The inputs of a case turned out to be others than their shapes said: the next run shall not believe them."""
        if self._known:
            self._known.forget(spec.inputs)

    def _known_at(self, file: BenchFile, point: Point) -> Shapes | None:
        name = name_of_arrays(file.text, seed_of(file.name, file.benchmark.version, point))
        if name not in self._shapes and self._known and (known := self._known.get(name)) is not None:
            self._shapes[name] = known
        return self._shapes.get(name)

    def _made_at(self, file: BenchFile, point: Point) -> Shapes:
        seed = seed_of(file.name, file.benchmark.version, point)
        try:
            made = make_inputs(file.benchmark, point, seed)
        except Problem:
            # make_arrays meets the same problem before a case of this point is measured, and fails that case alone.
            smoke = smoke_point(file.benchmark)
            return shapes(make_inputs(file.benchmark, smoke, seed_of(file.name, file.benchmark.version, smoke)))
        name = name_of_arrays(file.text, seed)
        self._keep(name, made)
        self._shapes[name] = shapes(made)
        if self._known:
            self._known.put(name, self._shapes[name])
        return self._shapes[name]

    def _keep(self, name: str, made: Arrays) -> None:
        with self._lock:
            if _bytes(made) <= self._room:
                self._kept[name] = made
                self._room -= _bytes(made)


def _bytes(made: Arrays) -> int:
    return sum(array.nbytes for array in made.values())
