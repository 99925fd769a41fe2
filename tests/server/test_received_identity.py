"""A run keeps its identity on its way to a server: no way brings it there twice."""

import gzip
import json

import pytest
from sqlalchemy import select

from perfsvc.service.sync import sync
from perfsvc.service.transfer.body import written
from perfsvc.store import Store
from perfsvc.store.keeping.sync import SyncAction
from perfsvc.store.schema.tables import Runs
from tests.server.test_receiving import (  # noqa: F401 - fixtures
    body,
    changed,
    receiver,
    receiving_kind,
    refusals,
    send,
)


def uids(store):
    with store.database.reading() as connection:
        return list(connection.scalars(select(Runs.uid).order_by(Runs.id)))


def test_a_received_run_keeps_its_identity(send, receiver, planted_sqlite, body):  # noqa: F811
    assert send(body).status_code == 201
    with Store.open(planted_sqlite, create=False, read_only=True) as sender:
        assert uids(receiver) == uids(sender)[:1]


def test_a_run_of_a_known_identity_is_not_stored_again(send, receiver, body):  # noqa: F811
    send(body)
    again = send(changed(body, "provenance.label", "another", line=0))
    assert (again.status_code, again.json()) == (200, {"run": 1, "new": False, "judged": True, "later_run": None})
    assert [run.provenance.label for run in receiver.runs.list()] == [
        json.loads(body.splitlines()[0])["provenance"]["label"]
    ]
    assert refusals(receiver) == [("box", 200), ("box", 201)]


def test_a_run_that_was_deleted_on_the_server_does_not_come_back(send, receiver, body):  # noqa: F811
    send(body)
    receiver.exclusions.delete(1, reason="wrong", by="ann")
    again = send(body)
    assert (again.status_code, again.json()) == (200, {"run": None, "new": False, "judged": True, "later_run": None})
    assert receiver.runs.list() == []


class Quiet:
    """Progress that nobody watches."""

    def begin(self, stage, total):
        pass

    def step(self, what):
        pass

    def report(self, line):
        pass


@pytest.mark.parametrize("receiving_kind", ["sqlite"])
def test_sending_and_syncing_know_the_same_run(send, receiver, planted_sqlite, body, tmp_path):  # noqa: F811
    send(body)
    there = str(tmp_path / "there.db")
    sync(planted_sqlite, there, Quiet())
    with Store.open(planted_sqlite, create=False, read_only=True) as store:
        assert uids(receiver) == uids(store)
    assert sync(planted_sqlite, there, Quiet()).of(SyncAction.NEW) == []
    again = send(body_of(planted_sqlite, 2))
    assert (again.status_code, again.json()["run"], again.json()["new"]) == (200, 2, False)
    with Store.open(planted_sqlite, create=False, read_only=True) as store:
        assert uids(receiver) == uids(store)


def body_of(database, run):
    with Store.open(database, create=False, read_only=True) as store:
        return gzip.decompress(b"".join(written(store, run)))


@pytest.mark.parametrize("uid", ["", "x" * 32, "A" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n", "٠" * 32])
def test_an_identity_of_another_form_is_refused(send, receiver, body, uid):  # noqa: F811
    answer = send(changed(body, "uid", uid, line=0))
    assert (answer.status_code, answer.json()["error"].split(": ")[1]) == (422, "uid"), answer.text
    assert receiver.runs.list() == []
