"""Submitting jobs, and what is left when a run ends, on a stand-in for Slurm."""

import contextlib
import os
import re
import shutil
import stat
import sys
import time
from pathlib import Path

import pytest

from perfsvc.config.settings import SlurmSettings
from perfsvc.errors import InfrastructureError, MissingPackageError, UsageError
from perfsvc.service.cluster import shared_folder, slurm_cluster, slurm_jobs
from perfsvc.service.cluster.lending import lent
from perfsvc.service.cluster.slurm_cluster import SlurmCluster
from tests.slurm_stand_in import slurm_stand_in


@pytest.fixture
def slurm(tmp_path):
    """A stand-in for Slurm."""
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    with slurm_stand_in(tmp_path) as stand_in:
        yield stand_in


def cluster_in(folder, report=print, **settings):
    return SlurmCluster(SlurmSettings(folder=folder, **settings), report)


def test_without_submitit_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MissingPackageError, match="needs submitit, which is not") as told, lent("slurm", (), print):
        pass
    assert re.search(r"submitit|\[slurm\]", told.value.cure)


def test_without_slurm_the_error_names_the_missing_commands(monkeypatch, tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="missing on this host: sbatch, squeue, scancel, srun"):
        SlurmCluster(SlurmSettings(), print)


def test_a_shared_folder_that_cannot_be_made_or_others_may_change_is_refused(slurm, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match="file for the jobs of Slurm cannot be"):
        cluster_in(tmp_path / "file")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(InfrastructureError, match="other users may write"):
        cluster_in(tmp_path / "shared")
    with pytest.raises(UsageError, match="cannot be printed"):
        cluster_in(tmp_path / "a\ntouch b")


def test_the_default_folder_is_private_whatever_the_umask(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "cache"))
    before = os.umask(0o002)
    try:
        SlurmCluster(SlurmSettings(), print).close()
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("cache", "cache/slurm")] == [0o700, 0o700]


def test_a_shared_folder_that_disappears_is_named_and_closing_never_fails(slurm, tmp_path):
    cluster = cluster_in(tmp_path / "shared")
    shutil.rmtree(tmp_path / "shared")
    with pytest.raises(InfrastructureError, match="for the jobs of Slurm cannot be used: No such file"):
        cluster.request(("auto",))
    cluster.close()
    assert slurm.states() == {}


def test_jobs_do_not_get_the_secrets_of_perfsvc(slurm, tmp_path, monkeypatch):
    secrets = {"PERFSVC_DB": "postgresql://me:hunter2@host/db", "PERFSVC_TOKEN": "hunter2", "PGPASSWORD": "hunter2"}
    passed_on = {"PERFSVC_CACHE": str(tmp_path / "cache"), "MY_OWN": "7"}
    for name, value in (secrets | passed_on).items():
        monkeypatch.setenv(name, value)
    cluster = cluster_in(tmp_path / "shared")
    cluster.request(("auto",))
    variables = Path("/proc", (slurm.folder / "1" / "pid").read_text(), "environ").read_text().split("\0")
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    cluster.close()
    assert {f"{name}={value}" for name, value in passed_on.items()} <= set(variables)
    assert not [variable for variable in variables if "hunter2" in variable]
    assert b"hunter2" not in files
    assert all(os.environ[name] == value for name, value in secrets.items())


def test_a_lost_job_is_cancelled_by_the_thread_that_asks_and_jobs_that_slurm_does_not_cancel_are_named(slurm, tmp_path):
    slurm.hold()
    messages = []
    cluster = cluster_in(tmp_path / "shared", messages.append, gpus=[{"count": 2}])
    first, _ = cluster.request(("auto",))
    first.end()
    while slurm.states() != {"1": "CANCELLED", "2": "PENDING"}:
        time.sleep(0.05)
    (tmp_path / "slurm-commands" / "scancel").write_text("#!/bin/sh\necho no controller >&2\nexit 1\n")
    cluster.close()
    (message,) = messages
    assert message.startswith("scancel failed: no controller: type scancel 1 2 when Slurm answers")


def hanging(tmp_path, command):
    """Let a command of the stand-in not end; return the file with the number of its process."""
    (tmp_path / "slurm-commands" / command).write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 1000\n")
    return tmp_path / "pid"


@pytest.mark.timeout(30)
def test_an_sbatch_that_hangs_ends_the_run_and_its_process(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_cluster, "SUBMIT_S", 1.0)
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    cluster = cluster_in(tmp_path / "shared")
    pid = hanging(tmp_path, "sbatch")
    with pytest.raises(InfrastructureError, match="sbatch did not end within 1s") as told:
        cluster.request(("auto",))
    assert "PGPASSWORD" not in os.environ  # an abandoned thread may still start sbatch
    (script,) = (tmp_path / "shared").glob("run-*/logs/.submission_file_*.sh")
    (name,) = re.findall(r"^#SBATCH --job-name=(perfsvc-\S+)$", script.read_text(), re.MULTILINE)
    cluster.close()
    assert "see whether sinfo answers" in told.value.cure
    assert f"scancel --user=$USER --name={name} cancels it" in told.value.cure
    while Path("/proc", pid.read_text().strip()).exists():
        time.sleep(0.05)
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_scancel_that_hangs_delays_no_gpu_and_the_end_only_once(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_jobs, "COMMAND_S", 1.0)
    slurm.hold()
    messages = []
    cluster = cluster_in(tmp_path / "shared", messages.append, gpus=[{"count": 6}])
    gpus = cluster.request(("auto",))
    hanging(tmp_path, "scancel")
    began = time.monotonic()
    for gpu in gpus:
        gpu.end()
    assert time.monotonic() - began < 0.9
    cluster.close()
    assert time.monotonic() - began < 3 * 1.0 + 2.0  # not six times a second
    (message,) = messages
    assert message.startswith("scancel did not end within 1s: type scancel 1 2 3 4 5 6 when Slurm answers")


def test_a_folder_that_does_not_answer_at_the_start_is_named(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(shared_folder, "FOLDER_S", 0.5)
    monkeypatch.setattr(slurm_cluster, "make_run_folder", lambda _: time.sleep(1.0))
    with pytest.raises(InfrastructureError, match=r"shared has not answered for 0\.5s"):
        cluster_in(tmp_path / "shared")


@pytest.mark.slow
def test_an_agent_that_cannot_start_keeps_its_log(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(slurm_cluster, "ASK_S", 0.2)
    (tmp_path / "numpy.py").write_text("raise OSError('the disk of this node is full')")
    messages, settings = [], SlurmSettings(folder=tmp_path / "shared")
    with contextlib.suppress(InfrastructureError), lent("slurm", ("auto",), messages.append, settings):
        pass
    assert "ended with the state FAILED: OSError: the disk of this node is full; see" in messages[0]
    (log,) = tmp_path.glob("shared/run-*/logs/*.err")
    assert str(log) in messages[0]
