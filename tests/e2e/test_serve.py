"""The command ``perfsvc serve`` as a real process."""

import json
import signal
import socket
import sqlite3
import sys
import urllib.error
import urllib.request

import pytest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def measured(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)
    return perfsvc


@pytest.fixture
def serving(measured):
    """Return a function that starts a server with some options and returns its process and the line that it prints."""
    processes = []

    def start(*options):
        process = measured.start("serve", "--port", 0, *options)
        processes.append(process)
        line = process.stdout.readline()
        assert line.startswith("serving at http://"), process.stderr.read()
        return process, line

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def read(url):
    with urllib.request.urlopen(url, timeout=100) as answer:  # noqa: S310 - our own server
        return answer.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_answers_until_a_signal_and_ends_with_0(serving, number):
    process, line = serving()
    url = line.split()[-1]
    assert url.startswith("http://127.0.0.1:")
    assert "Tonight · perfsvc" in read(url)
    assert json.loads(read(f"{url}api/v1/runs"))["items"][0]["run"] == 1
    with pytest.raises(urllib.error.HTTPError) as refused:
        read(f"{url}api/v1/runs/99")
    with refused.value as answer:
        assert json.load(answer)["error"] == "there is no run 99"
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (0, "")
    lines = [json.loads(line) for line in err.splitlines()]
    asked = [("/", 200), ("/api/v1/runs", 200), ("/api/v1/runs/99", 404)]
    assert [(line["path"], line["status"]) for line in lines] == asked


def test_a_run_that_is_stored_while_the_server_runs_is_served(serving, measured):
    url = serving()[1].split()[-1]
    assert "run 1," in read(url)
    measured.fake(code=0)
    assert "run 2," in read(url)
    with sqlite3.connect(measured.database) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert "run 2," in read(f"{url}series.html")
    writer.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_server_that_listens_at_every_address_prints_the_name_of_the_machine(serving, host):
    _, line = serving("--host", host, "--anonymous")
    port, _, rest = line.removeprefix(f"serving at http://{socket.gethostname()}:").partition("/ ")
    assert rest == "and at every other address of this machine\n"
    named = {"Host": f"{socket.gethostname()}:{port}"}
    assert read(urllib.request.Request(f"http://127.0.0.1:{port}/healthz", headers=named)) == "ok\n"


def test_a_port_that_is_in_use_is_an_error_with_a_cure(measured):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = measured("serve", "--port", taken.getsockname()[1], code=5)
    assert "the server cannot listen at 127.0.0.1, port" in ended.err
    assert "cure: end the program that listens there" in ended.err


@pytest.mark.quick
def test_other_machines_are_refused_until_a_setting_says_who_may_read(measured):
    ended = measured("serve", "--host", "0.0.0.0", code=2)
    assert "0.0.0.0 can be reached from other machines" in ended.err
    assert "cure: set server.anonymous" in ended.err
    unknown = measured("serve", "--host", "nowhere.invalid", "--anonymous", code=5)
    assert "cannot listen at nowhere.invalid" in unknown.err
    assert "there is no database" in measured("serve", "--db", "none.db", code=5).err


def test_without_the_extra_the_error_has_a_cure(measured, monkeypatch):
    # Only the module that imports uvicorn: other tests hold the other modules.
    monkeypatch.delitem(sys.modules, "perfsvc.server.run", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ended = measured("serve", code=5)
    assert "the server needs the package uvicorn" in ended.err
    assert "pip install" in ended.err


def test_wrong_settings_are_errors(measured):
    for error, settings in {
        "port": "port = 70000",
        "no name of a header": 'trusted_header = "X Y"',
        "no address of a page": 'public_url = "perf.example.org"',
        "host": 'host = ""',
        ":: can be reached from other machines": 'host = "::"',
    }.items():
        (measured.folder / "perfsvc.toml").write_text(f"[server]\n{settings}\n")
        assert error in measured("serve", code=2).err
