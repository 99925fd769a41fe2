"""``perfsvc run --on``: the whole run on a cluster whose agents are in this process."""

import json
from unittest import mock

import pytest

from perfsvc.service.cluster.protocol import LostError
from tests.cluster_here import AgentHere, ClusterHere

FAST, SLOW = {"*": {"seconds": 1e-4}}, {"*": {"seconds": 1e-4}, "scale/beta": {"seconds": 2e-4}}


@pytest.fixture
def on_cluster(perfsvc):
    """Return a function that runs a case of the suite ``scale`` on the fake GPU of a cluster."""

    def run(*arguments, cases, code):
        perfsvc.play(cases, uuid="A")
        with mock.patch("perfsvc.service.cluster.lending._connect", ClusterHere):
            options = ("--on", "here", "--device", f"fake:{perfsvc.script}", "--suite", perfsvc.folder / "scale")
            return perfsvc("run", *options, "--select", "scale/beta", "--format", "json", *arguments, code=code)

    perfsvc.own("scale")
    return run


@pytest.mark.slow
def test_suspects_are_measured_again_on_the_cluster(perfsvc, on_cluster):
    for _ in range(2):
        on_cluster(cases=FAST, code=0)
    perfsvc.rebuild(perfsvc.folder / "scale")
    ended = on_cluster("--confirm", cases=SLOW, code=0)  # the fake GPU is slower for the old code too: not the code
    confirmations = ended.json["confirmations"]
    assert {(answer["variant"], answer["device"]) for answer in confirmations} == {("beta", "A")}
    assert all(len(answer[side]) >= 3 for answer in confirmations for side in ("baseline", "candidate"))


@pytest.mark.slow
def test_a_gpu_whose_agent_is_lost_before_it_names_its_host_has_no_environment(perfsvc, monkeypatch):
    devices = []
    for uuid in "AB":
        path = perfsvc.folder / f"{uuid}.json"
        path.write_text(json.dumps({"uuid": uuid, "cases": FAST}))
        devices += ["--device", f"fake:{path}"]
    (perfsvc.folder / "perfsvc.toml").write_text('segments.parts = ["host.*"]')
    command = ("run", "--on", "here", *devices, "--suite", perfsvc.own("scale"), "--select", "scale/beta")

    def losing(method):
        def lost(agent, *arguments):
            if "B.json" in agent._spec:
                raise LostError("it hangs")
            return method(agent, *arguments)

        return lost

    with mock.patch("perfsvc.service.cluster.lending._connect", ClusterHere):
        perfsvc(*command, code=0)
        with monkeypatch.context() as patch:
            for name in ("parts", "take"):
                patch.setattr(AgentHere, name, losing(getattr(AgentHere, name)))
            ended = perfsvc(*command, code=4)
        after = perfsvc(*command, code=0)
    assert "it hangs" in ended.out
    assert "has changed since run" not in ended.err + after.err
    query = "SELECT e.parts FROM full_environments e JOIN runs ON full_environment_id = e.id ORDER BY runs.id"
    full = [json.loads(parts) for (parts,) in perfsvc.rows(query)]
    assert [sorted(each["devices"]) for each in full] == [["A", "B"], ["A"], ["A", "B"]]
    assert all("host.name" in each["common"] for each in full)
    query = "SELECT DISTINCT environment_id FROM measurements m JOIN devices d ON d.id = device_id WHERE uuid = 'B'"
    assert len(perfsvc.rows(query)) == 1


def test_a_profile_needs_a_gpu_of_this_host(perfsvc):
    ended = perfsvc("run", "--on", "ray://head:1", "--confirm", "--profile", code=2)
    assert "leave out --profile or --on" in ended.err
