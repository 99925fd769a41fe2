"""What the command does with what agents send: each result once, and nothing lost in silence."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from perfsvc.errors import NoDeviceError
from perfsvc.measure.host.device_queue import never
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import NO_ARRAYS
from perfsvc.model import CacheState, Case, DeviceInfo, Kind, Measurement, ReplayRecord, Status, Tolerance, codec
from perfsvc.service.cluster.measure import MOST_MOVES, measure
from perfsvc.service.cluster.messages import AgentNews, Ended, LostError, PlanShare, packet

NAMES = ("a", "b", "c")


def device(uuid, model="H100"):
    return DeviceInfo("cuda", f"cuda:{uuid}", uuid, model, "sm_90")


def task(uuid, name):
    record = ReplayRecord(Case("scale", name), Kind.KERNEL, (), (), (), "", seed=0)
    return Task(uuid, record, (), CacheState.COLD, Sampling(), Tolerance(0, 0), NO_ARRAYS)


def measured(uuid, name, replica=0, status=Status.OK):
    return packet(AgentNews(measurement=Measurement(Case("scale", name), uuid, replica, status, samples_s=(1.0,))), {})


ENDED = packet(AgentNews(ended=Ended()), {})


@dataclass(eq=False)
class Agent:
    """An agent that sends what ``send`` returns for a share: packets, and perhaps an error at the end."""

    send: object
    place: str = "node x"
    shares: list = field(default_factory=list)
    killed: bool = False
    _packets: list = field(default_factory=list)

    def begin(self, share, blobs):
        self.shares.append(codec.decode(PlanShare, share))
        self._packets += self.send(self.shares[-1])

    def take(self):
        if not self._packets:
            return []
        first = self._packets.pop(0)
        if isinstance(first, Exception):
            raise first
        return [first]

    def end(self):
        self.killed = True


class Waits:
    """A cluster that does not wait."""

    name = "ray://head:1"

    def wait(self, gpus, limit_s):
        pass


def all_of(share):
    names = [each.record.case.variant for each in share.tasks]
    return [*(measured(share.device.uuid, name, replica) for name in names for replica in (0, 1)), ENDED]


def run(agents, spread="each-model", models=None, tasks=None):
    """Measure three cases in two replicas, planned for the first agent; return the results and the messages."""
    messages = []
    devices = {uuid: device(uuid, (models or {}).get(uuid, "H100")) for uuid in agents}
    planned = tasks or tuple(task(next(iter(agents)), name) for name in NAMES)
    plan = Plan(planned, replicas=2, seed=1, limit_s=60.0, spread=spread)
    of_cluster = {"cluster": Waits(), "gpus": agents, "hosts": dict.fromkeys(agents, "x")}
    return list(measure(plan, devices, messages.append, never, on_loss=None, **of_cluster)), messages


def keys(results):
    return Counter((each.device, each.case.variant, each.replica, each.status) for each in results)


EXPECTED = Counter(("A", name, replica, Status.OK) for name in NAMES for replica in (0, 1))


def test_what_arrives_twice_is_passed_on_once_and_what_nobody_asked_for_never():
    stray = [measured("B", "a"), measured("A", "z"), measured("A", "a", replica=7)]

    def twice(share):
        *results, ended = all_of(share)
        return [*stray, *results, *results, ended]

    results, _ = run({"A": Agent(twice)})
    assert keys(results) == EXPECTED


@pytest.mark.parametrize("fault", [LostError("it died"), (b"no json", {})])
def test_another_gpu_measures_what_a_lost_agent_has_not_delivered(fault):
    first = [measured("A", name, 0) for name in NAMES] + [measured("A", "a", 1), fault]
    results, messages = run({"A": Agent(lambda share: first), "B": Agent(all_of)})
    delivered = Counter({("A", name, 0, Status.OK): 1 for name in NAMES} | {("A", "a", 1, Status.OK): 1})
    moved = Counter(("B", name, replica, Status.OK) for name in ("b", "c") for replica in (0, 1))
    assert keys(results) == delivered + moved
    assert len(messages) == 1
    assert "B measures 2 of its cases" in messages[0]


@pytest.mark.parametrize(("spread", "model"), [("each-device", "H100"), ("each-model", "A100")])
def test_without_another_gpu_of_the_model_the_cases_fail(spread, model):
    tasks = (*(task("A", name) for name in NAMES), task("B", "d"))
    agents = {"A": Agent(lambda share: [measured("A", "a"), LostError("it died")]), "B": Agent(all_of)}
    results, _ = run(agents, spread, {"B": model}, tasks)
    failed = [each for each in results if each.status is Status.FAILED]
    assert Counter((each.device, each.case.variant) for each in failed) == Counter(("A", name) for name in NAMES)
    assert {each.reason for each in failed} == {"node x was lost: it died"}


def test_a_case_that_ends_each_host_fails_after_two_moves():
    agents = {uuid: Agent(lambda share: [LostError("it died")]) for uuid in "ABCD"}
    agents["E"] = Agent(all_of)
    tasks = (*(task("A", name) for name in NAMES), task("E", "e"))
    results, _ = run(agents, tasks=tasks)
    shares = Counter(
        each.record.case.variant for agent in agents.values() for share in agent.shares for each in share.tasks
    )
    assert max(shares[name] for name in NAMES) <= 1 + MOST_MOVES
    assert {each.case.variant for each in results} == {*NAMES, "e"}


def test_an_agent_that_ends_too_early_is_lost():
    results, messages = run({"A": Agent(lambda share: [measured("A", "a"), ENDED]), "B": Agent(all_of)})
    assert {each.case.variant for each in results} == set(NAMES)
    assert "ended before it had measured 3 of its cases" in messages[0]


def test_a_failed_case_needs_no_further_replica():
    def send(share):
        bad = measured("A", "a", status=Status.FAILED)
        return [bad, *all_of(share)[2:]]

    results, _ = run({"A": Agent(send)})
    assert keys(results)["A", "a", 0, Status.FAILED] == 1
    assert len(results) == 5


def test_no_usable_gpu_ends_the_run():
    with pytest.raises(NoDeviceError, match="node x was lost: it died"):
        run({"A": Agent(lambda share: [LostError("it died")])})


def test_an_abandoned_run_kills_its_agents():
    agent = Agent(lambda share: [measured("A", "a")])
    plan = Plan((task("A", "a"),), replicas=2, seed=1, limit_s=60.0)
    of_cluster = {"cluster": Waits(), "gpus": {"A": agent}, "hosts": {"A": "x"}}
    results = measure(plan, {"A": device("A")}, print, never, on_loss=None, **of_cluster)
    next(results)
    results.close()
    assert agent.killed


def test_the_gpus_of_a_host_divide_its_memory():
    agents = {"A": Agent(all_of), "B": Agent(all_of)}
    run(agents, "each-device", tasks=(task("A", "a"), task("B", "b")))
    assert [share.sharing for agent in agents.values() for share in agent.shares] == [2, 2]
