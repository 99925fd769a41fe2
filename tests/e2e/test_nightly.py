"""``perfsvc nightly``: its stages, what each of them may cost, and what two nights do to each other."""

import fcntl
import json
import os
import signal
import sqlite3
from contextlib import closing

import pytest

from perfsvc.build.nvcc import find_nvcc
from perfsvc.store import RunState, Store
from tests.e2e.nights import Nights

pytestmark = pytest.mark.slow  # whole nights

SAID = "select name, message from stages where name != 'lock' order by number"

STAGES = [
    "lock",
    "snapshot",
    "doctor",
    "check",
    "run",
    "judge",
    "confirm",
    "profile",
    "findings",
    "report",
    "page",
    "notify",
    "prune",
]


@pytest.fixture
def nights(perfsvc):
    return Nights(perfsvc)


def test_a_night_does_its_stages_and_stores_what_came_of_each(nights):
    ended = nights(code=0)
    skipped = {"check", "profile", "page"}
    assert nights.stages(1) == {name: "skipped" if name in skipped else "done" for name in STAGES}
    assert nights.nights() == [("finished", 0, 1)]
    assert nights.said(1, "run") == ("run 1: 3 cases on 1 device", "")
    assert nights.said(1, "judge") == ("3 new", "")
    assert ended.out.splitlines()[0] == "night 1  finished  run 1"
    told = [line for line in ended.out.splitlines()[1:] if line[0] in "✓–✗"]  # a long path takes a second line
    assert [line.split()[1] for line in told] == STAGES
    walls = nights.perfsvc.rows("select min(wall_s) >= 0, max(wall_s) > 0 from stages")
    assert walls == [(1, 1)]
    assert nights.perfsvc.rows("select label, command_line, state from runs") == [
        ("nightly", "perfsvc nightly", "finished")
    ]
    assert "beta" in (nights.perfsvc.folder / "nights" / "1" / "report.html").read_text()


def test_a_nights_log_has_a_line_for_all_that_is_shown_with_its_run(nights):
    ended = nights(code=0)
    log = nights.log(1)
    told = [line["event"] for line in log if line["level"] == "info"]
    assert [line.partition(" ")[2] for line in ended.err.splitlines()] == told
    assert {line["night"] for line in log} == {1}
    assert {line["run"] for line in log if line.get("stage") == "judge"} == {1}


def test_a_regression_is_confirmed_and_found_and_resolves_when_it_is_gone(nights):
    nights(code=0)
    nights.slower()
    nights(code=1)
    assert nights.said(2, "confirm") == ("1 kernel", "")
    assert nights.said(2, "findings") == ("1 raised", "")
    nights.perfsvc.rebuild(nights.suite)
    nights.usual()
    nights(code=0)
    assert nights.said(3, "findings") == ("1 resolved", "")
    assert nights.nights() == [("finished", 0, 1), ("finished", 1, 2), ("finished", 0, 3)]


@pytest.mark.parametrize("stage", ["confirm_suspects", "explain_regressed"])
def test_a_night_that_goes_on_where_a_board_was_swapped_does_without_what_that_one_ran(nights, monkeypatch, stage):
    nights(code=0)
    nights.slower()

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"perfsvc.service.nightly.stages.{stage}", killed)
        nights(code=130)
    script = json.loads(nights.perfsvc.script.read_text())
    nights.perfsvc.play(script.pop("cases"), **script | {"uuid": "FAKE-1"})
    nights("--resume", code=1)
    assert nights.nights()[-1] == ("finished", 1, 2)
    assert set(nights.stages(2).values()) == {"done", "skipped"}
    assert "FAKE-0" in "".join(line["event"] for line in nights.log(2) if "is not here any more" in line["event"])


def test_a_night_whose_settings_another_version_stored_is_left_as_it_is(nights):
    nights(code=0)
    with closing(sqlite3.connect(nights.perfsvc.database)) as connection, connection:
        connection.execute("delete from stages where name = 'prune'")
        connection.execute("update nights set state = 'interrupted', settings = json_set(settings, '$.weather', 1)")
    ended = nights("--resume", code=2)
    assert "this perfsvc does not know the settings" in ended.err
    assert "cure: go on with that version" in ended.err
    nights(code=0)
    assert [state for state, *_ in nights.nights()] == ["interrupted", "finished"]


def test_a_case_with_a_wrong_result_is_what_a_night_ends_with(nights):
    nights.perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "wrong"}})
    nights(code=4)
    assert nights.said(1, "run")[0] == "run 1: 3 cases on 1 device, 1 wrong"
    assert nights.nights() == [("finished", 4, 1)]


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc (pip install 'perfsvc[nvcc]')")
def test_stages_that_are_done_again_find_what_they_found(nights):
    nights.settings('\n[check]\narchitectures = ["sm_90"]\n')
    nights(code=0)
    before = nights.perfsvc.rows(SAID)
    assert nights.said(1, "check")[0].endswith(": 6 new")
    with closing(sqlite3.connect(nights.perfsvc.database)) as connection, connection:
        connection.execute("delete from stages where name not in ('lock', 'snapshot', 'doctor')")
        connection.execute("update nights set state = 'interrupted', exit_code = null")
    nights("--resume", code=0)
    after = nights.perfsvc.rows(SAID)
    assert [(name, said.partition(": ")[2]) for name, said in after] == [
        (name, said.partition(": ")[2]) for name, said in before
    ]
    assert nights.perfsvc.rows("select count(*) from checks") == [(1,)]
    assert nights.nights() == [("finished", 0, 1)]


def test_a_night_on_a_server_goes_as_any_other(nights, databases):
    name = databases.create()
    try:
        nights.perfsvc.environment["PERFSVC_DB"] = databases.url(name)
        nights(code=0)
        with Store.open(databases.url(name)) as store:
            (night,) = store.nights.list()
            assert (night.state, night.run, night.settings["run"]["replicas"]) == (RunState.FINISHED, 1, 2)
            assert [stage.name for stage in night.stages] == STAGES
    finally:
        databases.drop(name)


def test_the_page_has_room_for_a_case_that_never_had_a_right_result(nights):
    nights.settings(page=True)
    nights.perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "wrong"}})
    nights(code=4)
    assert nights.stages(1)["page"] == "done"


def test_a_stage_that_fails_costs_none_of_the_others(nights):
    (nights.perfsvc.folder / "site").write_text("no folder")
    nights.settings(page=True)
    ended = nights(code=2)
    stages = nights.stages(1)
    assert [name for name, state in stages.items() if state == "failed"] == ["page"]
    assert (stages["notify"], stages["prune"]) == ("done", "done")
    assert nights.nights() == [("failed", 2, 1)]
    assert "✗  page" in ended.out
    assert "cure: " in ended.out


def test_what_rests_on_a_stage_that_failed_is_skipped_and_says_so(nights):
    nights.settings()
    toml = nights.perfsvc.folder / "perfsvc.toml"
    toml.write_text(toml.read_text().replace("replicas = 2", 'replicas = 2\nselect = ["nothing/at-all"]'))
    nights(code=2)
    stages = nights.stages(1)
    assert stages["run"] == "failed"
    assert {stages[name] for name in ("judge", "confirm", "profile", "findings", "report")} == {"skipped"}
    assert nights.said(1, "judge") == ("the stage run was not done", "")
    assert nights.said(1, "confirm") == ("the stage judge was not done", "")
    assert (stages["notify"], stages["prune"]) == ("done", "done")
    assert "nothing/at-all" in nights.said(1, "run")[0]


def test_a_fault_of_a_stage_is_told_with_the_log_that_has_its_traceback(nights, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("so be it")

    monkeypatch.setattr("perfsvc.service.nightly.stages.pruning.prune", broken)
    nights(code=5)
    said, cure = nights.said(1, "prune")
    assert said == "ZeroDivisionError: so be it"
    assert "log.jsonl" in cure
    (error,) = [line for line in nights.log(1) if line["level"] == "error"]
    assert "Traceback" in error["exception"]


def test_a_suite_that_is_not_there_is_said_by_the_snapshot(nights):
    toml = nights.perfsvc.folder / "perfsvc.toml"
    toml.write_text(toml.read_text().replace('"scale"', '"elsewhere"'))
    nights(code=2)
    said, cure = nights.said(1, "snapshot")
    assert "elsewhere" in said
    assert "suite in perfsvc.toml" in cure
    assert nights.stages(1)["run"] == "skipped"


def test_nothing_secret_is_stored_of_the_settings(nights):
    nights.settings('\n[notify]\ntargets = { team = "TEAM_URL" }\n')
    nights.perfsvc.environment["TEAM_URL"] = "json://user:hunter2@localhost:9/"
    nights()
    everything = nights.perfsvc.database.read_bytes() + (nights.perfsvc.folder / "nights/1/log.jsonl").read_bytes()
    assert b"TEAM_URL" in everything
    assert b"hunter2" not in everything


@pytest.fixture
def other_night(nights):
    """The lock of this database's nights, held as another night would."""
    nights(code=0)
    (path,) = (nights.perfsvc.folder / "locks").glob("night-*.lock")
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


@pytest.mark.usefixtures("other_night")
def test_a_second_night_leaves_with_a_message(nights):
    ended = nights(code=5)
    assert "another night is under way on this host" in ended.err
    assert "cure: wait for it: perfsvc nightly --wait 2h" in ended.err
    assert nights.nights() == [("finished", 0, 1)]


@pytest.mark.usefixtures("other_night")
def test_a_second_night_waits_no_longer_than_it_was_asked_to(nights):
    ended = nights("--wait", "1s", code=5)
    assert "waiting for 1s at most" in ended.err
    assert nights.nights() == [("finished", 0, 1)]


def test_two_nights_at_once_run_one_after_the_other(nights):
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


def test_of_two_nights_at_once_the_other_leaves_and_names_the_one_that_runs(nights):
    nights.perfsvc.play({"*": {"fault": "hang", "replica": 0}})
    nights.settings()
    with nights.perfsvc.start("nightly") as first:
        while not nights.perfsvc.database.exists() or not in_stage(nights, "run"):
            assert first.poll() is None, first.communicate()
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


def test_a_target_without_an_address_is_said_in_a_night_without_news(nights):
    nights.settings('\n[notify]\ntargets = { team = "TEAM_URL" }\n')
    nights.perfsvc.environment.pop("TEAM_URL", None)
    nights(code=5)
    said, cure = nights.said(1, "doctor")
    assert "TEAM_URL is not set" in said
    assert cure == "set TEAM_URL where nights begin"
    assert nights.stages(1)["run"] == "done"


def test_where_no_night_was_begun_there_is_none_to_go_on_with(nights):
    nights.perfsvc("db", "upgrade", code=0)
    nights.settings()
    assert "no night was begun on this host: there is none to go on with" in nights("--resume", code=2).err
