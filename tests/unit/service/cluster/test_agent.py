"""The agent on the host of a GPU, and how it notices that measuring hangs."""

import json
import threading
import time

import pytest

from perfsvc.device.find import find
from perfsvc.measure.plan.order import Plan
from perfsvc.model import codec
from perfsvc.service.cluster import agent as agents
from perfsvc.service.cluster.agent import Agent
from perfsvc.service.cluster.messages import AgentNews, share_of

pytestmark = pytest.mark.timeout(60)
LIMIT_S = 0.5


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """An agent that measures with the function of a test, and the function that begins its share."""
    monkeypatch.setattr(agents, "SILENT_AGENT_S", LIMIT_S)
    agent = Agent()

    def begin(measure):
        monkeypatch.setattr(agents.pool, "measure", measure)
        (tmp_path / "gpu.json").write_text(json.dumps({"uuid": "FAKE"}))
        (device,) = find([f"fake:{tmp_path / 'gpu.json'}"])
        share, blobs = share_of(Plan((), 1, 0, 60.0), device, (), None, opening=False, sharing=1)
        agent.begin(codec.encode(share), blobs)
        return agent

    yield begin
    agent.end(1.0)


def test_an_agent_whose_measuring_hangs_says_so(agent):
    release = threading.Event()

    def hanging(*_, **__):
        yield from iter(release.wait, True)

    measuring = agent(hanging)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"measuring on .* has hung for 0\.5s"):
        list(iter(lambda: measuring.take(0.05), None))
    assert time.monotonic() - began >= LIMIT_S
    release.set()


@pytest.mark.slow
def test_an_agent_that_measures_a_long_case_or_nothing_does_not_hang(agent):
    ends = time.monotonic() + 3 * LIMIT_S

    def long(_plan, _devices, _report, _servers, stopping, **_):
        while time.monotonic() < ends:  # as the pool does while a case runs
            stopping()
            time.sleep(0.05)
        yield from ()

    measuring = agent(long)
    packets = []
    while time.monotonic() < ends + 2 * LIMIT_S:
        packets += measuring.take(0.05)
    (packet,) = packets
    assert codec.decode(AgentNews, packet[0]).ended.refusal == ""
