"""A Ray cluster: each GPU is lent to an actor, which holds the agent of this GPU.

Ray decides which GPU an actor gets, and keeps other jobs off this GPU as long as the actor lives. The lock of the host
still guards the GPU against runs that Ray does not know.
"""

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from perfsvc import units
from perfsvc.errors import InfrastructureError, MissingPackageError, NoDeviceError
from perfsvc.installation import install_command
from perfsvc.service.cluster.agent import Agent
from perfsvc.service.cluster.messages import SILENT_AGENT_S, Blobs, ClusterGpu, LostError, Packet, last_line, start_cure

PATIENCE_S = 120.0
"""Seconds that Ray may take to lend a GPU: an idle GPU is lent within seconds, and a busy one may stay busy."""
TAKE_S = 5.0
"""Seconds that an agent waits for news before it answers that there are none."""
ATTEMPTS = 3
NOT_STARTED = "Starting Ray client server failed"
"""The head starts a process for each command. In Ray 2.60 this process sometimes ends at once if gRPC is busy."""
SET_BY_RAY = ("OMP_NUM_THREADS", "1")
"""Ray sets this variable for an actor with one CPU. Libraries that make inputs should use all processors."""


class RayAgent(Agent):
    """An agent in a Ray actor, which receives binaries through Ray's object store: each once for each host."""

    def __init__(self) -> None:
        name, value = SET_BY_RAY
        if os.environ.get(name) == value:
            del os.environ[name]
        super().__init__()

    def begin_stored(self, share: bytes, stored: Mapping[str, Any]) -> None:
        """Begin a share; ``stored`` has Ray's references to its binaries, by digest."""
        import ray

        names = self.missing(stored)
        self.begin(share, dict(zip(names, ray.get([stored[name] for name in names]), strict=True)))


class RayGpu:
    """A GPU in a Ray cluster, lent to an actor."""

    is_starting = False  # Ray does not say whether it has lent the GPU

    def __init__(self, ray: Any, actor: Any, place: str, spec: str, stored: dict[str, Any]) -> None:
        self.place = place
        self._ray = ray
        self._actor = actor
        self._stored = stored
        self._facts = actor.facts.remote(spec)
        self._begun: Any = None
        self._begun_s = 0.0
        self._news: Any = None
        self._asked_s = 0.0
        self._lost: LostError | None = None

    @property
    def news(self) -> Any:
        """Ray's reference to the next news of the agent."""
        return self._news

    def facts(self) -> bytes | None:
        """Return the facts of the agent; see ``ClusterGpu.facts``."""
        ready, _ = self._ray.wait([self._facts], timeout=0)
        return self._get(self._facts) if ready else None

    def parts(self, device: bytes, benches: Mapping[str, str]) -> bytes:
        """Return the parts of the environment; wait for them as long as an agent may be silent."""
        self._require_agent()
        answer: bytes = self._get(self._actor.parts.remote(device, dict(benches)))
        return answer

    def begin(self, share: bytes, blobs: Blobs) -> None:
        """Store the binaries that Ray does not have yet, and begin a share; ``take`` raises what goes wrong there."""
        self._require_agent()
        for name, code in blobs.items():
            if name not in self._stored:
                self._stored[name] = self._ray.put(code)
        # Do not wait for the agent: while one hangs, the others go on.
        self._begun = self._actor.begin_stored.remote(share, {name: self._stored[name] for name in blobs})
        self._begun_s = time.monotonic()
        if self._news is None:  # else the agent still waits for news, and would put them into an answer that is dropped
            self._ask()

    def take(self) -> list[Packet]:
        """Return the news that have arrived."""
        self._require_agent()
        if self._begun is not None and self._has_answered(self._begun, self._begun_s):
            self._get(self._begun)
            self._begun = None
        if self._news is None or not self._has_answered(self._news, self._asked_s):
            return []
        packets: list[Packet] = self._get(self._news)
        self._ask()
        return packets

    def drop(self, positions: Collection[int]) -> None:
        """Measure no further pair of these tasks."""
        self._require_agent()
        self._actor.drop.remote(list(positions))

    def stop(self) -> None:
        """Begin no further case."""
        self._require_agent()
        self._actor.stop.remote()

    def end(self) -> None:
        """Kill the actor, which gives the GPU back to Ray."""
        with contextlib.suppress(Exception):  # the actor or the whole cluster may be gone
            self._ray.kill(self._actor)

    def _ask(self) -> None:
        """Ask the agent for news; it answers after ``TAKE_S`` seconds at the latest, which also shows that it lives."""
        self._news = self._actor.take.remote(TAKE_S)
        self._asked_s = time.monotonic()

    def _has_answered(self, reference: Any, asked_s: float) -> bool:
        """Return whether the agent has answered; raise ``LostError`` if it has been silent for too long."""
        if self._ray.wait([reference], timeout=0)[0]:
            return True
        if time.monotonic() - asked_s > SILENT_AGENT_S:
            raise self._lose(_silent())
        return False

    def _require_agent(self) -> None:
        """Raise ``LostError`` if the agent is lost."""
        if self._lost:
            raise self._lost

    def _lose(self, error: LostError) -> LostError:
        """Return the error that ends the use of this GPU, and give the GPU back."""
        self._lost = error
        self.end()
        return error

    def _get(self, reference: Any) -> Any:
        """Return what an actor answered; raise ``LostError`` if the actor or the connection is lost."""
        try:
            return self._ray.get(reference, timeout=SILENT_AGENT_S)
        except self._ray.exceptions.GetTimeoutError as error:
            raise self._lose(_silent()) from error
        except Exception as error:
            cure = start_cure(
                str(error),
                "the Python that runs Ray",
                "see the logs of Ray on that node (/tmp/ray/session_latest/logs)",
            )
            raise self._lose(LostError(_what(error), cure=cure)) from error


class RayCluster:
    """A Ray cluster that this process is connected to.

    Args:
        name: the address, such as ``ray://head:10001``.

    Raises:
        MissingPackageError: Ray is not installed.
        InfrastructureError: the cluster cannot be reached, or has another version of Ray or Python.
    """

    patience_s = PATIENCE_S
    priority_cure = "start Ray there with RAY_worker_niceness=0"

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            import ray
        except ImportError as error:
            raise MissingPackageError(
                "a Ray cluster needs Ray, which is not installed", cure=install_command("ray")
            ) from error
        self._ray: Any = ray
        self._gpus: list[RayGpu] = []
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                with warnings.catch_warnings(action="ignore"):  # the error says the same
                    ray.init(name, log_to_driver=False, logging_level=logging.ERROR)
                return
            except Exception as error:
                ray.shutdown()
                if attempts_left and NOT_STARTED in str(error):
                    continue
                raise InfrastructureError(
                    f"the Ray cluster {name} cannot be reached: {_what(error)}",
                    cure="see whether ray status answers on the head node, and whether this host reaches the port of "
                    "Ray clients there (10001); both sides need the same versions of Ray and Python",
                ) from error

    def request(self, specs: Sequence[str]) -> Sequence[ClusterGpu]:
        """Start an actor for each GPU of each node, and return the GPUs."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) >= 1]
        if not nodes:
            raise NoDeviceError(
                f"no node of the Ray cluster {self.name} has a GPU",
                cure="see whether ray status lists GPUs; ray start --num-gpus says how many a node has",
            )
        actor_class = self._ray.remote(num_gpus=1, num_cpus=1, max_restarts=0, max_concurrency=3)(RayAgent)
        fakes = [spec for spec in specs if spec.startswith("fake:")]
        stored: dict[str, Any] = {}
        for node in nodes:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            for _ in range(int(node["Resources"]["GPU"])):
                if fakes and len(self._gpus) == len(fakes):
                    break
                spec = fakes[len(self._gpus)] if fakes else "cuda"
                actor = actor_class.options(scheduling_strategy=strategy).remote()
                place = f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                self._gpus.append(RayGpu(self._ray, actor, place, spec, stored))
        return tuple(self._gpus)

    def wait(self, gpus: Sequence[ClusterGpu], limit_s: float) -> None:
        """Wait until an agent has news or is lost."""
        references = [gpu.news for gpu in gpus if isinstance(gpu, RayGpu) and gpu.news is not None]
        if references:
            try:
                self._ray.wait(references, num_returns=1, timeout=limit_s)
            except Exception as error:
                raise InfrastructureError(
                    f"the connection to the Ray cluster {self.name} is lost: {_what(error)}",
                    cure="see whether ray status answers on the head node; what was measured is stored",
                ) from error

    def close(self) -> None:
        """End all actors, and disconnect."""
        for gpu in self._gpus:
            gpu.end()
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._ray.shutdown()


def _silent() -> LostError:
    return LostError(
        f"its agent has not answered for {units.duration_text(SILENT_AGENT_S)}",
        cure="see whether its node answers, and the logs of Ray there (/tmp/ray/session_latest/logs)",
    )


def _what(error: Exception) -> str:
    """Return what an exception of Ray says: its last line, because the lines before are a traceback."""
    return last_line(str(error)) or type(error).__name__
