"""Scheduled nights: the printed files start a night, and the daemon catches up and stops."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.nights import Nights
from tests.e2e.processes import wait_for

BENCH = """
import os, time
from pathlib import Path

import numpy as np
from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

FOLDER = Path({folder!r})


def wait(arrays, stream):
    arrays["total"][0] = np.asarray(arrays["a"]).sum(dtype=np.float64)
    (FOLDER / f"begun-{{time.time_ns()}}").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.01)
    return {{"latency_ms": 1.0}}


benchmark = Benchmark(
    axes={{"n": (100,)}},
    smoke={{"n": 100}},
    inputs=lambda rng, n: {{"a": rng.random(n, dtype=np.float32)}},
    outputs={{"total": output("float32", 1)}},
    reference=lambda a: a.sum(),
    tolerance=Tolerance(max=1e-5, mean=1e-5),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4, flops=n),
    variants=[Variant(name, kind="host", run=wait) for name in "abc"],
)
"""
SETTINGS = """
suite = "suite"
[run]
devices = ["cpu"]
replicas = 1
[check]
enabled = false
[dashboard]
enabled = false
"""


class Daemon:
    """``perfsvc schedule run`` with a suite whose cases last until there is a file ``go``."""

    def __init__(self, perfsvc):
        self.perfsvc, self.output = perfsvc, perfsvc.folder / "output"
        (perfsvc.folder / "perfsvc.toml").write_text(SETTINGS)
        bench = perfsvc.folder / "suite" / "waits" / "bench.py"
        bench.parent.mkdir(parents=True)
        bench.write_text(BENCH.format(folder=str(perfsvc.folder)))
        self.go = perfsvc.folder / "go"
        self.go.touch()
        perfsvc("nightly", code=0)
        self.wait_again()
        connection = sqlite3.connect(perfsvc.database)
        with connection:
            connection.execute("UPDATE nights SET started_at = datetime(started_at, '-2 days')")
        connection.close()
        shutil.rmtree(perfsvc.folder / "data")  # it would remember another time

    def wait_again(self):
        for file in (self.go, *self.perfsvc.folder.glob("begun-*")):
            file.unlink(missing_ok=True)

    @property
    def begun(self):
        return [file.name for file in self.perfsvc.folder.glob("begun-*")]

    def reported(self, words):
        return lambda: words in self.output.read_text()

    @contextmanager
    def started(self):
        """Start the daemon one hour after a night was due."""
        at = f"{datetime.now(UTC) - timedelta(hours=1):%H:%M}"
        command = [sys.executable, "-m", "perfsvc", "schedule", "run", "--at", at, "--timezone", "Etc/UTC"]
        with (
            self.output.open("w") as output,
            subprocess.Popen(
                command, cwd=self.perfsvc.folder, env=self.perfsvc.environment, stdout=output, stderr=output
            ) as process,
        ):
            try:
                yield process
            finally:
                self.go.touch()
                process.kill()

    def states(self):
        return self.perfsvc.rows("select state, exit_code from nights order by id")

    def measured(self, run):
        return self.perfsvc.rows("select count(*), count(distinct case_id) from measurements where run_id = ?", run)


@pytest.fixture
def daemon(perfsvc):
    return Daemon(perfsvc)


def test_the_daemon_catches_up_stops_after_the_current_case_and_resumes_the_night(daemon):
    with daemon.started() as process:
        wait_for(lambda: daemon.begun)
        process.send_signal(signal.SIGTERM)
        wait_for(daemon.reported("stopping: waiting for waits/"))
        daemon.go.touch()
        assert process.wait(60) == 143
    assert daemon.reported("was missed, and begins now")()
    assert daemon.states() == [("finished", 0), ("interrupted", None)]
    assert daemon.measured(2) == [(1, 1)]
    assert len(daemon.begun) == 1
    with daemon.started() as process:
        wait_for(daemon.reported("the night ended with exit code 0"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert daemon.reported("was stopped, and is resumed")()
    assert daemon.states() == [("finished", 0)] * 2
    assert daemon.measured(2) == [(3, 3)]


def test_a_second_signal_ends_the_daemon_and_its_night_at_once(daemon):
    with daemon.started() as process:
        wait_for(lambda: daemon.begun)
        process.send_signal(signal.SIGTERM)
        wait_for(daemon.reported("stopping: waiting for waits/"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 143  # the current case would last for ever
    wait_for(lambda: daemon.states()[1:] == [("interrupted", None)])
    assert daemon.measured(2) == [(0, 0)]


# --- what is printed -------------------------------------------------------------------------------------------------


@pytest.fixture
def nights(perfsvc):
    return Nights(perfsvc)


def test_the_line_for_cron_runs_a_night_in_any_folder_without_an_environment(nights, tmp_path_factory):
    perfsvc = nights.perfsvc
    perfsvc.environment |= {"PATH": "/usr/bin:/bin"}
    wanted = ("schedule", "print", "--at", "02:00", "--as", "cron")
    ended = perfsvc(*wanted, code=0)
    printed = ended.out
    assert "perfsvc.env" in printed  # PERFSVC_DB is set here
    assert "perfsvc.env yet, and no night begins without it: it must set PERFSVC_DB" in ended.err
    (perfsvc.folder / "perfsvc.env").write_text(f"PERFSVC_DB='{perfsvc.database}'\n")
    assert perfsvc(*wanted, code=0).err == ""
    when, _, command = printed.splitlines()[-1].partition("  ")
    assert when == "0 2 * * *"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    subprocess.run(["/bin/sh", "-c", command.replace("\\%", "%")], env={}, cwd=elsewhere, check=True)
    assert nights.nights() == [("finished", 0, 1)]
    assert "night 1  finished" in (perfsvc.folder / "nightly.log").read_text()


FILES = {
    "cron": ["perfsvc-nightly.crontab"],
    "systemd": ["perfsvc-nightly.service", "perfsvc-nightly.timer"],
    "kubernetes": ["perfsvc-nightly.yaml"],
    "slurm": ["perfsvc-nightly.sh"],
}
REFUSED = {
    "'25:00' is no time of day; write hours and minutes, such as 02:00": ("--at", "25:00"),
    "'Berlin' is no time zone; write a zone such as Europe/Berlin or Etc/UTC": ("--timezone", "Berlin"),
    "'forever' is no duration": ("--limit", "forever"),
}


def test_the_printed_files_can_be_written_to_a_folder_and_a_wrong_option_is_refused(nights):
    perfsvc = nights.perfsvc
    for kind, files in FILES.items():
        arguments = ("schedule", "print", "--at", "02:00", "--as", kind, "--timezone", "Europe/Berlin")
        printed = perfsvc(*arguments, code=0).out
        folder = perfsvc.folder / "new" / kind
        assert perfsvc(*arguments, "--output", folder, code=0).out == ""
        assert sorted(path.name for path in folder.iterdir()) == files
        assert all((folder / name).read_text() in printed for name in files)
        assert str(perfsvc.folder) in printed
    for message, option in REFUSED.items():
        assert message in perfsvc("schedule", "print", "--at", "02:00", "--as", "cron", *option, code=2).err


# --- pruning ---------------------------------------------------------------------------------------------------------


def samples(perfsvc):
    return [run for (run,) in perfsvc.rows("select distinct run_id from measurements where samples is not null")]


def test_db_prune_shows_what_it_would_remove_and_a_night_prunes_by_its_settings(nights):
    for _ in range(3):
        nights(code=0)
    perfsvc = nights.perfsvc
    time.sleep(1.1)
    kept = perfsvc("db", "prune", code=0)
    assert kept.out.splitlines() == [
        "everything is kept for ever: set a limit in [retention] of perfsvc.toml or with --samples 90d",
        "nothing to prune",
    ]
    tried = perfsvc("db", "prune", "--samples", "1s", "--nights", "1s", "--dry-run", code=0).out.splitlines()
    assert tried[0].startswith("would be removed: 12 measurements' samples (")
    assert tried[1] == "would be removed: 2 nights"
    assert samples(perfsvc) == [1, 2, 3]
    pruned = perfsvc("db", "prune", "--samples", "1s", "--vacuum", "--format", "json", code=0).json
    assert pruned["samples"]["count"] == 12
    assert pruned["size_bytes"] == pruned["samples"]["size_bytes"] > 0
    assert pruned["dry_run"] is False
    assert samples(perfsvc) == [3]
    assert Path(perfsvc.folder / "nights" / "1" / "report.html").exists()
    nights.settings('\n[retention]\nsamples = "1s"\nbinaries = "1s"\nprofiles = "1s"\nnights = "1s"\n')
    nights.slower()
    nights(code=1)
    assert nights.result(4, "findings")[0] == "1 raised"
    assert nights.result(4, "prune")[0].startswith("6 measurements' samples (")
    assert samples(perfsvc) == [4]
    assert perfsvc.rows("select id from nights") == [(4,)]
    shown = perfsvc("show", "scale/beta[n=100]", code=0).out
    assert len([line for line in shown.splitlines() if " µs" in line]) >= 4
