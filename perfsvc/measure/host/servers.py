"""The fork servers of workers."""

from functools import partial

from perfsvc.device import VISIBLE
from perfsvc.process.fork_servers import ONE_THREAD, ForkServer, ForkServers


def worker_servers() -> ForkServers:
    """Start a fork server whose children are workers, which see no GPU until they open one."""
    return ForkServers(partial(ForkServer, "perfsvc.measure.worker.main", {**ONE_THREAD, VISIBLE: ""}))
