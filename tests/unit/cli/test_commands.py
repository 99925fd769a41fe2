"""What the commands take and how they print it."""

import json
import sys
from pathlib import Path

import click
import pytest

from perfsvc.cli import cli, main, report_command
from perfsvc.errors import UsageError
from perfsvc.installation import data_folder
from perfsvc.store import Store

SUITE = Path(__file__).parents[2] / "e2e" / "suites"
GOOD = Path(__file__).parents[2] / "data" / "suites" / "good"


def leaves(group, name=""):
    """Return every command without subcommands, by its full name."""
    for child in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), child)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{name}{child} ")
        else:
            yield f"{name}{child}", command


COMMANDS = dict(leaves(cli))


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """Return a function that runs a command in an empty folder with an empty database: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFSVC_SUITE", raising=False)
    monkeypatch.setenv("PERFSVC_DB", str(tmp_path / "perfsvc.db"))
    monkeypatch.setenv("COLUMNS", "120")
    Store.open(tmp_path / "perfsvc.db").close()

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["perfsvc", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def suite(tmp_path):
    """Return a suite with a working and a broken benchmark."""
    for name, source in (("mine", SUITE / "scale" / "scale"), ("theirs", SUITE / "mixed" / "broken")):
        place = tmp_path / "suite" / name
        place.mkdir(parents=True)
        for file in source.iterdir():
            if file.is_file():
                (place / file.name).write_bytes(file.read_bytes())
    return tmp_path / "suite"


# --- formats ---------------------------------------------------------------------------------------------------------


OF_ANOTHER_KIND = {
    "github",  # what it prints may be commands for the log of a job on GitHub
    "plot",  # draws a file and prints nothing
    "schedule print",  # what it prints is for a scheduler, in the scheduler's own form
    "schedule run",  # a daemon, which tells standard error what it does
    "serve",  # a server, which tells standard error what it does
}


def test_every_command_prints_a_table_for_people_and_json_for_programs():
    for name in COMMANDS.keys() - OF_ANOTHER_KIND:
        (option,) = [option for option in COMMANDS[name].params if "--format" in option.opts]
        assert {"table", "json"} <= set(option.type.choices), name
        assert option.default in {"table", None}, name


def test_an_upgrade_shows_no_password(typed, monkeypatch):
    done = type("Done", (), {"before": "0001", "after": "0001", "backup": None})
    monkeypatch.setattr(Store, "upgrade", lambda _: done)
    for form in ("table", "json"):
        _, out, _ = typed("db", "upgrade", "--db", "postgresql://me:secret@host/perfsvc", "--format", form)
        assert "host/perfsvc" in out
        assert "secret" not in out


# --- report ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_of_several_runs_shows_each_run_and_commands_that_change_the_database_have_json_too(typed, tmp_path):
    assert typed("report", "--all")[:2] == (0, "nothing measured\n")
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"cases": {"*": {"seconds": 1e-4}}}))
    options = ("--suite", SUITE / "scale", "--replicas", "1", "--exclude", "*/gamma")
    for _ in range(2):
        typed("run", "--device", f"fake:{script}", *options)
    out = typed("report", "--all")[1]
    sums = [line for line in out.splitlines() if line.startswith(("run 1: ", "run 2: "))]
    moved = "0 regressions, 0 improvements"
    assert sums == [f"run 1: 2 ok; {moved}, 0 unchanged, 2 new", f"run 2: 2 ok; {moved}, 2 unchanged"]
    assert json.loads(typed("baseline", "set", "latest", "--format", "json")[1]) == {"run": 2, "pinned": 2}
    cleared = typed("baseline", "clear", "--select", "scale/alpha", "--format", "json")
    assert json.loads(cleared[1]) == {"cleared": 1}
    assert typed("baseline", "clear")[1] == "1 pin cleared\n"
    state = json.loads(typed("db", "upgrade", "--format", "json")[1])
    after = state["after"]
    assert state == {"url": str(tmp_path / "perfsvc.db"), "before": after, "after": after, "backup": None}
    assert after


def test_the_suffix_of_a_file_chooses_the_format_without_an_option():
    formats = {
        (None, None): "table",
        ("csv", None): "csv",
        (None, "a.csv"): "csv",
        (None, "a.MD"): "markdown",
        (None, "a.htm"): "html",
        (None, "a.parquet"): "parquet",
        ("json", "a.csv"): "json",
        ("csv", "a"): "csv",
    }
    assert {given: report_command._format(given[0], given[1] and Path(given[1])) for given in formats} == formats
    for chosen, message in ((None, "'a' has no suffix of a known format"), ("table", "for the terminal")):
        with pytest.raises(UsageError, match=message) as refused:
            report_command._format(chosen, Path("a"))
        assert "--format csv|json|markdown|html|parquet|xlsx" in refused.value.cure


# --- the suite -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_built_in_suite_is_announced_if_it_is_the_default(typed, tmp_path):
    message = f"there is no folder ./kernels here: using the built-in suite, {data_folder('kernels')}\n"
    assert typed("list", "--select", "dot")[2] == message
    assert typed("run", "--device", "cpu", "--select", "nothing", "--db", "none.db")[2].startswith(message)
    assert typed("list", "--suite", data_folder("kernels"))[2] == ""
    (tmp_path / "kernels").symlink_to(GOOD)
    assert typed("list")[2] == ""


def test_a_link_to_a_missing_suite_or_to_missing_settings_is_an_error(typed, tmp_path):
    (tmp_path / "kernels").symlink_to("not-mounted")
    code, _, err = typed("list")
    assert (code, "no folder kernels" in err) == (2, True)
    (tmp_path / "perfsvc.toml").symlink_to("missing.toml")
    code, _, err = typed("list")
    assert (code, "perfsvc.toml: cannot be read" in err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [("list",), pytest.param(("run", "--device", "fake:script.json", "--replicas", "1"), marks=pytest.mark.slow)],
)
def test_a_broken_benchmark_that_is_not_selected_is_a_warning(typed, suite, tmp_path, command):
    (tmp_path / "script.json").write_text(json.dumps({"cases": {"*": {"seconds": 1e-4}}}))
    for chosen in (("--select", "mine"), ("--exclude", "theirs"), ("--select", "mine*/alpha")):
        code, out, err = typed(*command, "--suite", suite, *chosen)
        assert code == 0
        assert f"warning: {suite / 'theirs' / 'bench.py'}:" in err
        assert "mine/alpha[" in out
        assert "theirs" not in out
    for chosen in ((), ("--select", "mine", "--select", "the*"), ("--exclude", "theirs/one")):
        code, out, err = typed(*command, "--suite", suite, *chosen)
        assert code == 4
        assert "theirs/bench.py" in (out + err).replace("\n", "")
        assert "warning" not in err


# --- the request -----------------------------------------------------------------------------------------------------


def test_a_request_has_the_options_of_the_command_line(monkeypatch):
    seen = []
    monkeypatch.setattr("perfsvc.service.run.run.run", lambda request, *_: seen.append(request) or sys.exit(0))
    arguments = ("--device", "cpu", "--device", "cuda", "--select", "a", "--exclude", "b", "--points", "full")
    numbers = ("--replicas", "5", "--samples", "7", "--limit", "9.5", "--seed", "11", "--threshold", "4%")
    how = ("--precision", "1%", "--seconds", "0.5s", "--energy", "--spread", "each-model", "--budget", "1h30m")
    words = ("--label", "x", "--db", "some.db", "--suite", str(GOOD))
    monkeypatch.setattr(sys, "argv", ["perfsvc", "run", *arguments, *numbers, *how, *words])
    with pytest.raises(SystemExit):
        main()
    (request,) = seen
    assert (request.devices, request.selection.select, request.selection.exclude) == (("cpu", "cuda"), ("a",), ("b",))
    assert (request.points, request.replicas, request.samples, request.limit_s) == ("full", 5, 7, 9.5)
    assert (request.precision, request.seconds, request.energy) == (0.01, 0.5, True)
    assert (request.spread, request.budget_s) == ("each-model", 5400)
    assert (request.seed, request.threshold, request.label) == (11, 0.04, "x")
    assert (request.database, request.suite) == ("some.db", GOOD)
    assert request.command_line == f"perfsvc run {' '.join((*arguments, *numbers, *how, *words))}"


INVALID = {
    ("--budget", "write 90s, 1h30m or 90d"): ("0s", "-5m", "20", "", "1x", "m", "s90", "9" * 400 + "h"),
    ("--precision", "write 0.2% or 0.002"): ("0", "-1%", "100%", "nan", "x"),
    ("--seconds", "write 2 or 1m"): ("0", "-1", "nan", "inf", "x"),
    ("--limit", "write 2 or 1m"): ("0", "-1", "nan", "inf"),
    ("--threshold", "write 1% or 0.01"): ("0", "nan", "x"),
    ("--samples", "x>=1"): ("0",),
    ("--replicas", "x>=1"): ("0",),
    ("--spread", "'each-device', 'each-model'"): ("some",),
}


def test_an_invalid_value_is_a_usage_error_with_an_example(typed):
    printed = {
        (option, value): (typed("run", "--device", "cpu", option, value), possible)
        for (option, possible), values in INVALID.items()
        for value in values
    }
    for (option, value), ((code, _, err), possible) in printed.items():
        assert (code, f"Invalid value for '{option}'" in err) == (2, True), (option, value)
        assert possible in " ".join(err.split()), (option, value)
