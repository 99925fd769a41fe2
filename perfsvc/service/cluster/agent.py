"""The agent of a GPU: it runs on the host of the GPU, and measures a share of a plan as a run on this host would."""

import contextlib
import os
import platform
import queue
import socket
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from perfsvc import __version__, units
from perfsvc.device import VISIBLE
from perfsvc.device.find import find
from perfsvc.errors import NoDeviceError, PerfsvcError
from perfsvc.measure.host import pool
from perfsvc.measure.host.pool import worker_servers
from perfsvc.model import DeviceInfo, OverBudget, codec
from perfsvc.service.cluster.messages import (
    SILENT_AGENT_S,
    AgentNews,
    Blobs,
    Ended,
    Facts,
    Packet,
    Parts,
    PlanShare,
    packet,
    plan_of,
    refused,
)
from perfsvc.service.prepare.full_environment import common_parts, gpu_parts
from perfsvc.suite import isolated

MOST_PACKETS = 100
"""How many packets the command receives at once."""
NO_PART = f"variable.{VISIBLE}"
"""The cluster sets this variable, to another value in each run. What a run measures does not depend on it."""


class Agent:
    """Measures on one GPU of its host. The methods may be called from several threads, except ``begin``.

    Create the object in a thread that lives as long as its process: Linux ends the servers that a thread has started
    with the thread.
    """

    def __init__(self) -> None:
        _take_usual_priority()
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)
        isolated.start()
        self._servers = worker_servers()
        self._packets: queue.SimpleQueue[Packet] = queue.SimpleQueue()
        self._blobs: dict[str, bytes] = {}
        self._dropped: set[int] = set()
        self._is_stopped = False
        self._progress_s: float | None = None  # when the thread that measures last went on; None if it has no share
        self._thread: threading.Thread | None = None

    def facts(self, spec: str) -> bytes:
        """Return the ``Facts`` about this host and the one device that ``spec`` names here."""
        known = Facts(socket.gethostname(), __version__, platform.python_version(), niceness=self._niceness)
        try:
            devices = find([spec])
        except PerfsvcError as error:
            return codec.encode(replace(known, problem=error.what))
        if len(devices) != 1:
            return codec.encode(replace(known, problem=f"the agent sees {len(devices)} GPUs, not the one it was lent"))
        return codec.encode(replace(known, device=devices[0]))

    def parts(self, device: bytes, benches: Mapping[str, str]) -> bytes:
        """Return the ``Parts`` of the full environment here.

        Args:
            device: the ``DeviceInfo`` of the GPU.
            benches: the texts of the benchmark files, with their folders.
        """
        common = common_parts({text: Path(folder) for text, folder in benches.items()})
        common.pop(NO_PART, None)
        return codec.encode(Parts(common, gpu_parts(codec.decode(DeviceInfo, device))))

    def missing(self, names: Collection[str]) -> list[str]:
        """Return the digests among ``names`` of binaries that the agent has not received yet."""
        return [name for name in names if name not in self._blobs]

    def begin(self, share: bytes, blobs: Blobs) -> None:
        """Begin to measure a ``PlanShare`` after the end of the previous one; ``blobs`` has the missing binaries."""
        self._blobs |= blobs
        self._dropped.clear()
        self._is_stopped = False
        self._progress_s = time.monotonic()
        self._thread = threading.Thread(target=self._measure, args=[codec.decode(PlanShare, share)], daemon=True)
        self._thread.start()

    def take(self, wait_s: float) -> list[Packet]:
        """Return the news that have not been taken yet, oldest first; wait for the first up to ``wait_s`` seconds.

        Raises:
            TimeoutError: there are no news, and measuring hangs: the limits of cases no longer work.
        """
        packets: list[Packet] = []
        with contextlib.suppress(queue.Empty):
            packets.append(self._packets.get(timeout=wait_s))
            while len(packets) < MOST_PACKETS:
                packets.append(self._packets.get_nowait())
        progress_s = self._progress_s
        if not packets and progress_s is not None and time.monotonic() - progress_s > SILENT_AGENT_S:
            raise TimeoutError(
                f"measuring on {socket.gethostname()} has hung for {units.duration_text(SILENT_AGENT_S)}"
            )
        return packets

    def drop(self, positions: Collection[int]) -> None:
        """Measure no further pair of these tasks of the share."""
        self._dropped.update(positions)

    def stop(self) -> None:
        """Begin no further case: the share ends with the current case."""
        self._is_stopped = True

    def end(self, limit_s: float) -> None:
        """Wait for the end of the share, at most ``limit_s`` seconds, and end the processes of this object."""
        self.stop()
        if self._thread:
            self._thread.join(limit_s)
        self._servers.__exit__(None, None, None)

    # --- the thread that measures -------------------------------------------------------------------------------------

    def _measure(self, share: PlanShare) -> None:
        """Measure a share and put every result into the queue, at last an ``Ended``, whatever happens."""
        ended = Ended()
        _take_usual_priority()
        try:
            plan = plan_of(share, self._blobs, self._dropped.__contains__)
            losses: list[NoDeviceError] = []
            measured = pool.measure(
                plan,
                {share.device.uuid: share.device},
                lambda text: self._put(AgentNews(text=text)),
                self._servers,
                self._must_stop,
                on_loss=lambda _, error: losses.append(error),
                sharing=share.sharing,
            )
            for result in measured:
                if isinstance(result, OverBudget):
                    self._put(AgentNews(over_budget=result))
                else:
                    self._put(AgentNews(measurement=result))
            if losses:
                ended = refused(losses[0])
        except Exception as error:  # noqa: BLE001 - the command reports it as the reason why the GPU is lost
            ended = Ended(f"the agent on {socket.gethostname()} failed: {type(error).__name__}: {error}")
        self._put(AgentNews(ended=ended))
        self._progress_s = None

    def _must_stop(self) -> bool:
        """Return whether to begin no further case. The pool asks every second, also while a case runs."""
        self._progress_s = time.monotonic()
        return self._is_stopped

    def _put(self, news: AgentNews) -> None:
        files: Mapping[str, bytes] = {}
        if news.measurement:
            files = news.measurement.files
            news = replace(news, measurement=replace(news.measurement, files={}))
        self._packets.put(packet(news, files))


def _take_usual_priority() -> None:
    """Give this thread, and the processes and threads that it starts, the priority of a run on this host.

    Ray lowers the priority of its workers (``RAY_worker_niceness``), which slows programs and whatever a busy host does
    between launches. Raising it needs a right that the user may lack.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, min(0, os.getpriority(os.PRIO_PROCESS, 0)))
