"""A night that is killed and resumed has the results of an undisturbed night."""

import signal
import subprocess
import sys
import time

import pytest

from perfsvc.notify.notifier import HEADER
from tests.conftest import receiving
from tests.e2e.nights import Nights, copied

KILLED_AT_COMMIT = """
import atexit, os, signal, sys
from sqlalchemy import Engine, event

left = allowed = int(sys.argv.pop(1))

@event.listens_for(Engine, "commit")
def count(connection):
    global left
    if connection.get_execution_options().get("writes"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

atexit.register(lambda: print(allowed - left, file=sys.stderr))
from perfsvc.cli import main
main()
"""
"""``perfsvc`` that kills itself instead of committing its N-th writing transaction, counted from 0. If it has fewer,
its last line is their number."""
MANY = 10_000
KILLS = 3
"""The number of commits at which a night is killed, evenly spread."""
STEPS = 3 * 2 + 2
"""The measurements of a night: three cases in two replicas, and the device's peak by a copy and a read."""

NOTIFY = """
[notify]
targets = { team = "TEAM_URL" }
"""
RUN = "select run_id, seed from nights join runs on runs.id = run_id where nights.id = 2"
RESULTS = {
    "verdicts": "select name, metric, verdict, ratio, cause from levels join series on series.id = series_id "
    "join cases on cases.id = case_id "
    "where run_id = 2 order by 1, 2",
    "measurements": "select name, replica, status, count(*), avg(median_s) from measurements "
    "join cases on cases.id = case_id where run_id = 2 group by 1, 2 order by 1, 2",
    "levels": "select name, metric, status, noise_within, noise_between from levels "
    "join series on series.id = series_id join cases on cases.id = case_id where run_id = 2 order by 1, 2",
    "devices": "select copy_bytes_per_s, read_bytes_per_s, statuses from run_devices where run_id = 2",
    "confirmations": "select name, cause, verdict, ratio from confirmations join series on series.id = series_id "
    "join cases on cases.id = case_id "
    "where run_id = 2",
    "findings": "select id, cause, state, first_run_id, last_run_id from findings",
    "their cases": "select finding_id, series_id, ratio from finding_cases",
    "their history": "select finding_id, kind, run_id, text from finding_events order by id",
    "messages": "select night_id, title, body from messages",
    "deliveries": "select target, sent_at is not null from deliveries",
    "stages": "select name, number, state, exit_code from stages where night_id = 2 order by number",
    "nights": "select id, state, run_id, exit_code, git_commit from nights",
    "runs": "select id, state from runs",
}
"""Queries for the results of a night, without times, paths and random numbers."""


class KilledNights(Nights):
    """Nights that notify a receiver, in a process that can be killed, after one night in the folder."""

    def __init__(self, perfsvc, receiver):
        self.perfsvc, self.suite, self.receiver = perfsvc, perfsvc.folder / "scale", receiver
        perfsvc.environment["TEAM_URL"] = receiver.address()

    def killed(self, commits, *arguments):
        """Run a night that is killed at a commit, or that ends if it has fewer commits."""
        command = [sys.executable, "-c", KILLED_AT_COMMIT, str(commits), "nightly", *arguments]
        return subprocess.run(
            command,
            cwd=self.perfsvc.folder,
            env=self.perfsvc.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    @property
    def results(self):
        return {name: self.perfsvc.rows(query) for name, query in RESULTS.items()}

    @property
    def keys(self):
        """The keys of all messages that the receiver got."""
        return {request.headers[HEADER] for request in self.receiver.received}


@pytest.fixture(scope="module")
def before(new_workplace):
    """A folder after one night, with a suite that a second night finds slower."""
    nights = Nights(new_workplace(), NOTIFY)
    nights.perfsvc.environment["TEAM_URL"] = "json://127.0.0.1:9/"
    nights(code=0)
    nights.slower()
    return nights.perfsvc.folder


def second_night(before, perfsvc, receiver):
    """Copy the folder as it was between both nights."""
    copied(before, perfsvc.folder)
    return KilledNights(perfsvc, receiver)


@pytest.fixture
def nights(before, perfsvc, receiver):
    return second_night(before, perfsvc, receiver)


@pytest.fixture(scope="module")
def undisturbed(before, new_workplace):
    """The results of the second night if it is not killed, and the number of its commits."""
    with receiving() as receiver:
        nights = second_night(before, new_workplace(), receiver)
        ended = nights.killed(MANY)
        assert ended.returncode == 1, ended.stderr
        assert len(nights.keys) == 1
    return nights.results, int(ended.stderr.splitlines()[-1])


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_killed_night_that_is_resumed_has_the_same_results(nights, undisturbed, kill):
    expected, commits = undisturbed
    assert nights.killed(commits * kill // KILLS).returncode == -signal.SIGKILL
    if not nights.perfsvc.rows("select 1 from nights where id = 2"):
        nights("--resume", code=2)
        nights(code=1)
    else:
        known = nights.perfsvc.rows(RUN)
        nights("--resume", code=1)
        assert nights.perfsvc.rows(RUN)[: len(known)] == known
    assert nights.results == expected
    assert len(nights.keys) == 1


def test_a_resumed_night_measures_only_what_is_not_stored(nights, undisturbed):
    _, commits = undisturbed
    nights.killed(commits * 2 // 5)
    ((stored,),) = nights.perfsvc.rows("select count(*) from measurements where run_id = 2")
    assert 0 < stored < STEPS - 2
    nights("--resume", code=1)
    assert [line["steps"] for line in nights.log(2) if line["event"] == "measuring"] == [STEPS, STEPS - 2 - stored]


def test_a_night_can_be_killed_several_times(nights, undisturbed):
    expected, commits = undisturbed
    each = commits // 3
    kills, ended = 0, nights.killed(each)
    while ended.returncode == -signal.SIGKILL:
        kills += 1
        ended = nights.killed(each, "--resume")
    assert ended.returncode == 1, ended.stderr
    assert kills > 1
    assert nights.results == expected
    assert len(nights.keys) == 1


def test_a_night_whose_suite_has_changed_is_not_resumed_and_stays_interrupted(nights):
    nights.killed(12)
    (source,) = nights.suite.glob("*/*.cu")
    before = source.read_text()
    source.write_text(before + "// changed again\n")
    ended = nights("--resume", code=2)
    assert "has changed since night 2 began" in ended.err
    assert "perfsvc nightly --resume, or leave that night as it is and begin another: perfsvc nightly" in ended.err
    source.write_text(before)
    ended = nights(code=1)
    assert "night 2 was stopped after its stage check and was not resumed" in ended.err
    ends = [("finished", 0), ("interrupted", None), ("finished", 1)]
    assert [(state, code) for state, code, _ in nights.nights()] == ends
    assert nights.perfsvc.rows("select state from runs") == [("finished",), ("interrupted",), ("finished",)]
    error = nights("--resume", code=2).err
    assert "night 3 is the newest of this host, and was not stopped before its end: there is none to resume" in error


def test_a_stopped_night_finishes_the_current_case_and_can_be_resumed(nights, undisturbed):
    expected, _ = undisturbed
    with nights.perfsvc.start("nightly") as process:
        while not nights.perfsvc.rows("select 1 from measurements where run_id = 2"):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)  # asking all the time takes a core
        process.terminate()
        _, err = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert nights.nights()[-1][:2] == ("interrupted", None)
    nights("--resume", code=1)
    assert nights.results == expected
    assert len(nights.keys) == 1
