"""The fork servers of a run, started before anything that takes long to import."""

from perfsvc.measure.host.fork_servers import ForkServers


def fork_servers() -> ForkServers:
    """Starts the first one; a context manager, which ends them all."""
    return ForkServers()
