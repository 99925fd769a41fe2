"""What the command does with actors of Ray that do not answer, on a stand-in for Ray."""

from collections import defaultdict
from types import SimpleNamespace

import pytest

from perfsvc.service.cluster import ray_cluster
from perfsvc.service.cluster.messages import SILENT_AGENT_S, LostError
from perfsvc.service.cluster.ray_cluster import RayGpu


class RayTimeoutError(Exception):
    """What ``ray.get`` raises if there is no answer in time."""


class Answer:
    """Ray's reference to an answer, which has come if ``value`` is set."""

    value = None


class RayStandIn:
    """Ray with one actor, whose calls are answered by the test.

    Attributes:
        calls: the answers to the calls of each method, oldest first.
        killed: the actors that were killed.
    """

    exceptions = SimpleNamespace(GetTimeoutError=RayTimeoutError)

    def __init__(self):
        self.calls = defaultdict(list)
        self.killed = []

    def __getattr__(self, method):  # of the actor
        return SimpleNamespace(remote=lambda *_: self.calls[method].append(Answer()) or self.calls[method][-1])

    def wait(self, references, timeout):
        ready = [reference for reference in references if reference.value is not None]
        return ready, [reference for reference in references if reference.value is None]

    def get(self, reference, timeout):
        if reference.value is None:
            raise RayTimeoutError
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def put(self, code):
        return code

    def kill(self, actor):
        self.killed.append(actor)


@pytest.fixture
def ray():
    return RayStandIn()


@pytest.fixture
def gpu(ray):
    return RayGpu(ray, ray, "node x", "cuda", {})


@pytest.fixture
def later(monkeypatch):
    """Return a function that lets seconds pass."""
    now = [0.0]
    monkeypatch.setattr(ray_cluster.time, "monotonic", lambda: now[0])

    def do(seconds):
        now[0] += seconds

    return do


def test_an_agent_that_answers_without_news_lives(ray, gpu, later):
    gpu.begin(b"share", {})
    ray.calls["begin_stored"][0].value = ()
    for call in range(3):
        later(SILENT_AGENT_S - 10)
        ray.calls["take"][call].value = []
        assert gpu.take() == []
    ray.calls["take"][-1].value = [(b"news", {})]
    assert gpu.take() == [(b"news", {})]
    assert ray.killed == []


def test_a_silent_agent_is_killed_and_lost_for_ever(ray, gpu, later):
    gpu.begin(b"share", {})
    later(SILENT_AGENT_S - 10)
    assert gpu.take() == []
    later(20)
    with pytest.raises(LostError, match="its agent has not answered for 5m"):
        gpu.take()
    assert ray.killed == [ray]
    ray.calls["take"][0].value = [(b"late", {})]
    for use in (gpu.take, gpu.stop, lambda: gpu.drop([1]), lambda: gpu.begin(b"share", {})):
        with pytest.raises(LostError, match="has not answered"):
            use()


def test_an_agent_that_never_begins_is_lost_though_it_answers(ray, gpu, later):
    gpu.begin(b"share", {})
    for call in range(2):
        later(SILENT_AGENT_S - 10)
        ray.calls["take"][call].value = []
        if call == 0:
            assert gpu.take() == []
    with pytest.raises(LostError, match="has not answered"):
        gpu.take()


def test_an_agent_that_cannot_begin_or_does_not_name_its_environment_is_lost(ray, gpu):
    gpu.begin(b"share", {})
    ray.calls["begin_stored"][0].value = RuntimeError("Traceback\nOSError: no room")
    with pytest.raises(LostError, match=r"^OSError: no room"):
        gpu.take()
    gpu = RayGpu(ray, ray, "node x", "cuda", {})
    for use in (lambda: gpu.parts(b"device", {}), lambda: gpu.begin(b"share", {})):
        with pytest.raises(LostError, match="has not answered for 5m"):
            use()
