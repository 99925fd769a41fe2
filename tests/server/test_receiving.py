"""Runs that other hosts send: what is stored, what is refused, and what the audit log says, on both databases."""

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from perfsvc.service.sync import sync
from perfsvc.service.transfer import body as receiving
from perfsvc.service.transfer.body import written
from perfsvc.store import Store
from perfsvc.store.keeping.sync import SyncAction
from perfsvc.store.remote.rows import Scope
from perfsvc.store.schema.tables import Runs
from tests.server.conftest import client, own

PATH = "/api/v1/runs"


@pytest.fixture
def receiver(request: pytest.FixtureRequest, tmp_path: Path, receiving_kind: str) -> Iterator[Store]:
    """Return an empty database on each kind of database."""
    with own(receiving_kind, request, tmp_path) as store:
        yield store


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def receiving_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def body_of(database: str, run: int) -> bytes:
    """Return the uncompressed body of a run."""
    with Store.open(database, create=False, read_only=True) as store:
        return gzip.decompress(b"".join(written(store, run)))


@pytest.fixture
def body(planted_sqlite: str) -> bytes:
    """Return the uncompressed body of the first planted run."""
    return body_of(planted_sqlite, 1)


@pytest.fixture
def send(receiver: Store) -> Callable[..., Any]:
    """Return a function that sends a body with a token of the scope write, and further headers and settings."""
    _, secret = receiver.tokens.make("box", [Scope.WRITE], by="ann")
    usual = client_of(receiver)

    def send(content: bytes, *, token: str = secret, headers: dict[str, str] | None = None, **settings: Any) -> Any:
        web = client_of(receiver, **settings) if settings else usual
        given = {"Content-Type": "application/x-ndjson", **({"Authorization": f"Bearer {token}"} if token else {})}
        return web.post(PATH, content=content, headers=given | (headers or {}))

    return send


def client_of(store: Store, **settings: Any) -> TestClient:
    """Return a client of a server that may change a database."""
    return client(store, **{"changes": True, **settings})


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


def joined(objects: list[Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


def changed(body: bytes, path: str, value: Any, line: int = 1) -> bytes:
    """Return the body with another value at a path such as ``measurement.replica``, in a line counted from 0."""
    objects = lines(body)
    *folders, name = path.split(".")
    place = objects[line]
    for folder in folders:
        place = place[int(folder)] if isinstance(place, list) else place[folder]
    place[int(name) if isinstance(place, list) else name] = value
    return joined(objects)


def refusals(store: Store) -> list[tuple[str, int]]:
    return [(entry.who, entry.status) for entry in store.audit.newest(100)]


def test_a_sent_run_is_stored_once_with_its_measurements_and_judged_compressed_too(
    send, receiver, body, planted_sqlite
):
    answer = send(body)
    assert (answer.status_code, answer.json()) == (201, {"run": 1, "new": True, "judged": True, "later_run": None})
    with Store.open(planted_sqlite, create=False) as sender:
        there, here = receiver.measurements.columns([1]), sender.measurements.columns([1])
        assert receiver.runs.get(1).provenance == sender.runs.get(1).provenance
        assert receiver.devices.all() == sender.devices.all()
        assert [each.times_s.tolist() for each in receiver.measurements.samples(1)] == [
            each.times_s.tolist() for each in sender.measurements.samples(1)
        ]
    same = ("case", "device", "status", "median_s", "low_s", "high_s", "max_error", "driver", "measured_at", "metrics")
    assert {name: there[name] for name in same} == {name: here[name] for name in same}
    assert receiver.verdicts.of_run(1)
    assert refusals(receiver) == [("box", 201)]
    again = send(gzip.compress(body), headers={"Content-Encoding": "gzip"})  # the same run, compressed
    assert (again.status_code, again.json()["new"]) == (200, False)
    assert len(receiver.runs.list()) == 1
    name = "'; DROP TABLE runs; --"
    other = changed(changed(body, "provenance.label", name, line=0), "uid", "1" * 32, line=0)
    assert send(gzip.compress(other), headers={"Content-Encoding": "gzip"}).status_code == 201
    assert receiver.runs.get(2).provenance.label == name


def test_a_key_is_for_one_body(send, receiver, body):
    other = changed(body, "provenance.label", "another", line=0)
    key = {"Idempotency-Key": "night-7"}
    assert [send(content, headers=key).status_code for content in (body, body, other)] == [201, 200, 409]
    assert len(receiver.runs.list()) == 1
    assert refusals(receiver)[0] == ("box", 409)


def test_a_run_whose_judging_fails_is_stored_and_is_judged_when_it_is_sent_again(send, receiver, body, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("secret")

    for number, stage in enumerate(("judge_run", "update_findings"), 1):
        content, updated = changed(body, "uid", f"{number}" * 32, line=0), []
        with monkeypatch.context() as patched:
            patched.setattr(receiving, stage, fail)
            answer = send(content)
        assert (answer.status_code, answer.json()["new"], answer.json()["judged"]) == (201, True, False)
        with monkeypatch.context() as patched:
            patched.setattr(receiving, "update_findings", lambda _, run, updated=updated, **__: updated.append(run))
            for _ in range(2):
                answer = send(content)
                assert (answer.status_code, answer.json()["new"], answer.json()["judged"]) == (200, False, True)
        assert receiver.verdicts.of_run(number)
        assert updated == [number]
        assert len(receiver.runs.list()) == number


def test_wrong_tokens_and_a_server_without_changes_refuse_a_run(send, receiver, body):
    _, reads = receiver.tokens.make("reader", [Scope.READ, Scope.ACT], by="ann")
    old = datetime.now(UTC) - timedelta(seconds=1)
    _, expired = receiver.tokens.make("expired", [Scope.WRITE], by="ann", expires=old)
    _, revoked = receiver.tokens.make("revoked", [Scope.WRITE], by="ann")
    receiver.tokens.revoke("revoked", by="ann")
    tokens = ("", "perfsvc_" + "0" * 64, "perfsvc_short", reads, expired, revoked)
    answers = [send(body, token=token) for token in tokens]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 403, 401, 401]
    assert [answer.json()["error"] for answer in answers[4:]] == ["the token is expired", "the token is revoked"]
    assert receiver.runs.list() == []
    assert [status for _, status in refusals(receiver)] == [401, 401, 403, 401, 401, 401]
    _, secret = receiver.tokens.make("other", [Scope.WRITE], by="ann")
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/x-ndjson"}
    assert client(receiver).post(PATH, content=body, headers=headers).status_code == 403  # it changes nothing
    assert receiver.runs.list() == []


def test_a_body_that_is_too_large_and_headers_that_do_not_fit_are_refused(send, receiver, body):
    large, packed = b" " * (3 * 2**20), {"Content-Encoding": "gzip"}
    bomb = gzip.compress(b"\0" * 2**24, 9) * 640  # 640 members of 16 MiB: ten gigabytes
    limits = {"largest_run_mib": 1, "largest_run_unpacked_mib": 2}
    for count, (headers, content, settings, status) in enumerate(
        (
            ({"Content-Encoding": "identity"}, large, limits, 413),
            (packed, gzip.compress(large), limits, 413),
            (packed, bomb, {"largest_run_unpacked_mib": 8}, 413),
            (packed, body, {}, 400),
            (packed, gzip.compress(body) + b"more", {}, 400),
            ({"Content-Encoding": "br"}, body, {}, 415),
            ({"Content-Type": "text/plain"}, body, {}, 415),
            ({"Idempotency-Key": "x" * 300}, body, {}, 400),
        ),
        1,
    ):
        assert send(content, headers=headers, **settings).status_code == status, (headers, content[:20])
        assert receiver.runs.list() == []
        assert len(refusals(receiver)) == count
        assert refusals(receiver)[0] == ("box", status)


def with_times(body: bytes, time_s: float) -> bytes:
    """Return the body with the same time for each sample of its first measurement."""
    samples = lines(body)[1]["measurement"]["samples_s"]
    body = changed(body, "measurement.samples_s", [time_s] * len(samples))
    estimate = lines(body)[1]["estimate"] | dict.fromkeys(("median_s", "low_s", "high_s"), time_s)
    return changed(body, "estimate", estimate)


MALFORMED = {
    "no JSON": lambda body: b"{",
    "nothing": lambda body: b"",
    "not whole": lambda body: joined(lines(body)[:-1]),
    "too many lines": lambda body: body + body.splitlines(keepends=True)[-1],
    "a measurement twice": lambda body: joined([*lines(body)[:-1], lines(body)[1]]),
    "another version": lambda body: changed(body, "perfsvc_run", 2, line=0),
    "a run that runs": lambda body: changed(body, "state", "running", line=0),
    "no host": lambda body: changed(body, "provenance.host", "", line=0),
    "the future": lambda body: changed(body, "provenance.started", "2999-01-01T00:00:00Z", line=0),
    "no offset": lambda body: changed(body, "provenance.started", "2026-01-01T00:00:00", line=0),
    "year 1": lambda body: changed(body, "provenance.started", "0001-01-01T00:00:00Z", line=0),
    "a huge integer": lambda body: changed(body, "provenance.seed", 10**30, line=0),
    "a large integer": lambda body: changed(body, "measurement.replica", 2**31),
    "a negative replica": lambda body: changed(body, "measurement.replica", -1),
    "NaN": lambda body: changed(body, "measurement.wall_s", float("nan")),
    "infinity": lambda body: changed(body, "measurement.samples_s", [float("inf")]),
    "a huge float": lambda body: changed(body, "measurement.samples_s.0", 1e300),
    "a negative time": lambda body: changed(body, "measurement.samples_s.0", -1e-6),
    "times of zero": lambda body: with_times(body, 0.0),
    "times that float32 rounds to zero": lambda body: with_times(body, 1e-46),
    "an estimate of other samples": lambda body: changed(body, "estimate.median_s", 1.0),
    "no estimate": lambda body: changed(body, "estimate", None),
    "an unknown device": lambda body: changed(body, "measurement.device", "GPU-77"),
    "a name of 10 kB": lambda body: changed(body, "measurement.case.variant", "x" * 10_000),
    "a name with an escape": lambda body: changed(body, "measurement.case.variant", "\x1b[31m"),
    "a name that turns text": lambda body: changed(body, "measurement.case.variant", "a\u202eb"),
    "a metric of 10 kB": lambda body: changed(body, "measurement.metrics", {"x" * 10_000: 1.0}),
    "an axis twice": lambda body: changed(body, "measurement.case.point", [["n", 1], ["n", 2]]),
    "text for a number": lambda body: changed(body, "measurement.wall_s", "1"),
    "code": lambda body: changed(body, "measurement.files", {"a": "b"}),
    "deep JSON": lambda body: b"[" * 100_000 + b"]" * 100_000,
    "a lone surrogate": lambda body: body.replace(b'"transpose"', b'"\\ud800"'),
    "no UTF-8": lambda body: body.replace(b'"transpose"', b'"\xff"'),
}


def test_what_is_malformed_is_refused_whole(send, receiver, body):
    for count, (what, malformed) in enumerate(MALFORMED.items(), 1):
        answer = send(malformed(body))
        assert answer.status_code == 422, (what, answer.text)
        assert answer.json()["cure"], what
        assert receiver.runs.list() == [], what
        assert receiver.devices.all() == {}, what
        assert refusals(receiver) == [("box", 422)] * count, what
    for uid in ("", "x" * 32, "A" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n", "٠" * 32):
        answer = send(changed(body, "uid", uid, line=0))
        assert (answer.status_code, answer.json()["error"].split(": ")[1]) == (422, "uid"), answer.text
        assert receiver.runs.list() == [], uid


def test_a_host_cannot_change_the_model_of_a_gpu_that_the_database_knows(send, receiver, body):
    send(body)
    other = changed(body, "uid", "0" * 32, line=0).replace(b'"NVIDIA H100"', b'"NVIDIA A100"')
    answer = send(other)
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "the device GPU-1 is a NVIDIA H100 here, and not a NVIDIA A100",
    )
    assert receiver.devices.all()["GPU-1"].model == "NVIDIA H100"
    assert len(receiver.runs.list()) == 1


def test_a_token_that_changes_too_much_must_wait(send, receiver, body):
    web = client_of(receiver, changes_a_minute=2)
    _, secret = receiver.tokens.make("eager", [Scope.WRITE], by="ann")
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/x-ndjson"}
    answers = [web.post(PATH, content=body, headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 200, 429]
    assert answers[-1].headers["retry-after"] == "60"


# --- the identity of a run: no way brings the run to a database twice -------------------------------------------------


def uids(store):
    with store.database.reading() as connection:
        return list(connection.scalars(select(Runs.uid).order_by(Runs.id)))


def test_a_run_keeps_its_identity_and_is_stored_once_even_if_it_was_deleted(send, receiver, planted_sqlite, body):
    assert send(body).status_code == 201
    with Store.open(planted_sqlite, create=False, read_only=True) as sender:
        assert uids(receiver) == uids(sender)[:1]
    again = send(changed(body, "provenance.label", "another", line=0))
    known = {"new": False, "judged": True, "later_run": None}
    assert (again.status_code, again.json()) == (200, {"run": 1, **known})
    label = json.loads(body.splitlines()[0])["provenance"]["label"]
    assert [run.provenance.label for run in receiver.runs.list()] == [label]
    assert refusals(receiver) == [("box", 200), ("box", 201)]
    receiver.exclusions.delete(1, reason="wrong", by="ann")
    again = send(body)
    assert (again.status_code, again.json()) == (200, {"run": None, **known})
    assert receiver.runs.list() == []


@pytest.mark.parametrize("receiving_kind", ["sqlite"])
def test_sending_and_syncing_know_the_same_run(send, receiver, planted_sqlite, body, tmp_path):
    send(body)
    there = str(tmp_path / "there.db")
    sync(planted_sqlite, there, mock.Mock())
    with Store.open(planted_sqlite, create=False, read_only=True) as store:
        assert uids(receiver) == uids(store)
    assert sync(planted_sqlite, there, mock.Mock()).of(SyncAction.NEW) == []
    again = send(body_of(planted_sqlite, 2))
    assert (again.status_code, again.json()["run"], again.json()["new"]) == (200, 2, False)
    with Store.open(planted_sqlite, create=False, read_only=True) as store:
        assert uids(receiver) == uids(store)
