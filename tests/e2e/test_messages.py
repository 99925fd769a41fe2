"""The messages of nights on the fake device: a regression once, its recovery once, and nothing else."""

import platform
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from perfsvc.config import Settings
from perfsvc.notify.notifier import HEADER, AppriseNotifier
from perfsvc.service.notify.notify import notify
from perfsvc.store import RunState, StageRow, StageState, Store
from perfsvc.store.schema.engine import transaction

USUAL = {"seconds": 1e-4}
SLOW = {"seconds": 1.05e-4}
STARTED = datetime(2026, 1, 1, 2, tzinfo=UTC)
SETTINGS = Settings(notify={"targets": {"team": "TEAM_URL"}, "page": "https://perf.example.org"})


class Nights:
    """Nights with a suite of their own; each measures and then sends a receiver what is new."""

    def __init__(self, perfsvc, receiver):
        self.perfsvc, self.receiver = perfsvc, receiver
        self.suite = perfsvc.own("scale")

    def first_binary(self):
        """The digest of the module that a case ran in the first night."""
        ((digest,),) = self.perfsvc.rows(
            "select distinct sha256 from binary_files join measurements using (binary_id) join cases on cases.id = "
            "case_id where role = 'module' and run_id = 1 and variant = 'beta'"
        )
        return digest

    def night(self, cases):
        """Return what was reported of the message, and what the receiver got."""
        self.perfsvc.play(cases)
        self.perfsvc.fake("--confirm", "--replicas", "2", suite=self.suite)
        before = len(self.receiver.received)
        with Store.open(self.perfsvc.database) as store:
            number = store.nights.begin(
                host=platform.node(), started=STARTED, suite=str(self.suite), command_line="", settings={}
            )
            with transaction(store.database.engine, writes=True) as connection:
                connection.execute(
                    text("UPDATE nights SET run_id = (SELECT max(id) FROM runs) WHERE id = :id"), {"id": number}
                )
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
        return sent, self.receiver.received[before:]


@pytest.fixture
def nights(perfsvc, receiver):
    return Nights(perfsvc, receiver)


@pytest.mark.slow
def test_a_regression_and_its_recovery_are_reported_once(nights):
    assert nights.night({"*": USUAL}) == ("nothing new", [])
    nights.perfsvc.rebuild(nights.suite)
    slow = {"*": USUAL, "scale/beta": SLOW, nights.first_binary(): USUAL}
    sent, (message,) = nights.night(slow)
    assert sent == "sent to team"
    assert message.json["title"] == "scale/beta[n=100] slower by 5 %"
    body = message.json["message"]
    assert "Finding 1 (new): kernel" in body
    assert "- regression scale/beta[n=100]: +5.0 % (+5.0 % to +5.0 %)\n" in body
    assert "perfsvc findings show 1\nhttps://perf.example.org/findings/1.html" in body
    assert message.headers[HEADER].startswith("perfsvc-")
    assert nights.night(slow) == ("nothing new", [])
    _, (message,) = nights.night({"*": USUAL})
    assert message.json["title"] == "scale/beta at the old level again"
    assert "Resolved\n- finding 1, scale/beta: back at its old level in run 4" in message.json["message"]
    assert nights.night({"*": USUAL}) == ("nothing new", [])


@pytest.mark.slow
def test_other_code_that_slows_a_case_after_its_recovery_is_a_new_finding(nights):
    nights.night({"*": USUAL})
    nights.perfsvc.rebuild(nights.suite)
    nights.night({"*": USUAL, "scale/beta": SLOW, nights.first_binary(): USUAL})
    nights.perfsvc.rebuild(nights.suite)
    _, (message,) = nights.night({"*": USUAL})
    assert message.json["title"] == "scale/beta at the old level again"
    nights.perfsvc.rebuild(nights.suite)
    _, (message,) = nights.night({"*": USUAL, "scale/beta": {"seconds": 1.2e-4}, nights.first_binary(): USUAL})
    body = message.json["message"]
    assert "Finding 2 (new): kernel" in body
    assert "the code of run 4" in body
    assert "+20.0 %" in body
    for old in ("Finding 1", "run 2", "5.0 %"):
        assert old not in body


def test_a_failed_case_is_reported_once(nights):
    nights.night({"*": USUAL})
    wrong = {"*": USUAL, "scale/beta": {"fault": "wrong"}}
    _, (message,) = nights.night(wrong)
    assert message.json["title"] == "scale/beta[n=100] failed"
    assert "Failed cases\n- scale/beta[n=100]: " in message.json["message"]
    assert nights.night(wrong) == ("nothing new", [])


@pytest.mark.slow
def test_an_excluded_night_is_resolved_without_a_message_and_hides_no_later_regression(nights):
    nights.night({"*": USUAL})
    nights.perfsvc.rebuild(nights.suite)
    slow = {"*": USUAL, "scale/beta": SLOW, nights.first_binary(): USUAL}
    _, (message,) = nights.night(slow)
    assert "Finding 1 (new): kernel" in message.json["message"]
    reason = ("--reason", "an experiment was committed")
    out = nights.perfsvc("runs", "exclude", "2", *reason, code=0).out
    assert out.splitlines() == ["run 2 is excluded from judging", "finding 1 is resolved"]
    assert nights.night({"*": USUAL}) == ("nothing new", [])
    nights.perfsvc.rebuild(nights.suite)
    _, (message,) = nights.night(slow)
    assert message.json["title"] == "scale/beta[n=100] slower by 5 %"
    assert "Finding 2 (new): kernel" in message.json["message"]
