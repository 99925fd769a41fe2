"""Findings over several nights: what moves again, what two nights agree on, and which message each night sends."""

import platform
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from perfsvc.config import Settings
from perfsvc.notify.notifier import AppriseNotifier
from perfsvc.service.notify.notify import notify
from perfsvc.store import RunState, StageRow, StageState, Store
from perfsvc.store.schema.engine import transaction
from tests.conftest import receiving
from tests.e2e.history import CASE, History

STARTED = datetime(2026, 1, 1, 2, tzinfo=UTC)
SETTINGS = Settings(notify={"targets": {"team": "TEAM_URL"}})


def seconds(factor):
    return {"seconds": factor * 1e-4}


class Nights(History):
    """Nights of a repository whose every commit has its own binary and times."""

    def __init__(self, perfsvc, receiver):
        super().__init__(perfsvc)
        self.receiver = receiver

    def night(self, code=None):
        """Measure HEAD and confirm; return the messages that a server got."""
        self.perfsvc.play(self.times)
        device = f"fake:{self.perfsvc.script}"
        self.perfsvc("run", "--device", device, "--suite", self.suite, "--confirm", "--replicas", "2", code=code)
        before = len(self.receiver.received)
        with Store.open(self.perfsvc.database) as store:
            number = store.nights.begin(
                host=platform.node(), started=STARTED, suite=str(self.suite), command_line="", settings={}
            )
            with transaction(store.database.engine, writes=True) as connection:
                newest = text("UPDATE nights SET run_id = (SELECT max(id) FROM runs) WHERE id = :id")
                connection.execute(newest, {"id": number})
            sent = notify(
                store,
                number,
                SETTINGS,
                print,
                environment={"TEAM_URL": self.receiver.address()},
                notifier=lambda: AppriseNotifier(10.0),
                sleep=lambda _: None,
            )
            store.nights.put_stage(number, StageRow("notify", 11, StageState.DONE, STARTED, 0.0, sent))
            store.nights.end(number, RunState.FINISHED, 0)
        return [message.json for message in self.receiver.received[before:]]

    def findings(self, *arguments):
        return self.perfsvc("findings", *arguments, "--format", "json", code=0).json


@pytest.fixture
def nights(perfsvc, receiver):
    return Nights(perfsvc, receiver)


@pytest.fixture(scope="module")
def two_slowdowns():
    """Return a function that prepares a workplace in which a case became four times slower twice, and what it keeps."""
    kept = {}

    def prepare(perfsvc):
        with receiving() as receiver:
            nights = Nights(perfsvc, receiver)
            commits = [nights.commit("begin", "one", seconds(1))]
            assert nights.night(code=0) == []
            commits.append(nights.commit("repeat four times", "four", seconds(4)))
            first = nights.night(code=1)
            commits.append(nights.commit("repeat sixteen times", "sixteen", seconds(16)))
            second = nights.night(code=1)
        kept.update(times=nights.times, commits=[commit[:9] for commit in commits], messages=(first, second))

    return prepare, kept


@pytest.fixture
def twice(prepared, two_slowdowns, receiver):
    """Return the nights and their commits after a case became four times slower twice, with their messages."""
    prepare, kept = two_slowdowns
    nights = Nights(prepared(prepare), receiver)
    nights.times = dict(kept["times"])
    return nights, kept["commits"], *kept["messages"]


def test_two_slowdowns_are_two_messages_and_two_steps_each_with_its_commits(twice):
    nights, (one, four, sixteen), (first,), (second,) = twice
    assert first["title"] == f"{CASE} slower by a factor of 4"
    assert f"Finding 1 (new): kernel, {one}..{four}" in first["message"]
    assert second["title"] == f"{CASE} slower again by a factor of 4"
    assert f"Finding 1 (moved again): kernel, {four}..{sixteen}" in second["message"]
    assert f"{one}..{four}" not in second["message"]
    every_step = f"all steps of {CASE}: +1500.0 % since run 1: 100.0 µs → 1.600 ms"
    lines = second["message"].splitlines()
    assert lines[1] == "1 new regression, 0 new improvements, 2 unchanged"
    assert f"- {every_step}" in lines
    assert f"{CASE}: measured in A/B pairs, its code is 300.0 % slower than run 2's" in lines
    (found,) = nights.findings()
    steps = [(moved["step"], moved["root_cause"], moved["baseline_run"], moved["last_run"]) for moved in found["moved"]]
    assert steps == [(1, f"{one}..{four}", 1, 2), (2, f"{four}..{sixteen}", 2, 3)]
    assert [moved["ratio"] for moved in found["moved"]] == pytest.approx([4, 4])
    assert [moved["change"] for moved in found["moved"]] == ["regression", "again"]
    shown = nights.perfsvc("findings", code=0).out
    assert f"slower again (step 2) in run 3: {four}..{sixteen}" in shown
    assert every_step in shown
    assert shown.count("+300.0 %  +300.0 % to +300.0 %") == 2  # a row for each step
    assert nights.night(code=1) == []
    (found,) = nights.findings()
    assert [(moved["step"], moved["last_run"]) for moved in found["moved"]] == [(1, 2), (2, 4)]
    kinds = [event["kind"] for event in nights.findings("show", "1")["events"]]
    assert kinds == ["raised", "step"]


def test_the_first_step_is_accepted_alone_and_the_second_stays_open(twice):
    nights, (_, four, sixteen), _, _ = twice
    ended = nights.perfsvc("findings", "accept", "1", "--step", "1", "--reason", "exact results cost that", code=0)
    assert ended.out.splitlines() == [
        f"finding 2 is new: it takes {CASE} up to step 1 out of finding 1",
        f"finding 2 is accepted: later runs are compared with {CASE} in run 2",
    ]
    (left,) = nights.findings()
    assert (left["id"], left["state"], left["root_cause"]) == (1, "open", f"{four}..{sixteen}")
    assert [(moved["step"], moved["baseline_run"]) for moved in left["moved"]] == [(2, 2)]
    assert nights.night(code=1) == []
    (left,) = nights.findings()
    assert [moved["last_run"] for moved in left["moved"]] == [4]
    verdicts = nights.perfsvc("compare", "@baseline", "4", "--format", "json").json["verdicts"]
    assert {judged["baseline_run"] for judged in verdicts if judged["case"] == CASE} == {2}
    nights.commit("repeat four times again", "four anew", seconds(4))
    (message,) = nights.night(code=0)
    assert "Resolved\n- finding 1" in message["message"]


def test_only_the_second_step_recovers_when_the_level_before_it_is_back(twice):
    nights, *_ = twice
    nights.commit("undo the second", "four anew", seconds(4))
    assert nights.night(code=1) == []
    (found,) = nights.findings()
    assert [(moved["step"], moved["recovered_run"]) for moved in found["moved"]] == [(1, None), (2, 4)]
    nights.commit("undo the first", "one anew", seconds(1))
    (message,) = nights.night(code=0)
    assert message["title"] == "scale/beta at the old level again"
    assert nights.findings() == []


def test_what_cannot_be_confirmed_is_a_finding_in_the_second_night(nights):
    nights.commit("begin", "one", seconds(1))
    nights.night(code=0)
    old = nights.binary()
    nights.commit("slower", "two", seconds(1.5))
    nights.times[old] = {"fault": "crash"}
    assert nights.night(code=1) == nights.findings() == []
    (message,) = nights.night(code=1)
    assert message["title"] == f"{CASE} slower by 50 %"
    assert "(new): unconfirmed, " in message["message"]
    (found,) = nights.findings()
    assert (
        "+50.0 % against run 1 in runs 2 and 3, unconfirmed: the baseline's binary has no correct" in found["evidence"]
    )
    assert nights.night(code=1) == []
    nights.times[old] = seconds(1)
    assert nights.night(code=1) == []
    (found,) = nights.findings()
    assert (found["id"], found["cause"], found["first_run"]) == (1, "kernel", 3)
    kinds = [event["kind"] for event in nights.findings("show", "1")["events"]]
    assert kinds == ["raised", "confirmed"]


def test_an_excluded_night_is_resolved_without_a_message_and_hides_no_later_regression(nights):
    nights.commit("begin", "one", seconds(1))
    nights.night(code=0)
    nights.commit("slower", "two", seconds(1.05))
    (message,) = nights.night(code=1)
    assert "Finding 1 (new): kernel" in message["message"]
    out = nights.perfsvc("runs", "exclude", "2", "--reason", "an experiment was committed", code=0).out
    assert out.splitlines() == ["run 2 is excluded from judging", "finding 1 is resolved"]
    nights.commit("as before", "three", seconds(1))
    assert nights.night(code=0) == []
    nights.commit("slower again", "four", seconds(1.2))
    (message,) = nights.night(code=1)
    assert message["title"] == f"{CASE} slower by 20 %"
    assert "Finding 2 (new): kernel" in message["message"]
    assert "5.0 %" not in message["message"]
    nights.commit("wrong", "five", {"fault": "wrong"})
    (message,) = nights.night(code=4)
    assert message["title"].startswith(f"{CASE} has a wrong result")
    assert "Finding 3 (new): wrong result" in message["message"]
    assert nights.night(code=4) == []


def test_a_second_step_that_cannot_be_confirmed_takes_two_nights_too(twice):
    nights, (*_, sixteen), _, _ = twice
    slow = nights.binary()
    last = nights.commit("slower still", "thirty", seconds(32))[:9]
    nights.times[slow] = {"fault": "crash"}
    assert nights.night(code=1) == []
    (message,) = nights.night(code=1)
    assert message["title"] == f"{CASE} slower again by a factor of 2"
    (found,) = nights.findings()
    assert [moved["root_cause"] for moved in found["moved"]][2] == f"{sixteen}..{last}"
    assert nights.night(code=1) == []


def test_unchanged_code_that_slows_down_twice_is_two_messages(nights):
    nights.commit("begin", "one", seconds(1))
    for _ in range(3):
        nights.night(code=0)
    nights.times[nights.binary()] = seconds(1.1)
    assert nights.night(code=0) == []
    (first,) = nights.night(code=0)
    nights.times[nights.binary()] = seconds(1.5)
    assert nights.night(code=0) == []
    (second,) = nights.night(code=0)
    assert "Finding 1 (new): unexplained, GPU FAKE-0" in first["message"]
    assert "Finding 1 (moved again): unexplained, GPU FAKE-0" in second["message"]
    assert nights.night(code=0) == []
    nights.times[nights.binary()] = seconds(1)
    (message,) = nights.night(code=0)
    assert message["title"] == "scale/beta at the old level again"
