"""The workers of one device: one at its cases, the last one still ending.

A GPU has one worker at a time: the next one is forked when the one before is gone, for a second context on the GPU
would disturb the times.
"""

import selectors

from perfsvc.errors import CrashError
from perfsvc.measure.forks import ForkServers
from perfsvc.measure.process import Process
from perfsvc.model import DeviceInfo


class Relay:
    """Starts and ends the workers of one device.

    Args:
        device: what they open.
        helper_kernels: the binary that the device works with, empty where it needs none.
        selector: is told of the socket of the worker whose turn it is.
        listener: the data that the selector gives back with that socket.
        servers: where they are forked.
    """

    def __init__(
        self,
        device: DeviceInfo,
        helper_kernels: bytes,
        selector: selectors.BaseSelector,
        listener: object,
        servers: ForkServers,
    ) -> None:
        self._device = device
        self._helper_kernels = helper_kernels
        self._selector = selector
        self._listener = listener
        self._servers = servers
        self._ending: list[Process] = []
        self.present: Process | None = None

    def begin(self) -> CrashError | None:
        """Forks the next worker and has it open the device; returns why it could not be told.

        The one before must be gone. What runs on the host's own processors depends on where it lies in memory, and
        forks of one server lie alike: there each worker, being a replica of its own, comes from a server of its own.
        """
        self.present = self._servers.begin(apart=self._device.kind == "cpu")
        self._selector.register(self.present.socket, selectors.EVENT_READ, self._listener)
        return self.present.open(self._device, self._helper_kernels)

    def dismiss(self, *, kill: bool = False) -> None:
        """Ends the present worker, by hanging up or at once, without waiting for it; kills as well who still ends."""
        for process in self._ending if kill else ():
            process.dismiss(kill=True)
        if self.present:
            self._selector.unregister(self.present.socket)
            self.present.dismiss(kill=kill)
            self._ending.append(self.present)
            self.present = None

    def is_ending(self) -> bool:
        """Whether a worker that was dismissed is not gone yet."""
        self._ending = [process for process in self._ending if not process.is_gone()]
        return bool(self._ending)

    def end(self) -> None:
        """Waits until every worker that was dismissed is gone."""
        while self._ending:
            self._ending.pop().end()
