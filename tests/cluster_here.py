"""A cluster whose agents are in this process: all of a cluster but Ray or Slurm."""

import time
from unittest import mock

from perfsvc.service.cluster.agent import Agent


class AgentHere:
    """A lent GPU whose agent is in this process."""

    place = "this process"
    is_starting = False

    def __init__(self, spec):
        self._agent, self._spec = Agent(), spec

    def facts(self):
        return self._agent.facts(self._spec)

    def parts(self, device, benches):
        return self._agent.parts(device, benches)

    def begin(self, share, blobs):
        self._agent.begin(share, {name: blobs[name] for name in self._agent.missing(blobs)})

    def take(self):
        return self._agent.take(0.0)

    def drop(self, positions):
        self._agent.drop(positions)

    def stop(self):
        self._agent.stop()

    def end(self):
        self._agent.end(20.0)


class ClusterHere:
    """A cluster of fake GPUs."""

    patience_s = 60.0
    priority_cure = ""

    def __init__(self, name, *_):
        self.name = name
        self._gpus = []
        # The agents of this process share the processes that make inputs. A lost agent must not stop those of the
        # others, as it cannot when it has a process of its own.
        self._unstopped = mock.patch("perfsvc.suite.isolated.stop")
        self._unstopped.start()

    def request(self, specs):
        self._gpus = [AgentHere(spec) for spec in specs]
        return self._gpus

    def wait(self, gpus, limit_s):
        time.sleep(0.01)

    def close(self):
        for gpu in self._gpus:
            gpu.end()
        self._unstopped.stop()
