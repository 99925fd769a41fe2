"""The CUDA graph of a case: its steps, captured at the present addresses of its buffers, and replayed."""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence

from perfsvc.device.protocol import Device, Graph, GraphStep
from perfsvc.model import Call, GraphTiming, Launch, Memset, Step

RunnableStep = tuple[Step, Callable[[], object]]
"""A step of a case, and a function that queues its work."""


class CaseGraph:
    """The graph of one case. A move of the buffers makes the graph useless: its nodes have the old addresses.

    Args:
        device: captures the steps.
        timing: what a sample is; empty for a case without a graph, which captures nothing.

    Attributes:
        captured: whether there is a graph of the steps at their present addresses.
    """

    def __init__(self, device: Device, timing: GraphTiming) -> None:
        self._device = device
        self._timing = timing
        self._graph: Graph | None = None

    @property
    def captured(self) -> bool:
        """Whether there is a graph of the steps at the present addresses."""
        return self._graph is not None

    def capture(self, steps: Sequence[RunnableStep], evict_bytes: int) -> None:
        """Capture the steps, and replay them once, because the first replay of a graph is slower; wait for its end.

        Args:
            steps: the steps; each has run before.
            evict_bytes: bytes written before each sample; with ``cold steps``, before each step.

        Raises:
            LaunchError: a step cannot be captured, or the replay failed.
        """
        self.drop()
        if not self._timing:
            return
        apart = self._timing == "cold steps"
        with _without_collections():
            self._graph = self._device.capture(_named(steps), apart=apart, evict_bytes=evict_bytes if apart else 0)
        self._graph.launch()
        self._device.synchronize()

    @contextlib.contextmanager
    def other(self, steps: Sequence[RunnableStep], *, apart: bool = False) -> Iterator[Graph]:
        """Capture the steps in another graph than that of the samples, and free it after the block.

        Args:
            steps: the steps; each has run before.
            apart: let each replay time each step by itself.
        """
        with _without_collections():
            graph = self._device.capture(_named(steps), apart=apart)
        with contextlib.closing(graph):
            yield graph

    @property
    def seconds(self) -> Callable[[], float] | None:
        """A function that returns the time of the last sample; None if the device times the samples."""
        return self._own_seconds if self._timing == "cold steps" else None

    def _own_seconds(self) -> float:
        return self._present.seconds()

    def launch(self) -> None:
        """Queue a replay."""
        self._present.launch()

    @property
    def _present(self) -> Graph:
        assert self._graph is not None  # noqa: S101 - callers look at ``captured``
        return self._graph

    def drop(self) -> None:
        """Free the graph, if there is one."""
        if self._graph:
            self._graph.close()
            self._graph = None


def _named(steps: Sequence[RunnableStep]) -> list[GraphStep]:
    """Return the steps with what messages call them: ``step 2, the launch of 'scale',``."""
    return [(f"step {number}, {_described(step)},", run) for number, (step, run) in enumerate(steps, 1)]


def _described(step: Step) -> str:
    match step:
        case Launch():
            return f"the launch of {step.entry!r}"
        case Memset():
            return f"the memset of {step.buffer!r}"
        case Call():
            return f"the call of {step.function!r}"
        case _:
            return step.step


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Prevent garbage collections: they could free memory of the device, which a capture forbids."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
