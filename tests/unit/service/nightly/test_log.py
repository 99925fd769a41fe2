"""What a night leaves: its log, what is shown meanwhile, its page of measurements and its locks."""

import errno
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from unittest.mock import Mock

import pandas as pd
import pytest

from perfsvc.errors import DatabaseError, InfrastructureError, UsageError
from perfsvc.report.export import files, frames
from perfsvc.service.nightly import stages
from perfsvc.service.nightly.log import REPORT, NightLog
from perfsvc.service.nightly.night import _locked
from perfsvc.store import Store


class Watcher:
    """Keeps what is shown."""

    def __init__(self):
        self.bars, self.steps, self.lines = [], [], []

    def begin(self, stage, total):
        self.bars.append((stage, total))

    def step(self, what):
        self.steps.append(what)

    def report(self, line):
        assert re.match(r"\d\d:\d\d:\d\d ", line)
        self.lines.append(line[9:])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "nights" / "3" / "log.jsonl"


@pytest.fixture
def watcher():
    return Watcher()


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_line_of_the_file_has_the_night_and_the_run_once_there_is_one(file, watcher):
    with NightLog(file.parents[1], 3, watcher) as log:
        log.report("the lock is ours")
        log.bind(run=7, stage="run")
        log.step("scale/alpha[n=1000]")
        log.report("measured", cases=12)
    first, second, third = lines(file)
    assert (first["night"], first["run"], first["event"], first["level"]) == (3, None, "the lock is ours", "info")
    assert (second["night"], second["run"], second["stage"], second["step"]) == (3, 7, "run", "scale/alpha[n=1000]")
    assert (third["run"], third["cases"]) == (7, 12)
    assert [*third][:3] == ["at", "level", "event"]
    assert third["at"].endswith("Z")


def test_messages_are_shown_as_lines_and_steps_are_not(file, watcher):
    with NightLog(file.parents[1], 3, watcher) as log:
        log.begin("measuring", 2)
        log.step("scale/alpha[n=1000]")
        log.report("one GPU waits for its lock")
        log.warning("one GPU is hot")
    assert (watcher.bars, watcher.steps) == ([("measuring", 2)], ["scale/alpha[n=1000]"])
    assert watcher.lines == ["one GPU waits for its lock", "warning: one GPU is hot"]
    assert [line["level"] for line in lines(file)] == ["debug", "debug", "info", "warning"]


def test_an_error_is_logged_with_its_cure_and_a_bug_with_its_traceback(file, watcher):
    with NightLog(file.parents[1], 3, watcher) as log:
        log.fail(DatabaseError("the database is gone", cure="start it"))
        try:
            [].pop()
        except IndexError as error:
            log.fail(error)
    expected, fault = lines(file)
    found = (expected["kind"], expected["event"], expected["cure"])
    assert found == ("DatabaseError", "the database is gone", "start it")
    assert "exception" not in expected
    assert fault["event"] == "IndexError: pop from empty list"
    assert "[].pop()" in fault["exception"]
    assert watcher.lines == ["error: the database is gone\n  cure: start it", "error: IndexError: pop from empty list"]


def test_a_resumed_night_appends_to_its_file(file):
    with NightLog(file.parents[1], 3, Mock()) as log:
        log.report("before")
    with file.open("a") as cut:
        cut.write('{"at": "2026-11-2')
    with NightLog(file.parents[1], 3, Mock()) as log:
        log.report("after")
    before, cut, after = file.read_text().splitlines()
    assert (json.loads(before)["event"], json.loads(after)["event"]) == ("before", "after")
    assert cut == '{"at": "2026-11-2'


def test_a_full_disk_loses_only_the_file(file, watcher, monkeypatch):
    def full(_, __):
        raise OSError(errno.ENOSPC, "No space left on device")

    with NightLog(file.parents[1], 3, watcher) as log:
        monkeypatch.setattr(os, "write", full)
        log.report("first")
        log.report("second")
    assert [line for line in watcher.lines if line.startswith("warning")] == [
        f"warning: the night's log {file} cannot be written any more: No space left on device"
    ]
    assert {"first", "second"} <= set(watcher.lines)


@pytest.mark.parametrize("linked", ["3", "3/log.jsonl", ""])
def test_a_link_is_not_followed_and_it_or_a_file_in_place_of_the_folder_loses_only_the_file(tmp_path, watcher, linked):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "log.jsonl").write_text("mine\n")
    place = tmp_path / "nights" / linked
    place.parent.mkdir(parents=True, exist_ok=True)
    if linked:
        place.symlink_to(victim if linked == "3" else victim / "log.jsonl")
    else:
        place.write_text("a file stands where the folder should")
    with NightLog(tmp_path / "nights", 3, watcher) as log:
        log.report("all the same")
    complaint, message = watcher.lines
    assert f"cannot be written any more: {'it is' if linked else 'Not a directory'}" in complaint
    assert ("not followed" in complaint) == bool(linked)
    assert message == "all the same"
    assert [(file.name, file.read_text()) for file in victim.iterdir()] == [("log.jsonl", "mine\n")]


def test_lines_of_several_threads_do_not_mix(file):
    with NightLog(file.parents[1], 3, Mock()) as log, ThreadPoolExecutor(8) as threads:
        list(threads.map(log.report, [f"{number} " * 500 for number in range(200)]))
    assert {line["event"].split()[0] for line in lines(file)} == {str(number) for number in range(200)}


def test_every_message_is_one_line_of_the_file(file):
    messages = ["<b>bold</b> \"quoted\" 'too'", "two\nlines", "µs, ±, ×, 日本", "\udcff half a name"]
    with NightLog(file.parents[1], 3, Mock()) as log:
        for message in messages:
            log.report(message)
    found = [json.loads(line.replace("\\udcff", "\\\\udcff"))["event"] for line in file.read_text().splitlines()]
    assert found == [*messages[:3], "\\udcff half a name"]


def test_a_line_holds_no_password_and_no_character_that_a_terminal_obeys(file, watcher):
    written = "\x9b2J \u202e ##vso[x] \udcff"
    with NightLog(file.parents[1], 3, watcher) as log:
        log.report(written)
        log.fail(RuntimeError("postgresql://u:hunter2@h/db"))
    content = file.read_text()
    assert lines(file)[0]["event"] == written
    assert not re.search(r"[\x7f-\x9f\u202e]|##\w*\[|hunter2", content)
    assert "postgresql://u:***@h/db" in content
    assert "hunter2" not in "".join(watcher.lines)


# --- the page of measurements ----------------------------------------------------------------------------------------


@pytest.fixture
def night(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "frame", lambda _: pd.DataFrame())
    monkeypatch.setattr(files, "content", lambda *_: "<html>")
    night = Mock(number=3)
    night.settings.nightly.folder = tmp_path / "nights"
    return night


def test_the_page_is_in_the_folder_of_the_night(night, tmp_path):
    page = tmp_path / "nights" / "3" / REPORT
    assert stages.report(night).text == str(page)
    assert page.read_text() == "<html>"


def test_a_folder_of_a_night_that_is_a_link_is_not_followed(night, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "nights").mkdir()
    (tmp_path / "nights" / "3").symlink_to("../victim")
    with pytest.raises(UsageError, match="links to folders are not followed"):
        stages.report(night)
    assert not list((tmp_path / "victim").iterdir())


def test_a_full_disk_keeps_the_earlier_page(night, tmp_path, full_disk):
    page = tmp_path / "nights" / "3" / REPORT
    page.parent.mkdir(parents=True)
    page.write_text("old")
    with pytest.raises(InfrastructureError, match="No space left on device"):
        stages.report(night)
    assert [(file.name, file.read_text()) for file in page.parent.iterdir()] == [(page.name, "old")]


# --- the locks -------------------------------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path / "locks"))
    return lambda store: _locked(store, "box", 0.0, print, lambda: False)


def test_the_path_of_a_database_need_not_be_utf_8(tmp_path, monkeypatch, locked):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with Store.open("perfsvc.db") as store, locked(store) as taken:
        assert taken == "taken at once"
        assert (folder / "perfsvc.db-night-box.lock").exists()


def test_a_database_behind_a_link_has_one_lock(tmp_path, monkeypatch, locked):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link.db").symlink_to("real.db")
    (tmp_path / "here").symlink_to(tmp_path / "data")
    with Store.open(tmp_path / "data" / "real.db") as store, locked(store):
        monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path / "other"))
        with (
            Store.open(tmp_path / "here" / "link.db") as other,
            ExitStack() as stack,
            pytest.raises(InfrastructureError, match="another night is under way"),
        ):
            stack.enter_context(locked(other))
    assert [path.name for path in (tmp_path / "data").glob("*.lock")] == ["real.db-night-box.lock"]
