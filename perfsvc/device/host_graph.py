"""The graph of a device without streams: a replay runs the steps one after the other."""

from collections.abc import Callable, Sequence

from perfsvc.device.protocol import GraphStep


class HostGraph:
    """A ``Graph`` that runs its steps on the host.

    Args:
        steps: the steps.
        timed: runs a function and returns its seconds; None if the steps are not timed by themselves.
        evict: empties the cache; called before each step.
    """

    def __init__(
        self,
        steps: Sequence[GraphStep],
        timed: Callable[[Callable[[], object]], float] | None,
        evict: Callable[[], object],
    ) -> None:
        self._steps = steps
        self._timed = timed
        self._evict = evict
        self._seconds = 0.0

    def launch(self) -> None:
        """Run the steps to their end."""
        self._seconds = 0.0
        for _, run in self._steps:
            self._evict()
            if self._timed:
                self._seconds += self._timed(run)
            else:
                run()

    def seconds(self) -> float:
        """Return the sum of the steps' times in the last replay."""
        return self._seconds

    def close(self) -> None:
        """Forget the steps."""
        self._steps = ()
