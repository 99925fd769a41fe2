"""Workers that are threads of this process: for the fake device, where nothing but the machinery takes time.

They speak as every worker does, over the same sockets, and share all that a process shares: nobody can kill them, and a
script whose fault ends its process ends this one. So they open the fake device alone.
"""

import contextlib
import gc
import socket
import threading
import traceback
from typing import IO

from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import NoDeviceError
from perfsvc.measure.worker import prepare, serve

FAKE = "fake:"
"""How the devices that a thread may open are specified."""


class ThreadServer:
    """A ``perfsvc.measure.forks.Server`` that begins threads; ``ForkServers(ThreadServer)`` is how a run gets them."""

    def __init__(self) -> None:
        self.forked = False
        self._ended = False
        prepare()

    def fork(self, theirs: socket.socket, words: IO[bytes]) -> "Thread":
        """Begins a thread that serves over a socket of its own."""
        self.forked = True
        return Thread(theirs.dup(), words)

    @property
    def status(self) -> int | None:
        """0 once it was dismissed."""
        return 0 if self._ended else None

    def wait(self, limit_s: float) -> bool:  # noqa: ARG002 - it has nothing to wait for
        """Whether it was dismissed."""
        return self._ended

    def last_words(self, size: int) -> str:  # noqa: ARG002 - a process's
        """None: what a thread has to say is among its own words."""
        return ""

    def dismiss(self) -> None:
        """Begins no more; its threads end when their own sockets are closed."""
        self._ended = True

    def end(self) -> None:
        """The same, for there is no process to wait for."""
        self.dismiss()


class Thread:
    """A ``perfsvc.measure.forks.Worker`` that is a thread.

    Args:
        pool: the worker's end of its socket, which it closes.
        words: where it says what ended it, if anything did.
    """

    def __init__(self, pool: socket.socket, words: IO[bytes]) -> None:
        self.status: int | None = None
        self._pool = pool
        self._words = words
        self._thread = threading.Thread(target=self._serve, name="perfsvc-worker", daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> bool:
        """Waits for its end; returns whether it has ended."""
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def kill(self) -> None:
        """Closes its socket under it: it ends when it next looks there, which is all that anybody can do."""
        with contextlib.suppress(OSError):  # it has closed it already
            self._pool.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Its end is nobody's business any more."""

    def _serve(self) -> None:
        try:
            with self._pool:
                self.status = serve(self._pool, _open_fake)
        except Exception:  # noqa: BLE001 - as a process would end, with its traceback as its last words
            self.status = 1
            with contextlib.suppress(OSError, ValueError):  # nobody wants to know any more
                self._words.write(traceback.format_exc().encode())
                self._words.flush()
        finally:
            gc.unfreeze()  # what the worker put out of the collector's sight belongs to a process that goes on


def _open_fake(name: str, instruments: bytes) -> Device:
    if not name.startswith(FAKE):
        raise NoDeviceError(
            f"{name} is not opened in a thread of perfsvc itself, which what it runs could end",
            cure="have its workers forked: ForkServers() without ThreadServer",
        )
    return open_device(name, instruments)
