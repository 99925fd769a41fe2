"""The GPUs that a cluster lends to a run, from the request until they are given back."""

import contextlib
import platform
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfsvc import __version__, units
from perfsvc.errors import InfrastructureError, NoDeviceError, UsageError
from perfsvc.measure.host.device_queue import Report, Stopping
from perfsvc.measure.host.pool import OnLoss
from perfsvc.measure.plan.order import Plan
from perfsvc.model import DeviceInfo, Measurement, OverBudget, codec
from perfsvc.process.fork_servers import ForkServers
from perfsvc.service.cluster import measure as on_cluster
from perfsvc.service.cluster.messages import Cluster, ClusterGpu, Facts, LostError, Parts
from perfsvc.service.prepare.full_environment import RemoteParts

if TYPE_CHECKING:
    from perfsvc.config.settings import SlurmSettings

RAY = "ray://"
"""How the address of a Ray cluster begins."""
SLURM = "slurm"
"""The Slurm cluster that this host submits jobs to."""
FIRST_WAIT_S, NEXT_WAIT_S = 10.0, 300.0
"""Seconds after which the command first reports what it waits for, and seconds between two such reports."""
LOOK_S = 0.2
"""Seconds between two looks at GPUs that the cluster has not lent yet."""


@dataclass(frozen=True, slots=True)
class LentGpus:
    """The GPUs that a cluster has lent.

    Attributes:
        devices: the GPUs, sorted by host and UUID.
        cluster: the cluster.
        agents: their agents, by UUID.
        hosts: the names of their hosts, by UUID.
    """

    devices: tuple[DeviceInfo, ...]
    cluster: Cluster
    agents: Mapping[str, ClusterGpu]
    hosts: Mapping[str, str]

    def measure(
        self,
        plan: Plan,
        devices: Mapping[str, DeviceInfo],
        report: Report,
        servers: ForkServers | None,  # noqa: ARG002 - the agents have their own
        stopping: Stopping,
        *,
        on_loss: OnLoss | None = None,
    ) -> Generator[Measurement | OverBudget, None, None]:
        """Measure a plan on these GPUs; see ``pool.measure``."""
        return on_cluster.measure(
            plan, devices, report, stopping, on_loss=on_loss, cluster=self.cluster, gpus=self.agents, hosts=self.hosts
        )

    def parts(self, benches: Mapping[str, Path]) -> dict[str, RemoteParts]:
        """Return the parts of the full environment of each GPU, by UUID, without the GPUs whose agents are lost.

        Args:
            benches: the texts of the benchmark files, with their folders.
        """
        folders = {text: str(folder) for text, folder in benches.items()}
        parts: dict[str, RemoteParts] = {}
        for device in self.devices:
            with contextlib.suppress(LostError):  # measuring reports the loss
                answer = codec.decode(Parts, self.agents[device.uuid].parts(codec.encode(device), folders))
                parts[device.uuid] = answer.common, answer.device
        return parts


@contextlib.contextmanager
def lent(
    on: str, specs: Sequence[str], report: Callable[[str], object], slurm: "SlurmSettings | None" = None
) -> Iterator[LentGpus]:
    """Request the GPUs of a cluster, wait for them, and give them back at the end of the block.

    Args:
        on: the cluster: ``ray://HOST:PORT`` or ``slurm``.
        specs: the values of ``--device``: ``auto`` or ``cuda`` for every GPU, or ``cuda:`` with UUIDs.
        report: receives messages for the user.
        slurm: how to request GPUs of a Slurm cluster; None for the default settings.

    Raises:
        UsageError: ``on`` names no cluster, or a specification names something other than GPUs by UUID.
        MissingPackageError: the package for this kind of cluster is not installed.
        InfrastructureError: the cluster cannot be reached, or a host of the cluster has another version of perfsvc.
        NoDeviceError: the cluster lends none of the GPUs in time.
    """
    wanted = _wanted(specs)
    cluster = _connect(on, slurm, report)
    try:
        yield _wait_for_gpus(cluster, specs, wanted, report)
    finally:
        cluster.close()


def _connect(on: str, slurm: "SlurmSettings | None", report: Callable[[str], object]) -> Cluster:
    if on.startswith(RAY):
        from perfsvc.service.cluster.ray_cluster import RayCluster

        return RayCluster(on)
    if on == SLURM:
        from perfsvc.config.settings import SlurmSettings
        from perfsvc.service.cluster.slurm_cluster import SlurmCluster

        return SlurmCluster(slurm or SlurmSettings(), report)
    raise UsageError(
        f"no cluster can be named {on!r}", cure=f"write the address of a Ray cluster ({RAY}head:10001), or {SLURM}"
    )


def _wanted(specs: Sequence[str]) -> tuple[str, ...]:
    """Return the UUIDs, or their beginnings, of the GPUs to measure on; empty for every GPU."""
    uuids: list[str] = []
    for spec in specs:
        kind, _, names = spec.partition(":")
        entries = [name.strip() for name in names.split(",")]
        if kind == "fake" or spec in {"auto", "cuda"}:
            return ()
        if kind != "cuda" or not all(name.startswith(("GPU-", "MIG-")) and "+" not in name for name in entries):
            raise UsageError(
                f"--device {spec} names no GPU of a cluster",
                cure="name GPUs by UUID (--device cuda:GPU-…), or leave the option out to measure on every GPU",
            )
        uuids += entries
    return tuple(uuids)


def _wait_for_gpus(
    cluster: Cluster, specs: Sequence[str], wanted: tuple[str, ...], report: Callable[[str], object]
) -> LentGpus:
    """Wait for the GPUs, and return those that can measure; give the others back."""
    requested = cluster.request(specs)
    known = _facts_of(cluster, requested, report)
    _require_our_versions(cluster, known.values())
    for host in sorted({facts.host for facts in known.values() if facts.niceness > 0}):
        report(f"measuring has a low priority on host {host}, which can slow programs: {cluster.priority_cure}")
    usable: dict[str, tuple[str, DeviceInfo, ClusterGpu]] = {}
    for gpu in requested:
        facts = known.get(gpu)
        if facts is None:
            continue
        if facts.device is None:
            report(f"a GPU of {gpu.place} cannot be used: {facts.problem}; perfsvc doctor there says what is missing")
        elif facts.device.uuid in usable:
            report(f"{facts.device.uuid} is lent twice, by {usable[facts.device.uuid][2].place} and {gpu.place}")
        elif not wanted or any(facts.device.uuid.startswith(name) for name in wanted):
            usable[facts.device.uuid] = facts.host, facts.device, gpu
            continue
        gpu.end()
    if missing := [name for name in wanted if not any(uuid.startswith(name) for uuid in usable)]:
        report(f"{cluster.name} does not lend {', '.join(missing)}")
    if not usable:
        raise NoDeviceError(
            f"{cluster.name} lends no GPU that perfsvc can use",
            cure="see the messages above; on a host of the cluster, perfsvc doctor says what is missing",
        )
    ordered = sorted(usable.values(), key=lambda entry: (entry[0], entry[1].uuid))
    return LentGpus(
        tuple(device for _, device, _ in ordered),
        cluster,
        {device.uuid: gpu for _, device, gpu in ordered},
        {device.uuid: host for host, device, _ in ordered},
    )


def _require_our_versions(cluster: Cluster, known: Iterable[Facts]) -> None:
    """Raise ``InfrastructureError`` if a host has another version of perfsvc or Python than this command."""
    ours = ".".join(platform.python_version_tuple()[:2])
    for facts in known:
        if facts.version != __version__:
            raise InfrastructureError(
                f"host {facts.host} of {cluster.name} has perfsvc {facts.version}, and this command is perfsvc "
                f"{__version__}",
                cure="install the same version on every host of the cluster",
            )
        if not facts.python.startswith(f"{ours}."):
            raise InfrastructureError(
                f"host {facts.host} of {cluster.name} has Python {facts.python}, and this command uses Python {ours}",
                cure="use the same version of Python on every host of the cluster",
            )


def _facts_of(
    cluster: Cluster, requested: Sequence[ClusterGpu], report: Callable[[str], object]
) -> dict[ClusterGpu, Facts]:
    """Return the facts of each GPU that the cluster lends in time; report the others, and give them back."""
    began = time.monotonic()
    reports_s = began + FIRST_WAIT_S
    ends = began + cluster.patience_s
    known: dict[ClusterGpu, Facts] = {}
    waiting = list(requested)
    while waiting:
        is_late = time.monotonic() >= ends
        for gpu in tuple(waiting):
            try:
                facts = gpu.facts()
            except LostError as error:
                report(f"a GPU of {gpu.place} cannot be used: {'; '.join(filter(None, (error.what, error.cure)))}")
                waiting.remove(gpu)
                continue
            if facts is not None:
                known[gpu] = codec.decode(Facts, facts)
                waiting.remove(gpu)
            elif is_late and not gpu.is_starting:
                limit = units.duration_text(cluster.patience_s)
                report(f"{gpu.place} did not lend a GPU within {limit}: measuring without it")
                gpu.end()
                waiting.remove(gpu)
        if waiting and time.monotonic() >= reports_s:
            places = ", ".join(gpu.place for gpu in waiting)
            report(f"waiting for {len(waiting)} of {len(requested)} GPUs of {cluster.name}: {places}")
            reports_s += NEXT_WAIT_S
        if waiting:
            time.sleep(LOOK_S)
    return known
