"""``perfsvc nightly``: its stages, their failures, and two nights at once."""

import fcntl
import json
import os
import signal
import sqlite3
import time
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from perfsvc.build.nvcc import find_nvcc
from perfsvc.errors import DatabaseError
from perfsvc.service.nightly import night, stages
from perfsvc.store import Store
from tests.e2e.nights import Nights, one_night

RESULTS = "select name, message from stages where name != 'lock' order by number"


@pytest.fixture
def nights(perfsvc):
    return Nights(perfsvc)


@pytest.fixture
def later(prepared):
    """Nights after the usual first one."""
    return Nights(prepared(one_night))


def test_a_night_logs_all_that_it_shows_and_there_is_none_to_resume_before_the_first(nights):
    nights.perfsvc("db", "upgrade", code=0)
    assert "no night was begun on this host: there is none to resume" in nights("--resume", code=2).err
    ended = nights(code=0)
    assert "beta" in (nights.perfsvc.folder / "nights" / "1" / "report.html").read_text()
    log = nights.log(1)
    logged = [line["event"] for line in log if line["level"] == "info"]
    assert [line.partition(" ")[2] for line in ended.err.splitlines()] == logged
    assert {line["night"] for line in log} == {1}
    assert {line["run"] for line in log if line.get("stage") == "judge"} == {1}


def test_a_finding_stays_the_exit_code_of_nights_in_a_new_environment(later):
    later.slower()
    later(code=1)
    script = json.loads(later.perfsvc.script.read_text())
    later.perfsvc.play(script["cases"], driver="1.0")
    later(code=1)
    later(code=1)
    assert later.result(4, "judge") == ("3 unchanged", "")  # against night 3, the first with this driver
    assert later.result(4, "findings") == ("1 unsolved", "")
    later.perfsvc("findings", "accept", "1", "--reason", "it must be so")
    later(code=0)
    assert later.result(5, "findings") == ("nothing new", "")


@pytest.mark.parametrize("stage", ["confirm_suspects", "explain_regressed"])
def test_a_resumed_night_skips_the_cases_of_a_gpu_that_was_swapped(later, monkeypatch, stage):
    later.slower()

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"perfsvc.service.nightly.stages.{stage}", killed)
        later(code=130)
    script = json.loads(later.perfsvc.script.read_text())
    later.perfsvc.play(script.pop("cases"), **script | {"uuid": "FAKE-1"})
    later("--resume", code=5)
    assert later.nights()[-1] == ("finished", 5, 2)
    assert later.result(2, "expect")[0].startswith("missing: FAKE-0 (Fake GPU) on host ")
    assert set(later.stages(2).values()) == {"done", "skipped"}
    assert "FAKE-0" in "".join(line["event"] for line in later.log(2) if "is no longer here" in line["event"])


def test_a_night_with_the_settings_of_another_version_is_not_changed(later):
    with closing(sqlite3.connect(later.perfsvc.database)) as connection, connection:
        connection.execute("delete from stages where name = 'prune'")
        connection.execute("update nights set state = 'interrupted', settings = json_set(settings, '$.weather', 1)")
    ended = later("--resume", code=2)
    assert "this perfsvc does not know the settings" in ended.err
    assert "cure: resume with that version" in ended.err
    later(code=0)
    assert [state for state, *_ in later.nights()] == ["interrupted", "finished"]


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc (pip install 'perfsvc[nvcc]')")
def test_repeated_stages_have_the_same_results(nights):
    nights.settings('\n[check]\narchitectures = ["sm_90"]\n')
    nights(code=0)
    before = nights.perfsvc.rows(RESULTS)
    assert nights.result(1, "check")[0].endswith(": 6 new")
    with closing(sqlite3.connect(nights.perfsvc.database)) as connection, connection:
        connection.execute("delete from stages where name not in ('lock', 'revision', 'doctor')")
        connection.execute("update nights set state = 'interrupted', exit_code = null")
    nights("--resume", code=0)
    after = nights.perfsvc.rows(RESULTS)
    assert [(name, message.partition(": ")[2]) for name, message in after] == [
        (name, message.partition(": ")[2]) for name, message in before
    ]
    assert nights.perfsvc.rows("select count(*) from checks") == [(1,)]
    assert nights.nights() == [("finished", 0, 1)]


def test_a_night_measures_the_built_in_suite_only_if_the_settings_name_it(perfsvc):
    ended = perfsvc("nightly", code=2)
    assert "error: perfsvc.toml names no suite, and there is no folder ./kernels here\n  cure: " in ended.err
    assert list(perfsvc.folder.iterdir()) == []
    assert "for the built-in suite" in perfsvc("init", code=0).out


def test_a_failed_stage_does_not_stop_the_others(nights):
    (nights.perfsvc.folder / "site").write_text("no folder")
    nights.settings(page=True)
    ended = nights(code=2)
    stages = nights.stages(1)
    assert [name for name, state in stages.items() if state == "failed"] == ["page"]
    assert (stages["notify"], stages["prune"]) == ("done", "done")
    assert nights.nights() == [("failed", 2, 1)]
    assert "✗  page" in ended.out
    assert "cure: " in ended.out


def test_a_stage_that_needs_a_failed_one_is_skipped(nights):
    nights.settings()
    toml = nights.perfsvc.folder / "perfsvc.toml"
    toml.write_text(toml.read_text().replace("replicas = 2", 'replicas = 2\nselect = ["nothing/at-all"]'))
    nights(code=2)
    stages = nights.stages(1)
    assert stages["run"] == "failed"
    assert {stages[name] for name in ("judge", "confirm", "profile", "findings", "report")} == {"skipped"}
    assert nights.result(1, "judge") == ("the stage run was not done", "")
    assert nights.result(1, "confirm") == ("the stage judge was not done", "")
    assert (stages["notify"], stages["prune"]) == ("done", "done")
    assert "nothing/at-all" in nights.result(1, "run")[0]
    toml.write_text(toml.read_text().replace('"scale"', '"elsewhere"'))
    nights("--new", code=2)
    message, cure = nights.result(2, "revision")
    assert "elsewhere" in message
    assert "suite in perfsvc.toml" in cure
    assert nights.stages(2)["run"] == "skipped"


def test_a_failed_stage_after_the_pages_is_on_the_page_of_the_next_night_alone(nights, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("so be it")

    nights.settings(page=True)
    page = nights.perfsvc.folder / "site" / "index.html"
    with monkeypatch.context() as patched:
        patched.setattr("perfsvc.service.nightly.stages.retention.prune", broken)
        nights(code=5)
    message, cure = nights.result(1, "prune")
    assert message == "ZeroDivisionError: so be it"
    assert "log.jsonl" in cure
    (error,) = [line for line in nights.log(1) if line["level"] == "error"]
    assert "Traceback" in error["exception"]
    assert "so be it" not in page.read_text()
    nights(code=0)
    assert "ZeroDivisionError: so be it (in night 1)" in page.read_text()
    with closing(sqlite3.connect(nights.perfsvc.database)) as connection, connection:
        connection.execute("update stages set state = 'running', wall_s = null where night_id = 2 and name = 'prune'")
        connection.execute("update nights set state = 'interrupted', exit_code = null where id = 2")
    nights(code=0)
    assert "so be it" not in page.read_text()
    assert "the night was killed or stopped at this stage (in night 2)" in page.read_text()
    nights(code=0)
    assert "(in night" not in page.read_text()


def locked(times):
    """Return a function that raises the error of a locked database this often, and then does what it replaces."""
    errors = iter([DatabaseError("perfsvc.db: database is locked", cure="wait", again=True)] * times)

    def judge(night):
        for error in errors:
            raise error
        return stages.judge(night)

    return judge


def with_judge(monkeypatch, judge):
    replaced = [replace(stage, do=judge) if stage.name == "judge" else stage for stage in night.STAGES]
    monkeypatch.setattr(night, "STAGES", tuple(replaced))
    monkeypatch.setattr(night, "PAUSE_S", 0.01)


def test_a_night_waits_while_its_database_is_locked_and_can_be_resumed_if_it_stays_locked(nights, monkeypatch):
    with monkeypatch.context() as patched:
        with_judge(patched, locked(night.ATTEMPTS))
        ended = nights(code=5)
    assert "night 1 was stopped at its stage judge: perfsvc.db: database is locked" in ended.err
    assert "resume the night: perfsvc nightly --resume" in ended.err
    assert nights.nights() == [("interrupted", None, 1)]
    with_judge(monkeypatch, locked(night.ATTEMPTS - 1))
    ended = nights("--resume", code=0)
    assert "database is locked: the night waits 0.01s and tries again" in ended.err
    assert set(nights.stages(1).values()) <= {"done", "skipped"}
    assert nights.nights() == [("finished", 0, 1)]


def test_a_night_that_begins_while_its_database_restarts_waits_for_it(nights, monkeypatch):
    restarting = DatabaseError("the database system is starting up", again=True)
    opening = Store.open
    answers = [restarting, restarting]

    def open_later(location, **options):
        if answers:
            raise answers.pop()
        return opening(location, **options)

    monkeypatch.setattr(night, "PAUSE_S", 0.01)
    monkeypatch.setattr(Store, "open", open_later)
    ended = nights(code=0)
    assert (ended.out + ended.err).count("the database system is starting up: the night waits") == 2
    assert nights.nights() == [("finished", 0, 1)]


def test_a_target_without_an_address_is_reported_and_no_secret_of_the_settings_is_stored(nights, monkeypatch):
    nights.settings('\n[notify]\ntargets = { team = "TEAM_URL" }\n')
    nights.perfsvc.environment.pop("TEAM_URL", None)
    nights(code=5)
    message, cure = nights.result(1, "doctor")
    assert "TEAM_URL is not set" in message
    assert cure == "set TEAM_URL where nights begin"
    assert nights.stages(1)["run"] == "done"
    monkeypatch.setattr("perfsvc.service.notify.notify.PAUSES_S", (0.0,))
    nights.perfsvc.environment["TEAM_URL"] = "json://user:hunter2@localhost:9/"
    nights()
    everything = nights.perfsvc.database.read_bytes() + (nights.perfsvc.folder / "nights/2/log.jsonl").read_bytes()
    assert b"TEAM_URL" in everything
    assert b"hunter2" not in everything


@contextmanager
def held(folder, pattern):
    """Hold the lock of this database's nights, as another night does."""
    (path,) = folder.glob(pattern)
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def test_a_second_night_exits_with_a_message_or_waits_no_longer_than_its_limit(later):
    perfsvc = later.perfsvc
    with held(perfsvc.folder / "locks", "night-*.lock"):
        ended = later(code=5)
        assert "another night is under way on this host" in ended.err
        assert "cure: wait for it: perfsvc nightly --wait 2h" in ended.err
        assert "waiting for 1s at most" in later("--wait", "1s", code=5).err
    perfsvc.environment["PERFSVC_LOCKS"] = str(perfsvc.folder / "other-locks")
    with held(perfsvc.folder, f"{perfsvc.database.name}-night-*.lock"):
        assert "another night is under way on this host" in later(code=5).err
    assert later.nights() == [("finished", 0, 1)]
    later(code=0)


def test_two_nights_that_wait_run_one_after_the_other(nights):
    first, second = nights.perfsvc.start("nightly", "--wait", "90s"), nights.perfsvc.start("nightly", "--wait", "90s")
    ends = [process.communicate(timeout=100) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], ends
    assert nights.nights() == [("finished", 0, 1), ("finished", 0, 2)]
    waited = [err for _, err in ends if "at most" in err]
    assert len(waited) == 1
    assert "under way on this host" in waited[0]
    held = nights.perfsvc.rows(
        "select run_id, count(*), count(distinct case_id || replica) from measurements group by 1"
    )
    assert held == [(1, 6, 6), (2, 6, 6)]


def test_a_second_night_names_the_one_that_runs(nights):
    nights.perfsvc.play({"*": {"fault": "hang", "replica": 0}})
    nights.settings()
    with nights.perfsvc.start("nightly") as first:
        while not nights.perfsvc.database.exists() or not in_stage(nights, "run"):
            assert first.poll() is None, first.communicate()
            time.sleep(0.02)  # asking all the time takes a core
        ended = nights.perfsvc.process("nightly", code=5)
        assert f"night 1 (pid {first.pid}) is under way on this host since" in ended.err
        assert "at its stage run" in ended.err
        first.send_signal(signal.SIGINT)  # ends it amid the case that hangs, which SIGTERM would wait for
        first.communicate(timeout=100)
    assert nights.nights()[0][0] == "interrupted"


def in_stage(nights, stage):
    try:
        return nights.perfsvc.rows("select 1 from stages where name = ? and state = 'running'", stage)
    except sqlite3.Error:  # its tables are being made
        return []
