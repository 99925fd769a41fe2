"""What every answer of the server has, and what the server refuses."""

import socket

import pytest
from structlog.testing import capture_logs

from perfsvc.errors import DatabaseError
from perfsvc.report.pages.render import POLICY
from perfsvc.server.guard import LONGEST_QUERY
from perfsvc.service.dashboard.live import LivePages

BROWSER = {"accept": "text/html,application/xhtml+xml"}


def test_every_answer_has_the_security_headers(local):
    for path in ("/", "/api/v1/runs", "/nothing.html", "/assets/site.css", "/metrics"):
        headers = local.get(path).headers
        assert headers["content-security-policy"] == f"{POLICY}; frame-ancestors 'none'", path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer", path


def test_this_machine_and_addresses_are_known_hosts(local):
    hosts = ("localhost", "localhost:8350", "127.0.0.1:1", "[::1]:8350", "10.0.0.7", "LocalHost", "localhost.")
    assert {host: local.get("/healthz", headers={"host": host}).status_code for host in hosts} == dict.fromkeys(
        hosts, 200
    )


def test_an_unknown_host_is_refused_with_a_cure(local):
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "a:b:c"):
        answer = local.get("/", headers={"host": host})
        assert answer.status_code == 400, host
        assert "server.public_url" in answer.json()["cure"]


def test_the_host_of_the_public_address_is_known(served):
    web = served(public_url="https://perf.example.org/perf/")
    assert web.get("/healthz", headers={"host": "perf.example.org"}).status_code == 200
    assert web.get("/healthz", headers={"host": "example.org"}).status_code == 400


def test_the_name_of_this_machine_is_known_if_the_server_listens_at_every_address(served):
    known = {"host": f"{socket.gethostname()}:8350"}
    assert served(host="0.0.0.0", anonymous=True).get("/healthz", headers=known).status_code == 200
    assert served(host="::", anonymous=True).get("/healthz", headers=known).status_code == 200
    assert served(host="10.0.0.7", anonymous=True).get("/healthz", headers=known).status_code == 400


def test_a_long_query_is_refused(local):
    assert local.get("/healthz?" + "a" * LONGEST_QUERY).status_code == 200
    answer = local.get("/healthz?" + "a" * (LONGEST_QUERY + 1))
    assert answer.status_code == 414
    assert answer.json()["error"] == "the query is too long"


def test_a_browser_gets_an_error_as_a_page_and_a_program_as_json(local):
    page = local.get("/series/<script>boom()</script>.html", headers=BROWSER)
    assert page.status_code == 404
    assert "<h1>there is nothing at this address</h1>" in page.text
    assert 'href="../../assets/site.css"' in page.text  # the path has a slash in it
    assert local.get("/nothing").json() == {"error": "there is nothing at this address", "cure": "begin at /"}
    assert local.get("/api/v1/nothing", headers=BROWSER).headers["content-type"] == "application/json"


def test_an_error_names_what_the_visitor_sent_as_text(local):
    page = local.get("/compare?base=<b>boom</b>", headers=BROWSER)
    assert page.status_code == 400
    assert "&lt;b&gt;boom" in page.text
    assert "<b>" not in page.text


def test_only_reading_methods_are_taken(local):
    for method in ("POST", "PUT", "DELETE", "PATCH", "BREW"):
        answer = local.request(method, "/")
        assert answer.status_code == 405
        assert set(answer.json()) == {"error", "cure"}


def test_a_fault_is_logged_and_its_answer_has_no_traceback(local, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(LivePages, "page", fail)
    with capture_logs() as lines:
        answer = local.get("/")
    assert answer.status_code == 500
    assert answer.json() == {"error": "perfsvc failed to answer", "cure": "see the log of the server"}
    assert [line["event"] for line in lines] == ["failed", "request"]
    assert lines[0]["exc_info"]
    assert lines[1]["status"] == 500


@pytest.mark.parametrize(("again", "status"), [(True, 503), (False, 500)])
def test_an_error_of_the_database_is_an_answer_with_a_cure(local, monkeypatch, again, status):
    def fail(*_):
        raise DatabaseError("postgresql://ann:secret@host/db: gone", cure="start it", again=again)

    monkeypatch.setattr(LivePages, "page", fail)
    with capture_logs() as lines:
        answer = local.get("/")
    assert answer.status_code == status
    assert answer.json()["cure"] == ("ask again later" if again else "see the log of the server")
    assert "host" not in answer.text
    assert answer.headers.get("retry-after") == ("5" if again else None)
    assert lines[0]["cure"] == "start it"


def test_each_request_is_logged_without_commands_for_the_terminal(local):
    with capture_logs() as lines:
        local.get("/%1b[2Jx")
    (line,) = lines
    assert line["status"] == 404
    assert "\x1b" not in line["path"]
    assert line["method"] == "GET"


# --- access ----------------------------------------------------------------------------------------------------------


def test_an_unknown_visitor_reads_only_if_the_settings_let_it(served):
    paths = ("/", "/api/v1/runs", "/metrics", "/feeds/findings.atom", "/badges/findings.svg", "/compare")
    for settings in ({}, {"host": "0.0.0.0", "anonymous": True}):
        web = served(**settings)
        for path in paths:
            assert web.get(path).status_code in {200, 303}, path
    for settings in ({"anonymous": False}, {"host": "0.0.0.0"}):
        web = served(**settings)
        for path in paths:
            refused = web.get(path)
            assert refused.status_code == 401, path
            assert set(refused.json()) == {"error", "cure"}


def test_a_visitor_that_a_proxy_names_reads(served):
    web = served(trusted_header="X-Forwarded-User", peer=("127.0.0.1", 1))
    assert web.get("/").status_code == 401
    assert web.get("/", headers={"x-forwarded-user": " "}).status_code == 401
    assert web.get("/", headers={"x-forwarded-user": "ann"}).status_code == 200
    assert served(anonymous=False).get("/", headers={"x-forwarded-user": "ann"}).status_code == 401


def test_health_and_styles_need_no_visitor(served):
    web = served(anonymous=False)
    assert web.get("/healthz").text == "ok\n"
    assert web.get("/assets/site.css").status_code == 200
