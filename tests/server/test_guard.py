"""What every answer of the server has, and what the server refuses."""

import socket
from unittest import mock

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


def test_this_machine_addresses_and_the_public_host_are_known_and_other_hosts_are_refused_with_a_cure(local, served):
    for host in ("localhost", "localhost:8350", "127.0.0.1:1", "[::1]:8350", "10.0.0.7", "LocalHost", "localhost."):
        assert local.get("/healthz", headers={"host": host}).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "a:b:c"):
        answer = local.get("/", headers={"host": host})
        assert answer.status_code == 400, host
        assert "server.public_url" in answer.json()["cure"]
    web = served(public_url="https://perf.example.org/perf/")
    assert web.get("/healthz", headers={"host": "perf.example.org"}).status_code == 200
    assert web.get("/healthz", headers={"host": "example.org"}).status_code == 400
    here = {"host": f"{socket.gethostname()}:8350"}  # known if the server listens at every address
    for host, status in (("0.0.0.0", 200), ("::", 200), ("10.0.0.7", 400)):
        assert served(host=host, anonymous=True).get("/healthz", headers=here).status_code == status, host


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
    page = local.get("/compare?base=<b>boom</b>", headers=BROWSER)
    assert page.status_code == 400
    assert "&lt;b&gt;boom" in page.text
    assert "<b>" not in page.text


def test_only_reading_methods_are_taken(local):
    for method in ("POST", "PUT", "DELETE", "PATCH", "BREW"):
        answer = local.request(method, "/")
        assert answer.status_code == 405
        assert set(answer.json()) == {"error", "cure"}


def test_a_fault_is_logged_and_its_answer_has_no_traceback(served, monkeypatch):
    monkeypatch.setattr(LivePages, "page", mock.Mock(side_effect=ZeroDivisionError("secret")))
    with capture_logs() as lines:
        answer = served().get("/")
    assert answer.status_code == 500
    assert answer.json() == {"error": "perfsvc failed to answer", "cure": "see the log of the server"}
    assert [line["event"] for line in lines] == ["failed", "request"]
    assert lines[0]["exc_info"]
    assert lines[1]["status"] == 500


def test_an_error_of_the_database_is_an_answer_with_a_cure(served, monkeypatch):
    for again, status in ((True, 503), (False, 500)):
        error = DatabaseError("postgresql://ann:secret@host/db: gone", cure="start it", again=again)
        monkeypatch.setattr(LivePages, "page", mock.Mock(side_effect=error))
        with capture_logs() as lines:
            answer = served().get("/")
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
        assert web.get("/healthz").text == "ok\n"
        assert web.get("/assets/site.css").status_code == 200


def test_a_visitor_that_a_proxy_names_reads(served):
    web = served(trusted_header="X-Forwarded-User", peer=("127.0.0.1", 1))
    assert web.get("/").status_code == 401
    assert web.get("/", headers={"x-forwarded-user": " "}).status_code == 401
    assert web.get("/", headers={"x-forwarded-user": "ann"}).status_code == 200
    assert served(anonymous=False).get("/", headers={"x-forwarded-user": "ann"}).status_code == 401
