"""A Ray cluster on this machine, whose nodes have fake GPUs or share the GPUs of the machine, for tests and benchmarks.

Run as a program, this file is the process that holds the cluster: Ray leaves open files in it, which fail tests.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

QUIET = {
    "RAY_enable_worker_prestart": "0",  # each prestarted worker costs a second of CPU time
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # with it, the process for a client sometimes ends at once, and Ray waits 40 s
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_usage_stats_enabled": "0",
    "RAY_enable_metrics_collection": "0",
}


@dataclass
class RayNodes:
    """A running cluster.

    Attributes:
        address: what ``perfsvc run --on`` takes.
        devices: the options ``--device`` of all fake GPUs, node by node.
    """

    address: str
    devices: list[str]
    process: subprocess.Popen[str]

    def kill(self, node: int) -> None:
        """End a node at once, with everything that runs on it."""
        self.process.stdin.write(f"{node}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"killed {node}\n"


@contextlib.contextmanager
def ray_nodes(folder: Path, gpus_of_nodes: Sequence[int], **script: object) -> Iterator[RayNodes]:
    """Start a cluster: a head without GPUs, and nodes with so many fake GPUs each, that play one script.

    Args:
        folder: for the scripts, the locks and the log.
        gpus_of_nodes: the number of GPUs of each node.
        script: keys of the script of the fake device.
    """
    devices = []
    for number in range(sum(gpus_of_nodes)):
        path = folder / f"gpu{number}.json"
        path.write_text(json.dumps({"uuid": f"FAKE-{number}", **script}))
        devices += ["--device", f"fake:{path}"]
    locks = {"PERFSVC_LOCKS": str(folder / "locks")}  # tests that run at once share no GPU
    with _started(folder, [str(gpus) for gpus in gpus_of_nodes], locks) as (address, process):
        yield RayNodes(address, devices, process)


@contextlib.contextmanager
def real_nodes(folder: Path, gpus_of_nodes: Sequence[Sequence[int]]) -> Iterator[RayNodes]:
    """Start a cluster: a head without GPUs, and nodes with some of the GPUs of this machine, by their numbers."""
    nodes = [",".join(map(str, gpus)) + "," for gpus in gpus_of_nodes]
    with _started(folder, nodes, {}) as (address, process):
        yield RayNodes(address, [], process)


@contextlib.contextmanager
def _started(
    folder: Path, nodes: Sequence[str], variables: Mapping[str, str]
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start this file as a program, and yield the address of its cluster."""
    with (
        (folder / "ray.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, __file__, *nodes],
            env=os.environ | QUIET | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        address = process.stdout.readline().strip()
        assert address, (folder / "ray.log").read_text()
        yield address, process
        process.stdin.close()


def main() -> None:
    """Start a cluster and print its address; end the nodes whose numbers come on standard input.

    Each argument is a node: the number of its fake GPUs, or the numbers of its real GPUs, each followed by a comma.
    """
    from ray.cluster_utils import Cluster

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder  # Ray writes the address of the cluster to a folder that it does not make
        (Path(folder) / "ray").mkdir()
        head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False, "temp_dir": folder}
        cluster = Cluster()
        try:
            cluster.add_node(**head, ray_client_server_port=port)
        except Exception:  # noqa: BLE001 - on a busy machine a node may not be up within Ray's 30 s
            cluster = Cluster()
            cluster.add_node(**head, ray_client_server_port=port)
        try:
            nodes = []
            for gpus in sys.argv[1:]:
                count = gpus.count(",") or int(gpus)
                if "," in gpus:
                    os.environ["CUDA_VISIBLE_DEVICES"] = gpus.rstrip(",")
                nodes.append(cluster.add_node(num_cpus=count, num_gpus=count, wait=False))
            cluster.wait_for_nodes()
            print(f"ray://127.0.0.1:{port}", flush=True)
            for line in sys.stdin:
                cluster.remove_node(nodes[int(line)], allow_graceful=False)
                print(f"killed {line.strip()}", flush=True)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
