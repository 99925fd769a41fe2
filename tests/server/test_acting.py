"""People who sign in and act on findings: tokens, cookies, forms, and what they refuse."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from perfsvc.model import FindingState
from perfsvc.server.serving import COOKIE
from perfsvc.store import Store
from perfsvc.store.remote.rows import Scope
from tests.server.conftest import BASE, client, own

ORIGIN = {"Origin": BASE}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return a database with the planted nights that the test may change, on each kind of database."""
    with own(request.param, request, tmp_path, nights=True) as store:
        yield store


@pytest.fixture
def light(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "perfsvc.db") as store:
        yield store


def server(store: Store, peer: tuple[str, int] = ("127.0.0.1", 50000), **settings: Any) -> TestClient:
    return client(store, peer=peer, changes=True, **settings)


def signed_in(store: Store, *scopes: Scope, name: str = "ann", **settings: Any) -> TestClient:
    web = server(store, **settings)
    _, secret = store.tokens.make(name, scopes or (Scope.READ, Scope.ACT), by="root")
    assert web.post("/sign-in", data={"token": secret}, headers=ORIGIN).status_code == 303
    return web


def form_token(page: str) -> str:
    found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page)
    assert found
    return found[1]


def test_a_program_acts_with_a_token_of_the_scope_act_and_wrong_actions_change_nothing(database):
    _, secret = database.tokens.make("bot", [Scope.ACT], by="root")
    web, headers = server(database), {"Authorization": f"Bearer {secret}"}
    before = len(database.findings.events(finding=1))
    bodies = [
        {"action": "delete"},
        {"action": "accept"},
        {"action": "comment", "text": "x" * 2001},
        {"action": "accept", "text": "ok", "days": 3},
        {"action": "ignore", "days": 0},
        {"action": "reopen"},
        {"action": "comment", "text": "x", "by": "someone else"},
        ["accept"],
    ]
    for count, body in enumerate(bodies, 1):
        answer = web.post("/api/v1/findings/1/actions", json=body, headers=headers)
        assert answer.status_code == 400, (body, answer.text)
        assert len(database.findings.events(finding=1)) == before, body
        assert [entry.status for entry in database.audit.newest(100)][:count] == [400] * count
    _, reads = database.tokens.make("reader", [Scope.READ, Scope.WRITE], by="root")
    body, path = {"action": "comment", "text": "hm"}, "/api/v1/findings/{}/actions"
    assert web.post(path.format(1), json=body).status_code == 401
    assert web.post(path.format(1), json=body, headers={"Authorization": f"Bearer {reads}"}).status_code == 403
    assert database.audit.newest(1)[0].who == "reader", "the log names who was refused"
    for number in (999, 2**40):
        assert web.post(path.format(number), json=body, headers=headers).status_code in {400, 404}
    assert len(database.findings.events(finding=1)) == before
    actions = [
        ({"action": "assign", "text": "bob"}, FindingState.OPEN),
        ({"action": "comment", "text": "hm"}, FindingState.OPEN),
        ({"action": "acknowledge", "text": ""}, FindingState.ACKNOWLEDGED),
        ({"action": "ignore", "text": "later", "days": 7}, FindingState.IGNORED),
        ({"action": "resolve", "text": "fixed"}, FindingState.RESOLVED),
    ]
    for body, state in actions:
        before = len(database.findings.events(finding=1))
        answer = web.post("/api/v1/findings/1/actions", json=body, headers=headers)
        assert (answer.status_code, answer.json()["state"]) == (200, state.value), body
        assert database.findings.get(1).state is state
        (event,) = database.findings.events(finding=1)[before:]
        assert event.by == "bot"
    assert database.findings.get(1).owner == "bob"


def test_a_page_of_another_site_or_session_can_do_nothing_and_a_person_accepts_a_finding_on_its_own_page(database):
    web = signed_in(database)
    token = form_token(web.get("/findings/1.html").text)
    fields = {"form_token": token, "action": "comment", "text": "hm"}
    for headers in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": "http://localhost.evil"}):
        assert web.post("/findings/1/act", data=fields, headers=headers).status_code == 403
    for wrong in ("", "0" * 64, "ü"):
        answer = web.post("/findings/1/act", data=fields | {"form_token": wrong}, headers=ORIGIN)
        assert answer.status_code == 403
    json_body = {"action": "comment", "text": "hm"}
    assert web.post("/api/v1/findings/1/actions", json=json_body, headers=ORIGIN).status_code == 403
    bob = signed_in(database, name="bob")
    of_bob = fields | {"form_token": form_token(bob.get("/findings/1.html").text)}
    assert web.post("/findings/1/act", data=of_bob, headers=ORIGIN).status_code == 403
    assert all(event.by not in {"ann", "bob"} for event in database.findings.events(finding=1))
    anonymous = server(database).get("/findings/1.html")
    assert "<form" not in anonymous.text
    assert '<a href="../sign-in">Sign in</a>' in anonymous.text
    answer = web.get("/findings/1.html")
    assert "form-action 'self'" in answer.headers["content-security-policy"]
    assert "form-action 'none'" not in answer.text
    assert answer.headers["referrer-policy"] == "same-origin"
    assert "<form" not in signed_in(database, Scope.READ, name="reader").get("/findings/1.html").text
    fields |= {"action": "accept", "text": "wanted", "days": ""}
    answer = web.post("/findings/1/act", data=fields, headers=ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, "../1.html")
    finding = database.findings.get(1)
    assert (finding.state, finding.reason) == (FindingState.ACCEPTED, "wanted")
    assert database.findings.events(finding=1)[-1].by == "ann"
    entry = database.audit.newest(1)[0]
    assert (entry.who, entry.action, entry.target) == ("ann", "accept", "finding 1")
    assert (entry.address, entry.status) == ("127.0.0.1", 303)


def test_a_cookie_is_for_this_server_and_this_browser_and_each_sign_in_begins_another_session(light):
    web = server(light, public_url="https://perf.example.org/")
    _, secret = light.tokens.make("ann", [Scope.ACT], by="root")
    answer = web.post("/sign-in", data={"token": secret}, headers={"Origin": "https://perf.example.org"})
    cookie = answer.headers["set-cookie"]
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts >= {"httponly", "samesite=strict", "secure", "path=/"}
    assert secret not in cookie
    web, cookies = server(light), []
    web.cookies.set(COOKIE, "chosen-by-an-attacker")
    for _ in range(2):
        answer = web.post("/sign-in", data={"token": secret}, headers=ORIGIN)
        cookies.append(answer.headers["set-cookie"].partition(";")[0])
    assert cookies[0] != cookies[1]
    assert "attacker" not in "".join(cookies)


def test_a_session_ends_with_its_token_and_when_the_person_signs_out(light):
    web = signed_in(light)
    assert "You are signed in" in web.get("/sign-in").text
    copied = web.cookies[COOKIE]
    page = web.get("/sign-in").text
    assert web.post("/sign-out", data={"form_token": form_token(page)}, headers=ORIGIN).status_code == 303
    web.cookies.set(COOKIE, copied, domain="localhost.local", path="/")
    assert "You are signed in" not in web.get("/sign-in").text
    other = signed_in(light, name="bob")
    light.tokens.revoke("bob", by="root")
    assert "You are signed in" not in other.get("/sign-in").text


def test_a_forged_or_old_cookie_is_no_session(light, monkeypatch):
    web = signed_in(light)
    fresh, good = server(light), web.cookies[COOKIE]
    for forged in ("", "x", good[:-2] + "AA", good + ".", "WzEsImEiXQ." + good.split(".", 1)[1], "\x00"):
        fresh.headers["cookie"] = f"{COOKIE}={forged}"
        assert "You are signed in" not in fresh.get("/sign-in").text
    monkeypatch.setattr("perfsvc.server.serving.LONGEST_S", -1)
    assert "You are signed in" not in web.get("/sign-in").text


def test_wrong_tokens_and_eager_addresses_are_slowed_down_and_only_a_valid_token_of_a_person_signs_in(light):
    web = server(light)
    _, secret = light.tokens.make("ann", [Scope.ACT], by="root")
    statuses = [web.post("/sign-in", data={"token": f"wrong {n}"}, headers=ORIGIN).status_code for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert web.post("/sign-in", data={"token": secret}, headers=ORIGIN).status_code == 303
    assert light.audit.newest(20)[-1].reason == "the token is wrong"
    _, sends = light.tokens.make("box", [Scope.WRITE], by="root")
    assert web.post("/sign-in", data={"token": sends}, headers=ORIGIN).status_code == 403
    _, reads = light.tokens.make("reader", [Scope.READ], by="root")
    eager = server(light, requests_a_minute=3)
    answers = [eager.get("/api/v1/runs") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].headers["retry-after"] == "60"
    assert web.get("/api/v1/runs", headers=[("Authorization", f"Bearer {reads}")] * 2).status_code == 401
    for kind, status in (("Basic", 401), ("bearer", 200)):
        answer = web.get("/api/v1/runs", headers={"Authorization": f"{kind} {reads}"})
        assert answer.status_code == status, kind


def test_the_name_in_the_trusted_header_counts_only_from_a_trusted_proxy(light):
    settings = {"trusted_header": "X-Forwarded-User", "trusted_proxies": ("10.0.0.0/24",)}
    header = {"X-Forwarded-User": "ann"}
    proxy, stranger = server(light, ("10.0.0.7", 1), **settings), server(light, ("127.0.0.1", 1), **settings)
    assert "knows you as <strong>ann</strong>" in proxy.get("/sign-in", headers=header).text
    assert "You are signed in" not in stranger.get("/sign-in", headers=header).text
    assert stranger.get("/api/v1/runs", headers=header).status_code == 401
    assert proxy.get("/api/v1/runs", headers=header).status_code == 200
    twice = [("X-Forwarded-User", "root"), ("X-Forwarded-User", "ann")]
    assert proxy.get("/api/v1/runs", headers=twice).status_code == 400
    assert proxy.get("/api/v1/runs", headers={"X_Forwarded_User": "ann"}).status_code == 401
    assert proxy.get("/api/v1/runs", headers={"X-Forwarded-User": "a" * 201}).status_code == 400


def test_the_address_in_the_audit_log_is_the_last_one_that_a_trusted_proxy_names(light):
    settings = {"trusted_proxies": ("10.0.0.0/24",)}
    forwarded = {"X-Forwarded-For": "6.6.6.6, 8.8.8.8, 10.0.0.9"}
    server(light, ("10.0.0.7", 1), **settings).post("/api/v1/runs", headers=forwarded)
    server(light, ("9.9.9.9", 1), **settings).post("/api/v1/runs", headers=forwarded)
    assert [entry.address for entry in light.audit.newest(2)] == ["9.9.9.9", "8.8.8.8"]


def test_odd_forms_are_refused(light):
    web = server(light)
    forms = [
        (b"token=a&token=b", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"a%d=1" % n for n in range(30)), "application/x-www-form-urlencoded", 400),
        (b"token=%ff", "application/x-www-form-urlencoded", 400),
        (b"\xff", "application/x-www-form-urlencoded", 400),
        (b"x" * 70_000, "application/x-www-form-urlencoded", 413),
        (b"{}", "application/json", 415),
    ]
    for content, kind, status in forms:
        answer = web.post("/sign-in", content=content, headers={**ORIGIN, "Content-Type": kind})
        assert answer.status_code == status, content[:40]
