"""The fork servers of workers."""

from functools import partial

from perfsvc.device import VISIBLE
from perfsvc.process.fork_servers import ForkServer, ForkServers

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment variables of a worker. They keep libraries from starting threads, which would delay launches."""


def worker_servers() -> ForkServers:
    """Start a fork server whose children are workers, which see no GPU until they open one."""
    return ForkServers(partial(ForkServer, "perfsvc.measure.worker.main", {**ONE_THREAD, VISIBLE: ""}))
