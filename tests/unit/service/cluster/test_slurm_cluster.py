"""Submitting jobs, and what is left when a run ends, on a stand-in for Slurm."""

import contextlib
import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest

from perfsvc.config.settings import SlurmSettings
from perfsvc.errors import InfrastructureError, MissingPackageError, UsageError
from perfsvc.service.cluster import slurm_cluster
from perfsvc.service.cluster.lending import lent
from perfsvc.service.cluster.slurm_cluster import SlurmCluster
from tests.slurm_stand_in import slurm_stand_in


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


def test_a_shared_folder_that_cannot_be_made_is_named(tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    (tmp_path / "file").touch()
    with slurm_stand_in(tmp_path), pytest.raises(InfrastructureError, match="file for the jobs of Slurm cannot be"):
        SlurmCluster(SlurmSettings(folder=tmp_path / "file"), print)


def test_a_shared_folder_that_others_may_change_is_refused(tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with slurm_stand_in(tmp_path), pytest.raises(InfrastructureError, match="other users may write"):
        SlurmCluster(SlurmSettings(folder=tmp_path / "shared"), print)


def test_the_default_folder_is_private_whatever_the_umask(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "cache"))
    before = os.umask(0o002)
    try:
        with slurm_stand_in(tmp_path):
            SlurmCluster(SlurmSettings(), print).close()
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("cache", "cache/slurm")] == [0o700, 0o700]


def test_a_path_that_would_add_a_line_to_the_script_is_refused(tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    with slurm_stand_in(tmp_path), pytest.raises(UsageError, match="cannot be printed"):
        SlurmCluster(SlurmSettings(folder=tmp_path / "a\ntouch b"), print)


def test_a_shared_folder_that_disappears_is_named_and_closing_never_fails(tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    with slurm_stand_in(tmp_path) as slurm:
        cluster = SlurmCluster(SlurmSettings(folder=tmp_path / "shared"), print)
        shutil.rmtree(tmp_path / "shared")
        with pytest.raises(InfrastructureError, match="for the jobs of Slurm cannot be used: No such file"):
            cluster.request(("auto",))
        cluster.close()
        assert slurm.states() == {}


def test_jobs_do_not_get_the_secrets_of_perfsvc(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    secrets = {"PERFSVC_DB": "postgresql://me:hunter2@host/db", "PERFSVC_TOKEN": "hunter2", "PGPASSWORD": "hunter2"}
    passed_on = {"PERFSVC_CACHE": str(tmp_path / "cache"), "MY_OWN": "7"}
    for name, value in (secrets | passed_on).items():
        monkeypatch.setenv(name, value)
    with slurm_stand_in(tmp_path) as slurm:
        cluster = SlurmCluster(SlurmSettings(folder=tmp_path / "shared"), print)
        cluster.request(("auto",))
        variables = Path("/proc", (slurm.folder / "1" / "pid").read_text(), "environ").read_text().split("\0")
        files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        cluster.close()
    assert {f"{name}={value}" for name, value in passed_on.items()} <= set(variables)
    assert not [variable for variable in variables if "hunter2" in variable]
    assert b"hunter2" not in files
    assert all(os.environ[name] == value for name, value in secrets.items())


def test_jobs_that_slurm_does_not_cancel_are_named(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    messages = []
    with slurm_stand_in(tmp_path) as slurm:
        slurm.hold()
        cluster = SlurmCluster(SlurmSettings(folder=tmp_path / "shared"), messages.append)
        cluster.request(("auto",))
        (tmp_path / "slurm-commands" / "scancel").write_text("#!/bin/sh\necho no controller >&2\nexit 1\n")
        cluster.close()
    (message,) = messages
    assert message.startswith("scancel failed: no controller: type scancel 1 when Slurm answers")


def test_an_agent_that_cannot_start_keeps_its_log(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(slurm_cluster, "ASK_S", 0.2)
    (tmp_path / "numpy.py").write_text("raise OSError('the disk of this node is full')")
    messages, settings = [], SlurmSettings(folder=tmp_path / "shared")
    with (
        slurm_stand_in(tmp_path),
        contextlib.suppress(InfrastructureError),
        lent("slurm", ("auto",), messages.append, settings),
    ):
        pass
    assert "ended with the state FAILED: OSError: the disk of this node is full; see" in messages[0]
    (log,) = tmp_path.glob("shared/run-*/logs/*.err")
    assert str(log) in messages[0]
