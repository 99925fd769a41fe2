"""What a cluster provides: GPUs, each with its agent."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from perfsvc.errors import NoDeviceError
from perfsvc.service.cluster.messages import Blobs, Packet

SILENT_AGENT_S = 300.0
"""Seconds without a sign of life of an agent, after which its GPU is lost. Its cases then move, and what it may send
later is not read."""


class LostError(NoDeviceError):
    """The agent of a GPU does not answer any more: its host, or the job that the cluster lent the GPU to, has ended."""


class ClusterGpu(Protocol):
    """A GPU of a cluster that this run has requested, and its agent.

    The methods raise ``LostError`` if the agent is lost. A lost agent stays lost.
    """

    @property
    def place(self) -> str:
        """Where the GPU is, for messages: a node or a job. A job that has not started also names what it waits for."""

    @property
    def is_starting(self) -> bool:
        """Whether the cluster is known to have lent the GPU, though its agent has not sent its facts yet."""

    def facts(self) -> bytes | None:
        """Return the ``Facts`` of the agent; None while the agent has not started."""

    def parts(self, device: bytes, benches: Mapping[str, str]) -> bytes:
        """Return the ``Parts`` of the environment; see ``Agent.parts``."""

    def begin(self, share: bytes, blobs: Blobs) -> None:
        """Begin to measure a share; see ``Agent.begin``. ``blobs`` has all binaries of the share."""

    def take(self) -> list[Packet]:
        """Return the news that have arrived, without waiting."""

    def drop(self, positions: Collection[int]) -> None:
        """Measure no further replica of these tasks."""

    def stop(self) -> None:
        """Begin no further case."""

    def end(self) -> None:
        """Kill the agent and give the GPU back; never raises."""


class Cluster(Protocol):
    """Gives GPUs to this run for some time.

    Attributes:
        name: what messages call the cluster: its address, or ``the Slurm cluster``.
        patience_s: seconds to wait for the GPUs that are requested; may be infinite.
        priority_cure: what the user can do about agents with a low priority.
    """

    name: str
    patience_s: float
    priority_cure: str

    def request(self, specs: Sequence[str]) -> Sequence[ClusterGpu]:
        """Request GPUs, at most one for each GPU of the cluster, and return them; they may not be lent yet.

        Args:
            specs: the options ``--device``. If they name fake devices, each GPU stands for one of them.

        Raises:
            NoDeviceError: the cluster has no GPU.
            InfrastructureError: the cluster refuses the request.
        """

    def wait(self, gpus: Sequence[ClusterGpu], limit_s: float) -> None:
        """Wait until an agent has news or is lost, at most ``limit_s`` seconds."""

    def close(self) -> None:
        """Give back everything that is still lent, and disconnect; never raises."""


def last_line(text: str) -> str:
    """Return the last line of a log or an error that is not empty; the lines before are often a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def start_cure(log: str, python: str, otherwise: str) -> str:
    """Return what to do about an agent that could not start.

    Args:
        log: what it printed.
        python: the Python that the cluster started, for the message.
        otherwise: what to do if perfsvc itself was not the reason.
    """
    if "No module named 'perfsvc" in log or "has no attribute" in log or "Can't get attribute" in log:
        return f"install the same version of perfsvc on every host of the cluster, in {python}"
    return otherwise
