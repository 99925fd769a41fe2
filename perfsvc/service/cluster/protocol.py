"""What a cluster provides: GPUs, each with its agent."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from perfsvc.errors import NoDeviceError
from perfsvc.service.cluster.messages import Blobs, Packet


class LostError(NoDeviceError):
    """The agent of a GPU does not answer any more: its host, or the job that the cluster lent the GPU to, has ended."""


class LentGpu(Protocol):
    """A GPU that the cluster lends to this run, and its agent. Each method raises ``LostError`` if the agent is lost.

    Attributes:
        place: where the GPU is, for messages: a node or a job.
    """

    place: str

    def facts(self) -> bytes | None:
        """Return the ``Facts`` of the agent; None while the cluster has not lent the GPU yet."""

    def parts(self, device: bytes, benches: Mapping[str, str]) -> bytes:
        """Return the ``Parts`` of the environment; see ``Agent.parts``."""

    def begin(self, share: bytes, blobs: Blobs) -> None:
        """Begin to measure a share; see ``Agent.begin``. ``blobs`` has all binaries of the share."""

    def take(self) -> list[Packet]:
        """Return the news that have arrived, without waiting."""

    def drop(self, positions: Collection[int]) -> None:
        """Measure no further pair of these tasks."""

    def stop(self) -> None:
        """Begin no further case."""

    def end(self, *, kill: bool = False) -> None:
        """Give the GPU back; never raises. With ``kill``, the agent may still be measuring, and is killed."""


class Cluster(Protocol):
    """Lends GPUs.

    Attributes:
        name: the address of the cluster, for messages.
        patience_s: seconds to wait for the GPUs that are requested.
    """

    name: str
    patience_s: float

    def lend(self, specs: Sequence[str]) -> Sequence[LentGpu]:
        """Request GPUs, at most one for each GPU of the cluster, and return them; they may not be lent yet.

        Args:
            specs: the options ``--device``. If they name fake devices, each GPU stands for one of them.

        Raises:
            NoDeviceError: the cluster has no GPU.
        """

    def wait(self, gpus: Sequence[LentGpu], limit_s: float) -> None:
        """Wait until an agent has news or is lost, at most ``limit_s`` seconds."""

    def close(self) -> None:
        """Give back everything that is still lent, and disconnect; never raises."""
