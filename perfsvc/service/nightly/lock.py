"""One night at a time: the lock of a database on a host, which goes with the process that holds it."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator

from perfsvc.errors import InfrastructureError
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.measure.host.lock import HostLock
from perfsvc.store import NightRow, StageState, Store
from perfsvc.units import duration_text

LOOK_S = 0.2
"""Seconds between two looks at a lock that another night holds."""


@contextlib.contextmanager
def locked(store: Store, host: str, wait_s: float, say: Callable[[str], object], stopping: Stopping) -> Iterator[str]:
    """Holds the lock of a database's nights on this host; gives what it took to get it, in words.

    Raises:
        InfrastructureError: another night holds it, and still did when ``wait_s`` were over or this one was to stop; or
            there is no file to lock.
    """
    name = hashlib.sha256(store.identity.encode()).hexdigest()[:16]
    lock = HostLock(f"night-{name}", "two nights from sharing a database")
    began = time.monotonic()
    taken = lock.take()
    if not taken and wait_s:
        say(f"{_holder(store, host, lock)}: waiting for {duration_text(wait_s)} at most")
    while not taken and time.monotonic() - began < wait_s and not stopping():
        time.sleep(LOOK_S)
        taken = lock.take()
    if not taken:
        cure = "wait for it: perfsvc nightly --wait 2h" if not wait_s else "see what keeps it: its log, or perfsvc runs"
        raise InfrastructureError(_holder(store, host, lock), cure=cure)
    waited_s = time.monotonic() - began
    try:
        yield "taken at once" if waited_s < LOOK_S else f"taken after {duration_text(round(waited_s))}"
    finally:
        lock.release()


def _holder(store: Store, host: str, lock: HostLock) -> str:
    """The night that holds the lock, as far as anybody knows."""
    night = store.running_night(host)
    if night:
        at = _stage(night)
        return (
            f"night {night.id} (pid {night.pid}) is under way on this host since {night.started:%Y-%m-%d %H:%M} UTC"
            + (f", at its stage {at}" if at else "")
        )
    pid = lock.holder()
    return "another night is under way on this host" + (f" (pid {pid})" if pid else "")


def _stage(night: NightRow) -> str:
    return next((stage.name for stage in night.stages if stage.state is StageState.RUNNING), "")
