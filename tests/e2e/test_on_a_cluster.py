"""``perfsvc run --on``: the whole run on a cluster whose agents are in this process."""

from unittest import mock

import pytest

from tests.cluster_here import ClusterHere

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


def test_suspects_are_measured_again_on_the_cluster(perfsvc, on_cluster):
    for _ in range(2):
        on_cluster(cases=FAST, code=0)
    perfsvc.rebuild(perfsvc.folder / "scale")
    ended = on_cluster("--confirm", cases=SLOW, code=0)  # the fake GPU is slower for the old code too: not the code
    confirmations = ended.json["confirmations"]
    assert {(answer["variant"], answer["device"]) for answer in confirmations} == {("beta", "A")}
    assert all(len(answer[side]) >= 3 for answer in confirmations for side in ("baseline", "candidate"))


def test_a_profile_needs_a_gpu_of_this_host(perfsvc):
    ended = perfsvc("run", "--on", "ray://head:1", "--confirm", "--profile", code=2)
    assert "leave out --profile or --on" in ended.err
