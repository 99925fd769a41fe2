"""Workers whose behaviour a test scripts: they exchange messages with the pool and have no device."""

import contextlib
import gc
import json
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest

from perfsvc.device.find import find
from perfsvc.measure.host import device_queue, pool
from perfsvc.measure.host.pool import worker_servers
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Case, Kind, ReplayRecord, Tolerance
from perfsvc.process.shared_memory import share

WORKER = """
import json
import os
import signal
import sys
import time
from pathlib import Path

from perfsvc.model import codec
from perfsvc.device.find import find
from perfsvc.process import frames
from perfsvc.measure.protocol.messages import CheckedResult, Measured, Ready, Refused, Reply, Request
from perfsvc.model import Case, Error, Measurement, Status

print("output of the worker", flush=True)


def receive():
    frame = frames.receive(pool)
    return frame and (codec.decode(Request, frame.text).body, frame.blobs)


def send(body):
    frames.send(pool, codec.encode(Reply(body)))


def log(*values):
    with (folder / "log").open("a") as file:
        file.write(json.dumps([os.getpid(), *values]) + "\\n")


def wait_for(condition):
    while not condition():
        time.sleep(0.02)


def logged():
    return (folder / "log").read_text()


{born}
request = receive()
if request is None:
    sys.exit()
(opening, (helper_kernels,)) = request
(device,) = find([opening.device])
{start}
send(Ready(device))
while (request := receive()) is not None:
    job, modules = request
    variant = job.record.case.variant
    checked = None
    print("output of", variant, flush=True)
    {each}
    if variant == "bad":
        {bad}
    measurement = Measurement(job.record.case, device.uuid, job.replica, Status.OK, cache=job.cache, samples_s=(1.0,))
    send(Measured(measurement, True, checked))
    {after}
{end}
"""

SERVER = """
import sys
from pathlib import Path

from perfsvc.process import fork_server
from perfsvc.measure.worker.main import prepare

folder = Path(sys.argv[0]).parent
prepare()  # like the real server, so that its workers find their imports


def worker(pool):
    exec((folder / "worker.py").read_text(), {"pool": pool, "folder": folder})
    return 0


sys.exit(fork_server.main(*map(int, sys.argv[-3:-1]), lambda: worker))
"""


@pytest.fixture(autouse=True)
def nothing_to_collect():
    """Spare the garbage collector what there is by now: measuring collects garbage for each case."""
    gc.freeze()


NO_WAIT = Sampling(recovery_s=0)


@dataclass
class Work:
    """Measures the variants good, bad and fine with scripted workers.

    Attributes:
        messages: what the pool reported to the user.
    """

    folder: Path
    messages: list[str] = field(default_factory=list)

    def devices(self, *names, model="Fake GPU"):
        for name in names:
            (self.folder / f"{name}.json").write_text(json.dumps({"uuid": name, "model": model}))
        return {device.uuid: device for device in find([f"fake:{self.folder / name}.json" for name in names])}

    def play(self, *, born="pass", start="pass", each="pass", bad="pass", after="pass", end="pass"):
        """Script what a worker does at its start, when it has its device, at each case, after it, and at its end."""
        script = WORKER.format(born=born, start=start, each=each, bad=bad, after=after, end=end)
        (self.folder / "worker.py").write_text(script)

    def task(self, variant, device="only", arrays=None, *, cache=CacheState.COLD, sampling=NO_WAIT, replicas=None):
        record = ReplayRecord(Case("scale", variant), Kind.KERNEL, (), (), (), "", seed=0)
        recipe = arrays or Recipe("none", lambda: share({}, {}))
        return Task(device, record, (), cache, sampling, Tolerance(0, 0), recipe, replicas=replicas)

    def measure(self, plan, devices):
        return list(pool.measure(plan, devices, self.messages.append))

    def logged(self):
        """Return what the workers logged, each line with a number of the worker, in the order of their first lines."""
        lines = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        pids = list(dict.fromkeys(pid for pid, *_ in lines))
        return [(pids.index(pid), *values) for pid, *values in lines]

    def born(self):
        """Return the process ids of the workers that logged anything."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return list(dict.fromkeys(json.loads(line)[0] for line in lines))

    def __call__(self, *names, replicas=2, limit_s=30.0, preparation_s=0.0, sampling=NO_WAIT, **script):
        self.play(**script)
        devices = self.devices("only")
        recipe = Recipe("none", lambda: time.sleep(preparation_s) or share({}, {}))
        tasks = tuple(self.task(name, "only", recipe, sampling=sampling) for name in names or ("good", "bad", "fine"))
        measurements = self.measure(Plan(tasks, replicas, 1, limit_s), devices)
        return {(measurement.case.variant, measurement.replica): measurement for measurement in measurements}


@pytest.fixture(scope="session")
def scripted(tmp_path_factory):
    """Return the folder of scripted workers, and fork servers that start them."""
    folder = tmp_path_factory.mktemp("scripted")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "server.py"} "$@"\n')
    python.chmod(0o755)
    (folder / "server.py").write_text(SERVER)
    with mock.patch.object(sys, "executable", str(python)):
        servers = worker_servers()
    with servers:
        yield folder, servers


@pytest.fixture
def work(scripted, monkeypatch):
    """Measure with scripted workers, which all tests fork from the same server."""
    folder, servers = scripted
    for path in folder.iterdir():
        if path.name not in {"python", "server.py"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(pool, "worker_servers", lambda: contextlib.nullcontext(servers))
    monkeypatch.setattr(device_queue, "POLL_S", 0.02)
    monkeypatch.setattr(device_queue, "LOCK_POLL_S", 0.02)
    monkeypatch.setenv("PERFSVC_LOCKS", str(folder / "locks"))
    return Work(folder)


@pytest.fixture
def own_servers(work, monkeypatch):
    """Start fork servers for the test alone."""
    monkeypatch.setattr(pool, "worker_servers", worker_servers)
