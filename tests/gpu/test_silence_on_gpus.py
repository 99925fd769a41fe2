"""Nights on GPUs that the driver lists no longer: CUDA_VISIBLE_DEVICES hides them."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from perfsvc.device import VISIBLE

pytestmark = pytest.mark.gpu

SCALE = Path(__file__).parents[1] / "e2e" / "suites" / "scale"
SETTINGS = """
suite = "scale"

[run]
devices = ["auto"]
points = "smoke"
replicas = 1
samples = 20

[check]
enabled = false

[confirm]
enabled = false

[profile]
enabled = false

[dashboard]
enabled = false
{notify}"""


class Box:
    """A folder with a suite and settings, in which nights run that see some of the GPUs."""

    def __init__(self, folder, receiver):
        self.folder, self.receiver = folder, receiver
        shutil.copytree(SCALE, folder / "scale")
        notify = '[notify]\ntargets = { team = "TEAM_URL" }\n' if find_spec("apprise") else ""
        (folder / "perfsvc.toml").write_text(SETTINGS.format(notify=notify))

    def night(self, visible, *, code, messages):
        """Run a night that ends with a code and sends so many messages, if Apprise is here."""
        before = len(self.receiver.received)
        kept = {name: value for name, value in os.environ.items() if name != VISIBLE}
        done = subprocess.run(
            [sys.executable, "-m", "perfsvc", "nightly"],
            cwd=self.folder,
            env=kept
            | {"PERFSVC_DB": str(self.folder / "perfsvc.db"), "TEAM_URL": self.receiver.address()}
            | ({} if visible is None else {VISIBLE: visible}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        sent = [json.loads(received.content)["title"] for received in self.receiver.received[before:]]
        assert len(sent) == (messages if find_spec("apprise") else 0), sent

    def rows(self, query):
        with closing(sqlite3.connect(self.folder / "perfsvc.db")) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def box(tmp_path, receiver):
    return Box(tmp_path, receiver)


def test_a_gpu_that_cuda_visible_devices_hides_is_reported_that_night_once(gpus, box):
    if len({gpu.uuid for gpu in gpus}) < 2:
        pytest.skip("this machine has one GPU, so that none can be hidden from a night that measures")
    first, *others = [gpu.uuid for gpu in gpus]
    box.night(None, code=0, messages=0)
    box.night(first, code=5, messages=1)
    ((text,),) = box.rows("select root_cause || ': ' || evidence from findings where cause = 'missing'")
    assert all(uuid in text for uuid in others)
    assert first not in text
    box.night(first, code=5, messages=0)
    box.night(None, code=0, messages=1)
    assert {state for (state,) in box.rows("select state from findings")} == {"resolved"}


def test_auto_does_not_measure_the_cpu_once_all_gpus_are_hidden(gpus, box):
    box.night(None, code=0, messages=0)
    box.night("", code=5, messages=1)
    assert box.rows("select count(*) from devices where kind = 'cpu'") == [(0,)]
    ((message,),) = box.rows("select message from stages where name = 'run' and state = 'failed'")
    assert all(gpu.uuid in message for gpu in gpus)
