"""The workers of one device: one at its cases, the next one starting beside it, the last one still ending.

A board has one worker at a time: the next one is told to open it when the one before is gone, for a second context on
the board would disturb the times. What a process does before that (starting, importing) costs no time then.
"""

import selectors

from perfsvc.errors import CrashError
from perfsvc.measure.process import Process
from perfsvc.measure.reserve import Reserve
from perfsvc.model import DeviceInfo


class Relay:
    """Starts and ends the workers of one device.

    Args:
        device: what they open.
        instruments: the binary that the device works with, empty where it needs none.
        selector: is told of the socket of the worker whose turn it is.
        listener: the data that the selector gives back with that socket.
        reserve: where the first of them comes from.
    """

    def __init__(
        self,
        device: DeviceInfo,
        instruments: bytes,
        selector: selectors.BaseSelector,
        listener: object,
        reserve: Reserve,
    ) -> None:
        self._device = device
        self._instruments = instruments
        self._selector = selector
        self._listener = listener
        self._reserve = reserve
        self._next: Process | None = None
        self._ending: list[Process] = []
        self.present: Process | None = None
        self.told = False  # the present worker has been told to open the device

    def begin(self) -> bool:
        """Makes the next worker the present one; false while the one before is still ending."""
        if self.is_ending():
            return False
        started, self._next = self._next, None
        if started and not started.alive:  # it died before its turn came, which costs no case
            started.end()
            started = None
        self.present = started or self._reserve.take()
        self.told = False
        self._selector.register(self.present.socket, selectors.EVENT_READ, self._listener)
        return True

    def open(self, worker: Process) -> CrashError | None:
        """Has the present worker open the device; returns why it could not be told."""
        self.told = True
        return worker.open(self._device, self._instruments)

    def prepare(self) -> None:
        """Starts the next worker ahead of its turn, unless the host's processors are what is being measured."""
        if self._next is None and self._device.kind != "cpu":
            self._next = Process()

    def dismiss(self, *, kill: bool = False) -> None:
        """Ends the present worker, by hanging up or at once, without waiting for it."""
        if self.present:
            self._selector.unregister(self.present.socket)
            self.present.dismiss(kill=kill)
            self._ending.append(self.present)
            self.present = None

    def dismiss_all(self, *, kill: bool = False) -> None:
        """Ends the present worker and the next one; kills those, too, that were asked to end, where it kills."""
        for process in self._ending if kill else ():
            process.dismiss(kill=True)
        self.dismiss(kill=kill)
        if self._next:
            self._next.dismiss(kill=kill)
            self._ending.append(self._next)
            self._next = None

    def is_ending(self) -> bool:
        """Whether a worker that was dismissed is not gone yet."""
        self._ending = [process for process in self._ending if not process.is_gone()]
        return bool(self._ending)

    def end(self) -> None:
        """Waits until every worker that was dismissed is gone."""
        while self._ending:
            self._ending.pop().end()
