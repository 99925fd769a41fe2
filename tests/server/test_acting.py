"""People who sign in and act on findings: tokens, cookies, forms, and what they refuse."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from perfsvc.config import ServerSettings, Settings
from perfsvc.model import FindingState
from perfsvc.server.app import make_app
from perfsvc.server.serving import Serving
from perfsvc.server.sessions import COOKIE
from perfsvc.service.dashboard.live import LivePages
from perfsvc.store import Store
from perfsvc.store.remote.rows import Scope
from tests.server.conftest import BASE, own

ORIGIN = {"Origin": BASE}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return a database with the planted nights that the test may change, on each kind of database."""
    with own(request.param, request, tmp_path, nights=True) as store:
        yield store


@pytest.fixture
def light(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "perfsvc.db") as store:
        yield store


def server(store: Store, client: tuple[str, int] = ("127.0.0.1", 50000), **settings: Any) -> TestClient:
    every = Settings(server=ServerSettings(changes=True, **settings))
    app = make_app(Serving(store, every, LivePages(store, forms=True), None, Path("/nowhere"), store))
    return TestClient(app, base_url=BASE, follow_redirects=False, raise_server_exceptions=False, client=client)


def signed_in(store: Store, *scopes: Scope, name: str = "ann", **settings: Any) -> TestClient:
    web = server(store, **settings)
    _, secret = store.tokens.make(name, scopes or (Scope.READ, Scope.ACT), by="root")
    assert web.post("/sign-in", data={"token": secret}, headers=ORIGIN).status_code == 303
    return web


def form_token(page: str) -> str:
    found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page)
    assert found
    return found[1]


def test_a_person_accepts_a_finding_on_its_page(database):
    web = signed_in(database)
    page = web.get("/findings/1.html").text
    fields = {"form_token": form_token(page), "action": "accept", "text": "wanted", "days": ""}
    answer = web.post("/findings/1/act", data=fields, headers=ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, "../1.html")
    assert web.get("/findings/1/../1.html").status_code == 200
    finding = database.findings.get(1)
    assert (finding.state, finding.reason) == (FindingState.ACCEPTED, "wanted")
    assert database.findings.events(finding=1)[-1].by == "ann"
    entry = database.audit.newest(1)[0]
    assert (entry.who, entry.action, entry.target, entry.address, entry.status) == (
        "ann",
        "accept",
        "finding 1",
        "127.0.0.1",
        303,
    )


def test_a_program_acts_with_a_token(database):
    _, secret = database.tokens.make("bot", [Scope.ACT], by="root")
    web, headers = server(database), {"Authorization": f"Bearer {secret}"}
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


def test_wrong_actions_are_refused_and_change_nothing(database):
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


def test_an_action_needs_the_scope_act_and_an_existing_finding(database):
    web = server(database)
    _, reads = database.tokens.make("reader", [Scope.READ, Scope.WRITE], by="root")
    _, acts = database.tokens.make("actor", [Scope.ACT], by="root")
    body = {"action": "comment", "text": "hm"}
    path = "/api/v1/findings/{}/actions"
    assert web.post(path.format(1), json=body).status_code == 401
    assert web.post(path.format(1), json=body, headers={"Authorization": f"Bearer {reads}"}).status_code == 403
    assert database.audit.newest(1)[0].who == "reader", "the log names who was refused"
    for number in (999, 2**40):
        answer = web.post(path.format(number), json=body, headers={"Authorization": f"Bearer {acts}"})
        assert answer.status_code in {400, 404}


def test_a_page_of_another_site_can_do_nothing(database):
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
    assert all(event.by != "ann" for event in database.findings.events(finding=1))


def test_the_token_of_one_session_is_not_that_of_another(database):
    ann, bob = signed_in(database), signed_in(database, name="bob")
    fields = {"form_token": form_token(bob.get("/findings/1.html").text), "action": "comment", "text": "hm"}
    assert ann.post("/findings/1/act", data=fields, headers=ORIGIN).status_code == 403


def test_the_page_without_changes_has_no_form_and_the_page_with_changes_only_forms_to_itself(database):
    anonymous = server(database).get("/findings/1.html")
    assert "<form" not in anonymous.text
    assert '<a href="../sign-in">Sign in</a>' in anonymous.text
    web = signed_in(database)
    answer = web.get("/findings/1.html")
    assert "form-action 'self'" in answer.headers["content-security-policy"]
    assert "form-action 'none'" not in answer.text
    assert answer.headers["referrer-policy"] == "same-origin"
    reads = signed_in(database, Scope.READ, name="reader").get("/findings/1.html").text
    assert "<form" not in reads


def test_a_cookie_is_for_this_server_and_this_browser_only(light):
    web = server(light, public_url="https://perf.example.org/")
    _, secret = light.tokens.make("ann", [Scope.ACT], by="root")
    answer = web.post("/sign-in", data={"token": secret}, headers={"Origin": "https://perf.example.org"})
    cookie = answer.headers["set-cookie"]
    assert {part.strip().lower() for part in cookie.split(";")[1:]} >= {
        "httponly",
        "samesite=strict",
        "secure",
        "path=/",
    }
    assert secret not in cookie


def test_each_sign_in_begins_another_session(light):
    web = server(light)
    _, secret = light.tokens.make("ann", [Scope.ACT], by="root")
    web.cookies.set(COOKIE, "chosen-by-an-attacker")
    cookies = []
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
    good = web.cookies[COOKIE]
    for forged in ("", "x", good[:-2] + "AA", good + ".", "WzEsImEiXQ." + good.split(".", 1)[1], "\x00"):
        fresh = server(light)
        fresh.headers["cookie"] = f"{COOKIE}={forged}"
        assert "You are signed in" not in fresh.get("/sign-in").text
    monkeypatch.setattr("perfsvc.server.sessions.LONGEST_S", -1)
    assert "You are signed in" not in web.get("/sign-in").text


def test_wrong_tokens_are_slowed_down_and_a_valid_one_still_works(light):
    web = server(light)
    _, secret = light.tokens.make("ann", [Scope.ACT], by="root")
    statuses = [web.post("/sign-in", data={"token": f"wrong {n}"}, headers=ORIGIN).status_code for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert web.post("/sign-in", data={"token": secret}, headers=ORIGIN).status_code == 303
    assert light.audit.newest(20)[-1].reason == "the token is wrong"


def test_a_token_that_only_sends_runs_does_not_sign_in(light):
    web = server(light)
    _, secret = light.tokens.make("box", [Scope.WRITE], by="root")
    assert web.post("/sign-in", data={"token": secret}, headers=ORIGIN).status_code == 403


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


def test_an_address_that_asks_too_often_must_wait_and_others_need_not(light):
    web = server(light, requests_a_minute=3)
    answers = [web.get("/api/v1/runs") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].headers["retry-after"] == "60"


def test_two_authorizations_or_another_kind_of_authorization_are_refused(light):
    web = server(light)
    _, secret = light.tokens.make("ann", [Scope.READ], by="root")
    assert web.get("/api/v1/runs", headers=[("Authorization", f"Bearer {secret}")] * 2).status_code == 401
    assert web.get("/api/v1/runs", headers={"Authorization": f"Basic {secret}"}).status_code == 401
    assert web.get("/api/v1/runs", headers={"Authorization": f"bearer {secret}"}).status_code == 200


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
