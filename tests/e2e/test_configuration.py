"""Commands in a folder with a perfsvc.toml: what they take from it, and what takes precedence."""

import os
import tomllib
from unittest import mock

import pytest

from perfsvc.errors import UsageError
from perfsvc.installation import data_folder


@pytest.fixture
def configured(perfsvc):
    """Return a function that writes a perfsvc.toml for a suite on the fake device, with its own database."""
    suite = perfsvc.own("scale")
    perfsvc.play({"*": {"seconds": 1e-4}})
    del perfsvc.environment["PERFSVC_DB"]

    def write(run="", rest=""):
        head = f'suite = "scale"\ndatabase = "mine.db"\n[run]\ndevices = ["fake:{perfsvc.script}"]\n'
        (perfsvc.folder / "perfsvc.toml").write_text(head + run + rest)
        return suite

    return write


def cases(ended):
    return [row["case"] for row in ended.json["results"]]


def test_options_and_variables_take_precedence_over_the_file(perfsvc, configured):
    configured('replicas = 1\nselect = ["scale/alpha"]\nsamples = 5\n')
    ended = perfsvc("run", "--format", "json", code=0)
    assert (cases(ended), perfsvc.folder.joinpath("mine.db").exists()) == (["scale/alpha[n=100]"], True)
    perfsvc.environment["PERFSVC_RUN__SELECT"] = "scale/alpha scale/beta"
    ended = perfsvc("run", "--format", "json", code=0)
    assert cases(ended) == ["scale/alpha[n=100]", "scale/beta[n=100]"]
    ended = perfsvc("run", "--select", "*", "--replicas", "2", "--format", "json", code=0)
    assert len(cases(ended)) == 3
    perfsvc.database = perfsvc.folder / "mine.db"
    assert perfsvc.rows("SELECT run_id, COUNT(*) FROM measurements GROUP BY run_id") == [(1, 1), (2, 2), (3, 6)]


def test_commands_in_a_subfolder_find_the_database_and_the_suite(perfsvc, configured):
    configured("replicas = 1\n")
    perfsvc("run", code=0)
    (perfsvc.folder / "below").mkdir()
    environment = perfsvc.environment | {"PERFSVC_CONFIG": ""}
    home, perfsvc = perfsvc.folder, type(perfsvc)(perfsvc.folder / "below", perfsvc.folder)
    perfsvc.environment = environment
    (run,) = perfsvc("runs", "--format", "json", code=0).json
    assert run["id"] == 1
    assert len(perfsvc("list", "--format", "json", code=0).json) == 6
    shown = perfsvc("config", "show", "--format", "json", code=0).json
    assert (shown["path"], shown["settings"]["database"]) == (str(home / "perfsvc.toml"), str(home / "mine.db"))


def test_the_rules_and_the_baseline_of_the_file_judge_runs_and_comparisons(perfsvc, configured):
    rules = [("*/beta", "10%"), ("*/delta", "1%")]
    written = [f'[[thresholds]]\ncases = "{cases}"\nchange = "{change}"\n' for cases, change in rules]
    suite = configured("replicas = 2\n", '[baseline]\nagainst = "v1"\n' + "".join(written))
    other = perfsvc.folder / "first.toml"
    other.write_text((perfsvc.folder / "perfsvc.toml").read_text().replace('against = "v1"', ""))
    perfsvc("--config", other, "run", "--label", "v1", code=0)
    perfsvc.rebuild(suite)
    perfsvc.play({"*": {"seconds": 1.05e-4}, "scale/gamma": {"seconds": 1e-4}})
    ended = perfsvc("run", "--format", "json", code=1)
    assert {row["case"][6:10]: row["verdict"] for row in ended.json["results"]} == {
        "alph": "regression",
        "beta": "unchanged",
        "gamm": "unchanged",
    }
    assert "thresholds[2] matches no case of the suite" in ended.err
    assert {row["baseline_run"] for row in ended.json["results"]} == {1}
    perfsvc("run", "--threshold", "10%", code=0)
    perfsvc("compare", "@baseline", "latest", code=1)
    perfsvc("compare", "v1", "latest", "--threshold", "20%", code=0)


def test_init_names_the_suite_in_the_folder_and_overwrites_no_file(perfsvc):
    assert "the built-in suite" in perfsvc("init", code=0).out
    assert tomllib.loads((perfsvc.folder / "perfsvc.toml").read_text())["suite"] == str(data_folder("kernels"))
    assert perfsvc("list", code=0).err == ""  # the built-in suite was named
    perfsvc.own("scale").rename(perfsvc.folder / "kernels")
    again = perfsvc("init", code=2)
    assert "perfsvc.toml: it exists already" in again.err
    assert "perfsvc init --force" in again.err
    written = perfsvc("init", "--force", "--format", "json", code=0).json
    assert written == {"path": "perfsvc.toml", "suite": "kernels"}
    assert tomllib.loads((perfsvc.folder / "perfsvc.toml").read_text())["suite"] == "kernels"
    assert len(perfsvc("list", "--format", "json", code=0).json) == 6


def test_a_wrong_file_ends_a_command_with_the_line_of_the_error_and_help_is_shown_in_spite_of_it(perfsvc):
    (perfsvc.folder / "perfsvc.toml").write_text("[run]\nreplcas = 1\n")
    for command in (("run",), ("list",), ("findings",), ("config", "show"), ("doctor",)):
        ended = perfsvc(*command, code=2)
        assert "error: perfsvc.toml:2: [run] has no key 'replcas'\n  cure: write replicas" in ended.err
    assert perfsvc("--config", os.devnull, "config", "show", code=0).out
    for command in (("--help",), ("run", "--help"), ("init", "--force"), ("devices",)):
        (perfsvc.folder / "perfsvc.toml").write_text("nonsense")
        ended = perfsvc(*command, code=0)
        assert ("Usage: " in ended.out) is ("--help" in command)
        assert "nonsense" not in ended.err


def test_an_option_turns_off_what_the_file_turns_on(perfsvc, configured):
    configured("energy = true\n")
    with mock.patch("perfsvc.service.run.run.run", side_effect=UsageError("enough was heard")) as run:
        perfsvc("run", code=2)
        perfsvc("run", "--no-energy", code=2)
    assert [call.args[0].energy for call in run.call_args_list] == [True, False]
