"""What is no longer there reaches a person once: GPUs, benchmarks, cases, references and hosts."""

import json
import re
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from perfsvc.device import fake
from perfsvc.errors import InfrastructureError, NoDeviceError
from tests.e2e.history import git
from tests.e2e.nights import USUAL

SETTINGS = """
suite = "scale"

[run]
devices = {devices}
replicas = 1

[notify]
targets = {{ {targets} }}

[dashboard]
enabled = {page}

[confirm]
enabled = false

[check]
enabled = false
{more}"""


class Box:
    """A workplace whose nights measure on several fake GPUs, and the messages that they send."""

    def __init__(self, perfsvc, receiver):
        self.perfsvc, self.receiver = perfsvc, receiver
        self.suite = perfsvc.own("scale")
        perfsvc.environment["TEAM_URL"] = receiver.address()
        for number in (0, 1):
            self.play(number)
        self.settings(["fake:gpu-0.json", "fake:gpu-1.json"])

    def script(self, number):
        return self.perfsvc.folder / f"gpu-{number}.json"

    def play(self, number, **script):
        known = {"cases": {"*": USUAL}, "uuid": f"GPU-{number}", "model": "H100"}
        self.script(number).write_text(json.dumps(known | script))

    def lose(self, number):
        self.script(number).with_name(f"gpu-{number}.json.lost").touch()

    def find(self, number):
        self.script(number).with_name(f"gpu-{number}.json.lost").unlink()

    def settings(self, devices, more="", page=False, targets='team = "TEAM_URL"'):
        text = SETTINGS.format(devices=json.dumps(devices), more=more, page=str(page).lower(), targets=targets)
        (self.perfsvc.folder / "perfsvc.toml").write_text(text)

    def without(self, text):
        """Take a text out of the benchmark's file."""
        bench = self.suite / "scale" / "bench.py"
        before = bench.read_text()
        assert text in before
        bench.write_text(before.replace(text, ""))

    def night(self, code=None, host=None):
        """Return the messages that a night sends."""
        before = len(self.receiver.received)
        name = host or socket.gethostname()
        with mock.patch("platform.node", return_value=name), mock.patch("socket.gethostname", return_value=name):
            ended = self.perfsvc("nightly")
        assert code in {None, ended.code}, f"{ended.code}\n{ended.out}\n{ended.err}"
        return [received.json for received in self.receiver.received[before:]]

    def watchdog(self, code):
        """Return the messages that a watchdog on another machine sends."""
        before = len(self.receiver.received)
        with mock.patch("platform.node", return_value="w"):
            said = self.perfsvc("watchdog", code=code).out
        first, *sent = said.splitlines()
        if code:
            assert re.match(r"finding \d: host a has no night in time: (last seen in night|night \d began at) ", first)
        else:
            assert first == "1 host, none is overdue"
        self.sent = [line.removeprefix("messages: ") for line in sent]
        return [received.json for received in self.receiver.received[before:]]

    def stage(self, night, name="expect"):
        ((state, message, cure, code),) = self.perfsvc.rows(
            "select state, message, cure, exit_code from stages where night_id = ? and name = ?", night, name
        )
        return state, message, cure, code

    def age(self, *, days):
        """Date back all nights, and all that was seen."""
        with closing(sqlite3.connect(self.perfsvc.database)) as connection, connection:
            then = {"form": "%Y-%m-%d %H:%M:%f000", "back": f"{-days:+} days"}
            connection.execute("update nights set started_at = strftime(:form, started_at, :back)", then)
            connection.execute("update finding_events set done_at = strftime(:form, done_at, :back)", then)
            connection.execute("update expectations set seen_at = strftime(:form, seen_at, :back)", then)
        shutil.rmtree(Path(self.perfsvc.environment["XDG_DATA_HOME"]) / "perfsvc" / "nights", ignore_errors=True)

    def findings(self):
        return self.perfsvc.rows("select cause, root_cause, state from findings order by id")


@pytest.fixture
def box(perfsvc, receiver):
    return Box(perfsvc, receiver)


def test_a_lost_gpu_is_reported_that_night_once_and_again_when_it_is_back(box):
    host = socket.gethostname()
    assert box.night(code=0) == []
    assert box.stage(1)[1] == "2 GPUs, 3 cases, 1 host"
    box.lose(1)
    (message,) = box.night(code=5)
    assert message["title"] == f"GPU-1 (H100) on host {host} is missing"
    assert f"Finding 1 (new): missing, GPU-1 (H100) on host {host}\nlast seen in night 1, " in message["message"]
    assert "Failed" not in message["message"]
    assert box.stage(2)[:2] == ("done", f"missing: GPU-1 (H100) on host {host}")
    assert box.stage(2, "run")[:2] == ("done", "run 2: 3 cases on 1 device")
    assert box.night(code=5) == []
    assert box.findings() == [("missing", f"GPU-1 (H100) on host {host}", "open")]
    box.find(1)
    (message,) = box.night(code=0)
    assert message["title"] == f"GPU-1 (H100) on host {host} is back"
    assert box.findings()[0][2] == "resolved"
    assert box.night(code=0) == []


@mock.patch("perfsvc.service.doctor._usable_gpus", list)  # it would look for an nvcc for the fake GPU
def test_auto_never_falls_back_to_the_cpu_where_a_gpu_was_measured(box):
    box.settings(["auto"], page=True)
    found = [fake.describe(box.script(0))]
    with mock.patch("perfsvc.device.find._cuda", side_effect=lambda: found):
        assert box.night(code=0) == []
    with mock.patch("perfsvc.device.find._cuda", side_effect=NoDeviceError("the driver lists no device", cure="")):
        (message,) = box.night(code=5)
        assert box.night(code=5) == []
        ended = box.perfsvc("run", "--device", "auto", "--suite", box.suite, code=5)
    host = socket.gethostname()
    assert message["title"] == f"GPU-0 (H100) on host {host} is missing"
    assert "\nnothing was measured, because no GPU is left\n" in message["message"]
    assert "Failed stages" not in message["message"]
    state, what, cure, code = box.stage(2, "run")
    assert (state, code) == ("failed", 5)
    assert what == "there is no GPU to use, but earlier runs of this host measured on GPU-0 (H100)"
    assert 'devices = ["cpu"]' in cure
    assert what in ended.err
    assert box.perfsvc.rows("select distinct kind from devices") == [("fake",)]
    page = (box.perfsvc.folder / "site" / "index.html").read_text()
    assert f"GPU-0 (H100) on host {host}" in page
    assert "1 finding standing, 1 failed" in page.replace("\n", " ")


def test_a_gpu_that_the_settings_no_longer_name_is_told_once_and_can_be_forgotten(box):
    box.night(code=0)
    box.settings(["fake:gpu-0.json"])
    (message,) = box.night(code=5)
    assert "the settings name fake:gpu-0.json now, and named fake:gpu-0.json fake:gpu-1.json then" in message["message"]
    assert "missing: finding 1" in box.perfsvc("expect", code=0).out
    said = box.perfsvc("expect", "forget", "GPU-1", "--reason", "sold", code=0).out
    assert said == f"no longer expected: GPU-1 (H100) on host {socket.gethostname()}\nfinding 1 is accepted\n"
    assert box.night(code=0) == []
    (event,) = box.perfsvc.rows("select kind, text, done_by != '' from finding_events where kind = 'accepted'")
    assert event == ("accepted", "sold", 1)
    assert "GPU-1" not in box.perfsvc("expect", code=0).out


def test_a_variant_that_is_gone_is_one_finding_and_accepting_it_forgets_it(box):
    box.settings(["fake:gpu-0.json"], page=True)
    box.night(code=0)
    box.without(', variant("gamma", params={"REPEAT": 2})')
    (message,) = box.night(code=4)
    assert message["title"] == "variant scale/gamma is missing"
    assert box.night(code=4) == []
    assert box.perfsvc("findings", "show", "1", "--format", "json", code=0).json["moved"] == []
    assert "leave out --select" in box.perfsvc("findings", "ack", "1", "--select", "*/gamma", code=2).err
    accepted = box.perfsvc("findings", "accept", "1", "--reason", "merged into beta", code=0).out
    assert accepted == "finding 1 is accepted: variant scale/gamma is no longer expected\n"
    assert box.night(code=0) == []
    assert [state for *_, state in box.findings()] == ["accepted"]
    text = (box.perfsvc.folder / "site" / "findings" / "1.html").read_text()
    assert "variant scale/gamma" in text
    assert "raised</b> in night 2" in text


def test_the_commit_that_removed_a_variant_is_stored_with_the_finding_about_it(box):
    box.settings(["fake:gpu-0.json"])
    git(box.suite, "init", "-q")
    for code, gone in ((0, ""), (0, "Scaling: "), (4, ', variant("gamma", params={"REPEAT": 2})')):
        box.without(gone)
        git(box.suite, "add", "-A")
        git(box.suite, "commit", "-q", "--allow-empty", "-m", f"Without {gone[:16]}")
        box.night(code=code)
    places = ("--good", "HEAD~2", "--suite", box.suite, "--device", "fake:gpu-0.json", "--finding", "1")
    found = box.perfsvc("bisect", "scale/gamma[n=100]", *places, "--format", "json", code=4).json
    assert found["reason"].startswith("there is no case scale/gamma[n=100]; at ")
    box.perfsvc("dashboard", "build", "site", code=0)
    text = (box.perfsvc.folder / "site" / "findings" / "1.html").read_text()
    assert "This commit broke the case" in text
    assert (
        "name one of its cases: scale/gamma[n=100]" in box.perfsvc("bisect", "scale/beta[n=100]", *places, code=2).err
    )


def test_a_benchmark_file_that_breaks_is_one_finding_that_says_why_and_is_resolved(box):
    box.settings(["fake:gpu-0.json"])
    other = box.suite / "other"
    other.mkdir()
    for file in (box.suite / "scale").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    box.night(code=0)
    text = (other / "bench.py").read_text()
    (other / "bench.py").write_text(f"{text}\nraise ValueError('half a merge')\n")
    (message,) = box.night(code=4)
    assert message["title"] == "benchmark other is missing"
    assert "3 cases, last seen in night 1, " in message["message"]
    assert "half a merge" in message["message"]
    assert box.night(code=4) == []
    (other / "bench.py").write_text(text)
    (message,) = box.night(code=0)
    assert message["title"] == "benchmark other is back"


def test_a_reference_that_is_skipped_from_now_on_is_missing(box):
    box.settings(["fake:gpu-0.json"])
    bench = box.suite / "scale" / "bench.py"
    text = bench.read_text().replace("    variants=[", '    relative_to="alpha",\n    variants=[')
    bench.write_text(text)
    box.night(code=0)
    bench.write_text(text.replace('variant("alpha")', 'variant("alpha", requires="import no_such_package")'))
    (message,) = box.night(code=4)
    assert message["title"] == "reference scale/alpha is missing"
    assert "skipped: " in message["message"]
    assert "no_such_package" in message["message"]


def test_an_overdue_host_is_reported_by_the_night_of_another_once_and_is_back_with_its_next_night(box):
    def night(host, gpu, code):
        box.settings([f"fake:gpu-{gpu}.json"], more='[expect]\nevery = "1d"\n')
        return box.night(code=code, host=host)

    night("b", 1, 0)
    assert night("a", 0, 0) == []
    box.age(days=2)
    (message,) = night("a", 0, 5)
    assert message["title"] == "host b is missing"
    assert "last seen in night 1, " in message["message"]
    assert "; a night is due every 1d\n" in message["message"]
    assert night("a", 0, 5) == []
    (message,) = night("b", 1, 0)
    assert message["title"] == "host b is back"
    assert night("a", 0, 0) == []


def test_a_case_that_vanishes_when_its_host_gets_another_name_is_missing_and_the_old_name_is_overdue(box):
    box.night(code=0, host="old")
    box.without(', variant("gamma", params={"REPEAT": 2})')
    (message,) = box.night(code=4, host="new")
    assert message["title"] == "variant scale/gamma is missing"
    assert "this host has the devices of host old, and is expected to have its cases" in box.stage(2)[1]
    assert box.night(code=4, host="new") == []
    box.age(days=2)
    (message,) = box.night(code=5, host="new")
    assert message["title"] == "host old is missing"
    assert "; its GPUs are on host new now" in message["message"]
    box.perfsvc("expect", "forget", "old", code=0)
    box.perfsvc("findings", "accept", "1", "--reason", "merged", code=0)
    assert box.night(code=0, host="new") == []


def test_a_host_with_other_gpus_expects_nothing_of_another_host(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0, host="a")
    box.settings(["fake:gpu-1.json"])
    box.without(', variant("gamma", params={"REPEAT": 2})')
    assert box.night(code=0, host="b") == []
    assert re.search(r"benchmark scale, 3 cases +a ", box.perfsvc("expect", code=0).out)


def database_is_gone(box):
    for file in box.perfsvc.database.parent.glob(f"{box.perfsvc.database.name}*"):
        file.unlink()


def test_a_night_without_the_database_of_the_last_one_fails_and_says_so_until_a_person_begins_anew(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    copy = box.perfsvc.database.read_bytes()
    database_is_gone(box)
    for _ in range(2):
        (message,) = box.night(code=5)
        assert message["title"] == "stage begin failed"
        assert "there is no database" in message["message"]
        assert "; night 1 of " in message["message"]
        assert "perfsvc nightly --new" in message["message"]
        assert not box.perfsvc.database.exists()
    box.perfsvc.database.write_bytes(copy)
    assert box.night(code=0) == []
    box.perfsvc.database.write_bytes(b"")
    assert len(box.night(code=5)) == 1
    database_is_gone(box)
    box.perfsvc("runs", "--db", box.perfsvc.database, code=5)
    box.perfsvc("run", "--suite", box.suite, "--device", "fake:gpu-0.json", "--db", box.perfsvc.database)
    (message,) = box.night(code=5)
    assert "does not hold night 2 of " in message["message"]
    assert box.perfsvc("nightly", "--new", code=0)
    assert box.night(code=0) == []


def test_an_older_copy_of_the_database_is_told_once_and_continued(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    copy = box.perfsvc.database.read_bytes()
    box.night(code=0)
    database_is_gone(box)
    box.perfsvc.database.write_bytes(copy)
    (message,) = box.night(code=5)
    assert "lacks night 2 of " in message["message"]
    assert message["title"] == "stage expect failed"
    assert box.night(code=0) == []


def test_another_database_is_continued_only_if_it_holds_the_last_night(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    box.perfsvc.environment["PERFSVC_DB"] = "other.db"
    (message,) = box.night(code=5)
    assert "there is no database other.db; night 1 of " in message["message"]
    shutil.copy(box.perfsvc.database, box.perfsvc.folder / "other.db")
    assert box.night(code=0) == []


def test_settings_that_are_gone_end_the_night_and_the_targets_of_the_last_night_are_told(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    (box.perfsvc.folder / "perfsvc.toml").rename(box.perfsvc.folder / "mislaid.toml")
    box.perfsvc.environment["PERFSVC_SUITE"] = str(box.suite)
    (message,) = box.night(code=2)
    assert "perfsvc.toml is gone, and night 1 of " in message["message"]
    assert box.perfsvc("watchdog", code=2).err.count("perfsvc.toml is gone") == 1
    assert box.perfsvc.rows("select count(*) from nights") == [(1,)]
    (box.perfsvc.folder / "mislaid.toml").rename(box.perfsvc.folder / "perfsvc.toml")
    assert box.night(code=0) == []


def test_another_suite_is_measured_only_if_a_person_begins_anew_and_then_both_go_on(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    box.perfsvc.environment["PERFSVC_SUITE"] = str(shutil.copytree(box.suite, box.perfsvc.folder / "moved"))
    (message,) = box.night(code=2)
    assert f"the suite is {box.perfsvc.folder / 'moved'} now, and was {box.suite} in night 1 of" in message["message"]
    box.perfsvc("nightly", "--new", code=0)
    assert box.night(code=0) == []
    del box.perfsvc.environment["PERFSVC_SUITE"]
    assert box.night(code=0) == []


def test_a_night_that_cannot_remember_says_so_and_is_green(box):
    box.settings(["fake:gpu-0.json"])
    box.perfsvc.environment["XDG_DATA_HOME"] = str(box.perfsvc.folder / "perfsvc.toml")  # no folder
    ended = box.perfsvc("nightly", code=0)
    assert "warning: this host cannot remember its nights" in ended.out + ended.err


def test_the_logs_of_nights_show_that_a_database_is_gone_if_the_host_remembers_nothing(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    box.perfsvc.environment["XDG_DATA_HOME"] = str(box.perfsvc.folder / "another")
    assert box.night(code=0) == []
    box.perfsvc.environment["XDG_DATA_HOME"] = str(box.perfsvc.folder / "third")
    database_is_gone(box)
    (message,) = box.night(code=5)
    assert "there is no database" in message["message"]
    assert "nights has old logs" in message["message"]
    box.perfsvc("nightly", "--new", code=0)
    assert box.night(code=0) == []


@pytest.mark.parametrize("command", ["nightly", "watchdog"])
def test_the_targets_of_the_last_night_learn_that_the_settings_cannot_be_read(box, command):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    toml = box.perfsvc.folder / "perfsvc.toml"
    toml.write_text(f"{toml.read_text()}\nx = = 1\n")
    before = len(box.receiver.received)
    box.perfsvc(command, code=2)
    (received,) = box.receiver.received[before:]
    assert received.json["message"].startswith(f"perfsvc {command} on ")
    assert "perfsvc.toml:20: it is not TOML" in received.json["message"]
    box.perfsvc("runs", code=2)
    assert len(box.receiver.received) == before + 1


def test_a_target_that_the_settings_no_longer_name_gets_a_last_message(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    box.settings(["fake:gpu-0.json"], targets="")
    (message,) = box.night(code=0)
    assert "notify.targets does not name team any more: this is the last message" in message["message"]
    assert box.night(code=0) == []


def test_beginning_anew_is_refused_if_nothing_is_gone(box):
    box.settings(["fake:gpu-0.json"])
    box.perfsvc("nightly", "--new", code=0)
    assert "there is nothing to begin anew" in box.perfsvc("nightly", "--new", code=2).err
    assert box.night(code=0) == []


def test_a_night_that_has_run_for_days_and_keeps_others_from_beginning_is_told(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    messages = []

    def meanwhile(*_):
        messages.append(box.night(code=5))
        box.age(days=2)
        messages.append(box.night(code=5))
        raise InfrastructureError("enough")

    with mock.patch("perfsvc.service.nightly.stages.judge_measured", side_effect=meanwhile):
        box.night(code=5)
    assert messages[0] == []
    assert "is under way on this host since" in messages[1][0]["message"]


def test_two_folders_that_share_a_database_both_notice_that_it_was_replaced(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0)
    other = box.perfsvc.folder / "other"
    other.mkdir()
    settings = (box.perfsvc.folder / "perfsvc.toml").read_text()
    for old, new in (('"scale"', '"../scale"'), ("fake:gpu-0", "fake:../gpu-0")):
        settings = settings.replace(old, new)
    (other / "perfsvc.toml").write_text(settings)
    here, box.perfsvc.folder = box.perfsvc.folder, other
    assert box.night(code=0) == []
    database_is_gone(box)
    box.perfsvc("nightly", "--new")
    box.perfsvc.folder = here
    (message,) = box.night(code=5)
    assert "lacks night 1 of " in message["message"]
    assert box.night(code=0) == []


def test_a_watchdog_notices_that_its_database_is_gone_and_tells_people(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0, host="a")
    assert box.watchdog(code=0) == []
    database_is_gone(box)
    before = len(box.receiver.received)
    assert "; night 1 of " in box.perfsvc("watchdog", code=5).err
    (received,) = box.receiver.received[before:]
    assert received.json["message"].startswith("perfsvc watchdog on ")


def test_a_night_in_the_future_is_told_by_the_watchdog_and_by_the_next_night(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0, host="a")
    box.age(days=-3)
    (message,) = box.watchdog(code=5)
    assert "UTC, which is in the future: its clock was wrong, or the clock here is" in message["message"]
    assert box.watchdog(code=5) == []
    messages = box.night(code=5, host="a")
    assert "the clock is wrong now, or was wrong then" in messages[0]["message"]
    assert "finding 1, host a: back in night 2" in messages[0]["message"]
    assert box.night(code=0, host="a") == []
    assert box.watchdog(code=0) == []


def test_the_watchdog_reports_an_overdue_host_once_without_a_suite(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0, host="a")
    shutil.rmtree(box.suite)
    assert box.watchdog(code=0) == []
    box.age(days=2)
    (message,) = box.watchdog(code=5)
    assert message["title"] == "host a is missing"
    assert message["message"].startswith(
        "perfsvc watchdog on w\n\nFinding 1 (new): missing, host a\nlast seen in night 1, "
    )
    assert box.sent == ["sent to team"]
    assert box.watchdog(code=5) == []
    assert box.sent == ["nothing new for team"]
    assert box.findings() == [("missing", "host a", "open")]
    shown = box.perfsvc("findings", "show", "1", code=0).out
    assert "raised" in shown
    box.perfsvc("expect", "forget", "a", code=0)
    assert box.perfsvc("watchdog", "--format", "json", code=0).json == {
        "missing": [],
        "here": "0 hosts, none is overdue",
        "exit_code": 0,
    }
    assert box.findings()[0][2] == "accepted"


def test_a_watchdog_sends_again_what_did_not_arrive_and_a_night_reports_what_a_watchdog_could_not(box):
    box.settings(["fake:gpu-0.json"])
    box.night(code=0, host="a")
    box.age(days=2)
    box.receiver.answers = [400]  # refused for good, so that it is not tried again at once
    assert len(box.watchdog(code=5)) == 1
    (message,) = box.watchdog(code=5)
    assert message["title"] == "host a is missing"
    assert box.night(host="a")[0]["title"] == "host a is back"
    box.age(days=2)
    with_targets = (box.perfsvc.folder / "perfsvc.toml").read_text()
    box.settings(["fake:gpu-0.json"], targets="")
    assert box.watchdog(code=5) == []
    assert box.sent == ["no messages are sent: notify.targets is empty"]
    (box.perfsvc.folder / "perfsvc.toml").write_text(with_targets.replace("gpu-0", "gpu-1"))
    assert box.night(code=5, host="b") == []
    box.age(days=1)
    (message,) = box.night(code=5, host="b")
    assert message["title"] == "host a is missing"
    assert box.night(code=5, host="b") == []


def test_the_heartbeat_is_pinged_at_start_and_end_or_failure_and_never_fails_the_night(box):
    box.settings(["fake:gpu-0.json"], more='[nightly]\nheartbeat = "HEARTBEAT_URL"\n')
    url = f"http://127.0.0.1:{box.receiver.server_port}/ping/secret"

    def pings(value, code):
        before = len(box.receiver.received)
        box.perfsvc.environment["HEARTBEAT_URL"] = value
        ended = box.perfsvc("nightly", code=code)
        paths = [received.path for received in box.receiver.received[before:] if received.content == b""]
        return paths, ended.out + ended.err

    assert pings(url, 0)[0] == ["/ping/secret/start", "/ping/secret"]
    assert pings(f"{url}?rid=1", 0)[0] == ["/ping/secret/start?rid=1", "/ping/secret?rid=1"]
    box.receiver.answers = [500, 500]
    paths, shown = pings(url, 0)
    assert paths == ["/ping/secret/start", "/ping/secret/start", "/ping/secret"]
    assert "the heartbeat did not arrive (start): the monitor answered 500" in shown
    paths, shown = pings("http://127.0.0.1:1/secret", 0)
    assert paths == []
    assert "the heartbeat did not arrive (end): " in shown
    assert "secret" not in shown
    assert "HEARTBEAT_URL is not set" in pings("", 0)[1]
    assert "holds no http or https URL" in pings("file:///etc/passwd", 0)[1]
    box.lose(0)
    assert pings(url, 5)[0] == ["/ping/secret/start", "/ping/secret/fail"]
    box.find(0)
    with mock.patch("perfsvc.service.nightly.stages.judge_measured", side_effect=KeyboardInterrupt):
        assert pings(url, 130)[0] == ["/ping/secret/start", "/ping/secret/fail"]
    assert "HEARTBEAT_URL (set)" in box.perfsvc("config", "show", code=0).out


def test_a_message_names_the_gpu_that_is_back_and_the_gpu_that_is_still_missing(box):
    host = socket.gethostname()
    box.play(2)
    box.settings([f"fake:gpu-{number}.json" for number in range(3)])
    box.night(code=0)
    box.lose(1)
    box.lose(2)
    assert box.night(code=5)[0]["title"] == f"2 GPUs on host {host} are missing"
    box.find(1)
    (message,) = box.night(code=5)
    assert message["title"] == f"GPU-1 (H100) is back; still missing: GPU-2 (H100) on host {host}"
    assert f"Finding 1 (a part is back): missing, GPU-2 (H100) on host {host}\n" in message["message"]
    assert "\nlast seen in night 1, " in message["message"]
    assert "gone on purpose? perfsvc expect forget --finding 1 " in message["message"]
    assert box.night(code=5) == []
    box.perfsvc("findings", "ignore", "1", "--comment", "it is in repair", code=0)
    assert box.night(code=0) == []
    box.find(2)
    (message,) = box.night(code=0)
    assert message["title"] == f"GPU-2 (H100) on host {host} is back"


def test_forgetting_names_what_it_forgets(box):
    box.night(code=0)
    host = socket.gethostname()
    assert box.perfsvc("expect", "forget", "GPU-0", "scale/*", code=0).out == (
        f"no longer expected: GPU-0 (H100) on host {host}\n"
        "no longer expected: 3 cases of scale (scale/alpha[n=100], scale/beta[n=100], scale/gamma[n=100]) "
        f"on host {host}\n"
    )
    assert "nothing that is expected is named ''" in box.perfsvc("expect", "forget", "", "--reason", "x", code=2).err
    assert "nothing to forget is named" in box.perfsvc("expect", "forget", code=2).err
    assert "finding 3 reports nothing" in box.perfsvc("expect", "forget", "--finding", "3", code=2).err
