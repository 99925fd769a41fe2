"""The folder of a run on Slurm after commands that were killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfsvc.service.cluster.run_folder import make_run_folder


def test_the_folder_of_a_killed_command_is_removed_by_the_next(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from perfsvc.service.cluster.run_folder import make_run_folder; "
        "print(make_run_folder(Path(sys.argv[1])), flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True) as command:
        killed = Path(command.stdout.readline().strip())
        (killed / "0.orders").touch()
        assert make_run_folder(tmp_path) != killed
        assert killed.exists()
        command.kill()
    living = make_run_folder(tmp_path)
    assert killed not in set(tmp_path.iterdir())
    assert living.exists()


@pytest.mark.parametrize(("age_s", "is_kept"), [(3600, True), (30 * 3600, False)])
def test_the_folder_of_a_command_on_another_host_is_removed_if_it_is_old(tmp_path, age_s, is_kept):
    other = make_run_folder(tmp_path)
    (other / "command").write_text("elsewhere 1 123 456")
    past_s = time.time() - age_s
    os.utime(other / "command", (past_s, past_s))
    make_run_folder(tmp_path)
    assert other.exists() == is_kept


def test_logs_that_were_kept_stay(tmp_path):
    logs = tmp_path / "run-1" / "logs"
    logs.mkdir(parents=True)
    make_run_folder(tmp_path)
    assert logs.exists()
