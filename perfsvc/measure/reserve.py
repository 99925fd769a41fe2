"""Workers started before it is known what they will measure: what they import takes as long as preparing a run."""

from types import TracebackType
from typing import Self

from perfsvc.measure.process import Process


class Reserve:
    """Workers that nobody uses yet. A context manager, which ends those that are left."""

    def __init__(self) -> None:
        self._waiting: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._waiting:
            process.dismiss(kill=True)
        while self._waiting:
            self._waiting.pop().end()

    def fill(self, count: int) -> None:
        """Has so many workers waiting, without waiting for them to be ready."""
        self._waiting += [Process() for _ in range(count - len(self._waiting))]

    def take(self) -> Process:
        """One that is waiting, else one that starts only now; it is the caller's to end."""
        while self._waiting:
            process = self._waiting.pop(0)
            if process.alive:
                return process
            process.end()  # it died before its turn came, which costs no case
        return Process()
