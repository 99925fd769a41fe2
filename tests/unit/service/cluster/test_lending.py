"""Which GPUs a cluster lends, and what a run reports if it lends none."""

import platform
import sys
import time
from dataclasses import replace

import pytest

from perfsvc import __version__
from perfsvc.errors import InfrastructureError, MissingPackageError, NoDeviceError, UsageError
from perfsvc.model import DeviceInfo, codec
from perfsvc.service.cluster import lending
from perfsvc.service.cluster.messages import Facts, LostError

RAY = "ray://127.0.0.1:1"


def gpu(number):
    return DeviceInfo("cuda", f"cuda:GPU-{number}", f"GPU-{number}", "H100", "sm_90")


class Lent:
    """A GPU whose agent answers with facts, not at all (None), or is lost (an error)."""

    is_starting = False

    def __init__(self, facts):
        self.place = f"node {facts.host}" if isinstance(facts, Facts) else "a node"
        self.ended = False
        self._facts = facts

    def facts(self):
        if isinstance(self._facts, Exception):
            raise self._facts
        return self._facts and codec.encode(self._facts)

    def end(self):
        self.ended = True


class FakeCluster:
    name = "ray://head:1"
    patience_s = 0.2
    priority_cure = "start Ray there with RAY_worker_niceness=0"

    def __init__(self, facts):
        self.lent = [Lent(each) for each in facts]
        self.closed = False

    def request(self, specs):
        return self.lent

    def close(self):
        self.closed = True


@pytest.fixture
def lend(monkeypatch):
    """Return a function that lends the GPUs of some facts, and returns the UUIDs, the messages and the cluster."""

    def do(*facts, specs=("auto",)):
        cluster, messages = FakeCluster(facts), []
        monkeypatch.setattr(lending, "_connect", lambda *_: cluster)
        with lending.lent(cluster.name, specs, messages.append) as lends:
            uuids = [device.uuid for device in lends.devices]
            assert not cluster.closed
        assert cluster.closed
        return uuids, messages, cluster

    return do


PYTHON = platform.python_version()
A, B = (Facts(host, __version__, PYTHON, gpu(number)) for number, host in enumerate("ab"))


def test_the_gpus_are_sorted_by_host(lend):
    uuids, messages, cluster = lend(B, A)
    assert (uuids, messages) == (["GPU-0", "GPU-1"], [])
    assert not any(each.ended for each in cluster.lent)


def test_a_gpu_that_is_not_lent_in_time_is_waited_for_and_left_out(lend, monkeypatch):
    monkeypatch.setattr(lending, "FIRST_WAIT_S", 0.0)
    uuids, (first, *messages), cluster = lend(A, None)
    assert uuids == ["GPU-0"]
    assert first == "waiting for 1 of 2 GPUs of ray://head:1: a node"
    assert messages == ["a node did not lend a GPU within 0.2s: measuring without it"]
    assert cluster.lent[1].ended


def test_a_gpu_that_is_lent_in_time_may_start_its_agent_later(lend, monkeypatch):
    monkeypatch.setattr(Lent, "is_starting", True)
    began = time.monotonic()
    monkeypatch.setattr(Lent, "facts", lambda self: codec.encode(A) if time.monotonic() - began > 0.2 else None)
    uuids, messages, cluster = lend(A)
    assert (uuids, messages) == (["GPU-0"], [])
    assert not cluster.lent[0].ended


def test_a_gpu_that_cannot_measure_is_reported(lend):
    problem = Facts("b", __version__, PYTHON, problem="there is no driver")
    uuids, messages, _ = lend(A, problem, LostError("it died"), replace(A, host="b"))
    assert uuids == ["GPU-0"]
    assert set(messages) == {
        "a GPU of node b cannot be used: there is no driver; perfsvc doctor there says what is missing",
        "a GPU of a node cannot be used: it died",
        "GPU-0 is lent twice, by node a and node b",
    }


def test_a_low_priority_is_reported_once_for_a_host(lend):
    other = replace(A, device=gpu(2), niceness=15)
    _, messages, _ = lend(replace(A, niceness=15), other, B)
    assert len(messages) == 1
    assert messages[0].startswith("measuring has a low priority on host a, ")


def test_only_the_named_gpus_are_kept(lend):
    uuids, messages, cluster = lend(A, B, specs=("cuda:GPU-1,GPU-7",))
    assert uuids == ["GPU-1"]
    assert messages == ["ray://head:1 does not lend GPU-7"]
    assert [each.ended for each in cluster.lent] == [True, False]


def test_no_usable_gpu_ends_the_run(lend):
    with pytest.raises(NoDeviceError, match="lends no GPU that perfsvc can use"):
        lend(None)


def test_another_version_or_python_on_a_host_ends_the_run(lend):
    with pytest.raises(InfrastructureError, match=r"host b of ray://head:1 has perfsvc 0\.0\.1, and") as told:
        lend(A, replace(B, version="0.0.1"))
    assert told.value.cure == "install the same version on every host of the cluster"
    with pytest.raises(InfrastructureError, match=r"host b of ray://head:1 has Python 3\.1\.9, and this command"):
        lend(A, replace(B, python="3.1.9"))


@pytest.mark.parametrize("spec", ["cpu", "cuda:0", "cuda:GPU-1+GPU-2"])
def test_a_device_that_no_cluster_has_and_an_unknown_cluster_are_refused(spec):
    with pytest.raises(UsageError, match="names no GPU of a cluster"), lending.lent(RAY, (spec,), print):
        pass
    with pytest.raises(UsageError, match="no cluster can be named 'dask://h'"), lending.lent("dask://h", (), print):
        pass


def test_without_ray_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match="needs Ray, which is not") as told, lending.lent(RAY, (), print):
        pass
    assert "ray" in told.value.cure
