"""A night that is killed and gone on with comes to what it had come to undisturbed."""

import signal
import subprocess
import sys

import pytest

from perfsvc.notify.notifier import HEADER
from tests.conftest import receiving
from tests.e2e.nights import Nights, copied

pytestmark = pytest.mark.slow  # nights that are killed and resumed

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
"""``perfsvc``, which kills itself instead of committing its N-th transaction that writes, counted from 0; where it does
not come to that, the last that it says is how many there were."""
MANY = 10_000
PLACES = 10
"""At so many places, evenly spread over the commits of a night, it is killed here; ``tests/benchmarks/killed_nights.py``
kills at moments of any kind."""
STEPS = 3 * 2 + 2
"""What a night of these measures: three cases in two replicas, and the GPU's measured peak by a copy and a read."""

TOLD = """
[notify]
targets = { team = "TEAM_URL" }
"""
RUN = "select run_id, seed from nights join runs on runs.id = run_id where nights.id = 2"
RESULTS = {
    "verdicts": "select name, metric, verdict, ratio, cause from verdicts join cases on cases.id = case_id "
    "where run_id = 2 order by 1, 2",
    "measurements": "select name, replica, status, count(*), avg(median_s) from measurements "
    "join cases on cases.id = case_id where run_id = 2 group by 1, 2 order by 1, 2",
    "noise": "select name, noise_within, noise_between from noise join cases on cases.id = case_id where run_id = 2 "
    "order by 1",
    "peaks": "select copy_bytes_per_s, read_bytes_per_s from peaks where run_id = 2",
    "confirmations": "select name, cause, verdict, ratio from confirmations join cases on cases.id = case_id "
    "where run_id = 2",
    "findings": "select id, cause, state, first_run_id, last_run_id from findings",
    "their cases": "select finding_id, name, ratio from finding_cases join cases on cases.id = case_id",
    "their history": "select finding_id, kind, run_id, text from finding_events order by id",
    "messages": "select night_id, title, body from messages",
    "deliveries": "select target, sent_at is not null from deliveries",
    "stages": "select name, number, state, exit_code from stages where night_id = 2 order by number",
    "nights": "select id, state, run_id, exit_code, git_commit from nights",
    "runs": "select id, state from runs",
}
"""What a night has come to, by query; times, paths and numbers that chance gives are left out."""


class KilledNights(Nights):
    """Nights that tell a receiver, in a process that can be killed; in a folder where one was already."""

    def __init__(self, perfsvc, receiver):
        self.perfsvc, self.suite, self.receiver = perfsvc, perfsvc.folder / "scale", receiver
        perfsvc.environment["TEAM_URL"] = receiver.address()

    def killed(self, commits, *arguments):
        """A night that is killed at a commit, or comes to its end where it has no more of them."""
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
        return {one.headers[HEADER] for one in self.receiver.received}


@pytest.fixture(scope="module")
def before(new_workplace):
    """A workplace after one night, with another suite that a second night will find slower."""
    nights = Nights(new_workplace(), TOLD)
    nights.perfsvc.environment["TEAM_URL"] = "json://127.0.0.1:9/"
    nights(code=0)
    nights.slower()
    return nights.perfsvc.folder


def second_night(before, perfsvc, receiver):
    """A workplace as it was between both nights."""
    copied(before, perfsvc.folder)
    return KilledNights(perfsvc, receiver)


@pytest.fixture
def nights(before, perfsvc, receiver):
    return second_night(before, perfsvc, receiver)


@pytest.fixture(scope="module")
def undisturbed(before, new_workplace):
    """What the second night comes to if nobody kills it, and how many commits it takes."""
    with receiving() as receiver:
        nights = second_night(before, new_workplace(), receiver)
        ended = nights.killed(MANY)
        assert ended.returncode == 1, ended.stderr
        assert len(nights.keys) == 1
    return nights.results, int(ended.stderr.splitlines()[-1])


@pytest.mark.parametrize("place", range(PLACES))
def test_a_killed_night_comes_to_the_same_when_somebody_goes_on_with_it(nights, undisturbed, place):
    expected, commits = undisturbed
    assert nights.killed(commits * place // PLACES).returncode == -signal.SIGKILL
    if not nights.perfsvc.rows("select 1 from nights where id = 2"):
        nights("--resume", code=2)
        nights(code=1)
    else:
        known = nights.perfsvc.rows(RUN)
        nights("--resume", code=1)
        assert nights.perfsvc.rows(RUN)[: len(known)] == known
    assert nights.results == expected
    assert len(nights.keys) == 1


def test_nothing_is_measured_twice_that_is_stored(nights, undisturbed):
    _, commits = undisturbed
    nights.killed(commits * 2 // 5)
    ((held,),) = nights.perfsvc.rows("select count(*) from measurements where run_id = 2")
    assert 0 < held < STEPS - 2
    nights("--resume", code=1)
    assert [line["steps"] for line in nights.log(2) if line["event"] == "measuring"] == [STEPS, STEPS - 2 - held]


def test_a_night_may_be_killed_again_and_again(nights, undisturbed):
    expected, _ = undisturbed
    kills, ended = 0, nights.killed(17)
    while ended.returncode == -signal.SIGKILL:
        kills += 1
        ended = nights.killed(17, "--resume")
    assert ended.returncode == 1, ended.stderr
    assert kills > 1
    assert nights.results == expected
    assert len(nights.keys) == 1


def test_a_suite_that_was_changed_meanwhile_is_not_gone_on_with(nights):
    nights.killed(12)
    (source,) = nights.suite.glob("*/*.cu")
    before = source.read_text()
    source.write_text(before + "// changed again\n")
    ended = nights("--resume", code=2)
    assert "has changed since night 2 began" in ended.err
    assert "perfsvc nightly --resume, or leave that night as it is and begin another: perfsvc nightly" in ended.err
    source.write_text(before)
    nights("--resume", code=1)


def test_a_night_that_nobody_goes_on_with_stays_interrupted(nights):
    nights.killed(12)
    ended = nights(code=1)
    assert "night 2 was stopped after its stage check, and nobody went on with it" in ended.err
    assert [(state, code) for state, code, _ in nights.nights()] == [
        ("finished", 0),
        ("interrupted", None),
        ("finished", 1),
    ]
    assert nights.perfsvc.rows("select state from runs") == [("finished",), ("interrupted",), ("finished",)]
    told = nights("--resume", code=2).err
    assert "night 3 is the newest of this host, and was not stopped before its end: there is none to resume" in told


def test_a_night_that_is_told_to_stop_finishes_the_case_in_hand_and_can_be_gone_on_with(nights, undisturbed):
    expected, _ = undisturbed
    with nights.perfsvc.start("nightly") as process:
        while not nights.perfsvc.rows("select 1 from measurements where run_id = 2"):
            assert process.poll() is None, process.communicate()
        process.terminate()
        _, err = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert nights.nights()[-1][:2] == ("interrupted", None)
    nights("--resume", code=1)
    assert nights.results == expected
    assert len(nights.keys) == 1
