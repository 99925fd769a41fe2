"""Every way in which perfsvc.toml and its variables may be wrong: the message, its line and its cure."""

import os
import tomllib

import pytest
from pydantic import ValidationError

from perfsvc.config import ServerSettings, load
from perfsvc.config.file import lines_of
from perfsvc.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder, without PERFSVC_ variables."""
    for name in [name for name in os.environ if name.startswith("PERFSVC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def error_of(folder):
    """Return the error that a file with this content raises."""

    def error(content="") -> ConfigError:
        path = folder / "perfsvc.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ConfigError) as raised:
            load()
        assert raised.value.exit_code == 2
        return raised.value

    return error


TARGETS = "[notify.targets]\nteam = 'TEAM_URL'\n[[notify.route]]\n"
RULE = "[[thresholds]]\nchange = '1%'\n"
PROBLEMS = {
    "suite = kernels": (1, "it is not TOML: invalid value", "write text between quotes"),
    "\nreplicas 3": (2, "it is not TOML: expected '='", "write key = value"),
    "[run\n": (1, "it is not TOML: expected ']'", "write key = value"),
    "a = [1,\n2": (2, "it is not TOML: unclosed array", "write key = value"),
    "a = " + "[" * 3000: (0, "its arrays are nested too deeply", "write flat arrays"),
    "a = " + "1" * 5000: (0, "it is not TOML: ", "write key = value"),
    b'suite = "x"\ndatabase = "\xff"': (2, "it is not written in UTF-8", "save the file as UTF-8"),
    "suite = 'x'".encode("utf-16"): (1, "it is not written in UTF-8", "save the file as UTF-8"),
    "suite = 'a'\n\nsuite = 'b'": (3, "suite exists already on line 1", "keep one of the two"),
    "[run]\nreplicas = 1\n# more\nreplicas = 2": (4, "replicas exists already on line 2", "keep one of the two"),
    "[run]\nreplicas = 1\n[run]": (3, "[run] exists already on line 1", "keep one of the two"),
    "[run]\nselect = [\n 'a',\n]\nselect = [\n 'b',\n]": (5, "select exists already on line 2", "keep one of the two"),
    RULE + RULE + "change = '3%'": (5, "change exists already on line 4", "keep one of the two"),
    "[run]\nreplicas = '3'": (2, "run.replicas: '3' is not a whole number", "write replicas = 3"),
    "[run]\nreplicas = 3.0": (2, "run.replicas: 3.0 is not a whole number", "write replicas = 3"),
    "[run]\nreplicas = true": (2, "run.replicas: true is not a whole number", "write replicas = 3"),
    "[run]\nreplicas = 0": (2, "run.replicas: 0 is less than 1", "write replicas = 3"),
    "[run]\nenergy = 1": (2, "run.energy: 1 is not true or false", "write energy = false"),
    "[run]\nenergy = 'yes'": (2, "run.energy: 'yes' is not true or false", "write energy = false"),
    "[run]\ndevices = 'cpu'": (2, "run.devices: 'cpu' is not an array", 'write devices = ["cpu"]'),
    "[run]\ndevices = []": (2, "run.devices: [] names nothing", 'write devices = ["auto"]'),
    "[run]\ndevices = ['cpu',\n'gpu']": (3, "run.devices[2]: 'gpu' is no device", "write auto, cpu, cuda"),
    "[run]\ndevices = [1]": (2, "run.devices[1]: 1 is not text between quotes", 'write devices = ["auto"]'),
    "[run]\non = 'ray://head'": (2, "run.on: 'ray://head' is no cluster", "write ray://head:10001"),
    "[run]\nselect = ['///']": (2, "run.select[1]: '///' can match no case", "write benchmark"),
    "[run]\npoints = 'all'": (2, "run.points: 'all' is not 'smoke' or 'full'", 'write points = "full"'),
    "[run]\nbudget = '5 hours'": (2, "run.budget: '5 hours' is no duration", "write 90s, 1h30m or 90d"),
    "[run]\nbudget = 0": (2, "run.budget: 0 is no possible duration", "write 90s, 1h30m or 90d"),
    "[run]\nbudget = inf": (2, "run.budget: inf is no possible duration", "write 90s, 1h30m or 90d"),
    "[run]\nbudget = nan": (2, "run.budget: nan is no possible duration", "write 90s, 1h30m or 90d"),
    "[run]\nbudget = true": (2, "run.budget: True is no duration", "write 90s, 1h30m or 90d"),
    "[run.budget]\nx = 1": (1, "run.budget: {'x': 1} is no duration", "write 90s, 1h30m or 90d"),
    "[nightly]\nwait = '-1s'": (2, "nightly.wait: '-1s' is no duration", "write 90s, 1h30m or 90d"),
    "[run]\nprecision = 3": (2, "run.precision: '3' has no unit, and would be 300%", "write 0.2% or 0.002"),
    "[run]\nprecision = []": (2, "run.precision: [] is no share", "write 0.2%"),
    "[nightly]\nlabel = 1979-05-27": (2, "nightly.label: datetime.date(1979, 5, 27) is not text", "write label"),
    "suite = ''": (1, "suite: it is empty", "write a path"),
    "suite = 3": (1, "suite: 3 is not text between quotes", 'write suite = "kernels"'),
    "run = 3": (1, "run: 3 is not a table", "write [run]"),
    "[[run]]\nreplicas = 3": (1, "run: [{'replicas': 3}] is not a table", "write [run]"),
    "[thresholds]\nchange = 0.1": (1, "thresholds: {'change': 0.1} is not an array", "write [[thresholds]]"),
    "[[thresholds]]\ncases = 'a'": (1, "thresholds[1].change is missing", 'write one: write change = "3%"'),
    "[check]\narchitectures = ['h100']": (2, "check.architectures[1]: 'h100' is no architecture", "write sm_90"),
    "[notify]\nabout = ['old']": (2, "notify.about[1]: 'old' is not 'new', 'resolved' or 'failed'", "write about"),
    "[notify]\npage = 'x'": (2, "notify.page: 'x' is no address of a page", "write https://host/path/"),
    "[baseline]\nagainst = 'latest~1'": (2, "baseline.against: 'latest~1' moves every night", "write @baseline"),
    "[baseline]\nagainst = ''": (2, "baseline.against: '' names nothing", 'write against = "@baseline"'),
    TARGETS + "cases = 'a'": (3, "notify.route[1].targets is missing", 'write one: write targets = ["team"]'),
    TARGETS + "targets = 'team'\ncase = 'a'": (5, "notify.route[1] has no key 'case'", "write cases"),
    TARGETS + "targets = ['team']\ncases = 'a/b/c'": (5, "notify.route[1].cases: 'a/b/c' can match", "write bench"),
    TARGETS + "targets = 'team'\nseverity = 'bad'": (5, "notify.route[1].severity[1]: 'bad' is not ", "write sev"),
    TARGETS + "targets = 'team'\nat_least = '0%'": (5, "notify.route[1].at_least: '0%' is not between", "write 1% or"),
    TARGETS + "targets = ['team', 'teem']": (1, "notify: route 1 names 'teem', which is no target", "write team"),
    "[notify]\nremind = 'sometimes'": (2, "notify.remind: 'sometimes' is no duration", ""),
    "[notify]\nremind = '0s'": (2, "notify.remind: '0s' is no possible duration", ""),
    "[notify]\ndigest = 'daily'": (2, "notify.digest: 'daily' is not 'weekly' or 'never'", ""),
    RULE + "[[thresholds]]\nchange = '1000%'": (4, "thresholds[2].change: '1000%' is not between 0 and 1000%", ""),
    RULE + RULE: (1, "thresholds: rules 1 and 2 are both for the cases '*' and the metric '*'", ""),
}
"""The content of a file, the line of its only problem, how its message begins, and how its cure begins."""
UNKNOWN_KEYS = {
    "[rnu]\nreplicas = 1": (1, "there is no key or table 'rnu'", "[run]", "write [run]"),
    "[threshold]": (1, "there is no key or table 'threshold'", "[[thresholds]]", "write [[thresholds]]"),
    "databse = 'x'": (1, "there is no key or table 'databse'", "database", "write database"),
    "[run]\n\nreplcas = 1": (3, "[run] has no key 'replcas'", "replicas", "write replicas"),
    "[run]\nqqq = 1": (2, "[run] has no key 'qqq'", "", "list the keys: perfsvc config show"),
    "spread = 3": (1, "there is no key or table 'spread'", "run.spread", "write it in [run]: run.spread"),
    "[check]\nspread = 3": (2, "[check] has no key 'spread'", "run.spread", "write it in [run]: run.spread"),
    "[check]\nbudget = '3s'": (
        2,
        "[check] has no key 'budget'",
        "run.budget or confirm.budget or profile.budget",
        "write it in [run] or [confirm] or [profile]: run.budget or confirm.budget or profile.budget",
    ),
    "[[thresholds]]\nchnge = '1%'": (2, "thresholds[1] has no key 'chnge'", "change", "write change"),
    "run = {replicas = 1, smples = 3}": (1, "[run] has no key 'smples'", "samples", "write samples"),
}


def test_every_problem_is_reported_with_its_line_and_its_cure(error_of):
    reported = {}
    for content, (_, what, cure) in PROBLEMS.items():
        error = error_of(content)
        reported[content] = (error.line, error.what[: len(what)], error.cure[: len(cure)])
        assert (error.path, error.others) == ("perfsvc.toml", ()), content
    assert reported == PROBLEMS


def test_an_unknown_key_is_reported_with_the_nearest_known_one(error_of):
    errors = {content: error_of(content) for content in UNKNOWN_KEYS}
    reported = {content: (error.line, error.what, error.nearest, error.cure) for content, error in errors.items()}
    assert reported == UNKNOWN_KEYS
    assert not [error for error in errors.values() if error.others]


@pytest.mark.parametrize("key", ["suite", "nightly.folder", "dashboard.folder"])
def test_a_path_that_cannot_be_is_reported_with_its_line(error_of, key):
    unknown = error_of(f'# the first line\n{key} = "~no-such-user/x"')
    assert (unknown.line, "the home folder ~no-such-user is unknown" in unknown.what) == (2, True)
    nul = error_of(f'# the first line\n{key} = "a\\u0000"')
    assert (nul.line, "holds the character NUL" in nul.what) == (2, True)


def test_all_problems_are_reported_at_once_in_the_order_of_the_lines(error_of):
    error = error_of("[run]\nenergy = 1\n[confirm]\nenabld = true\nbudget = 'x'")
    assert str(error).splitlines() == [
        "perfsvc.toml:2: run.energy: 1 is not true or false",
        "  cure: write energy = false",
        "perfsvc.toml:4: [confirm] has no key 'enabld'",
        "  cure: write enabled",
        "perfsvc.toml:5: confirm.budget: 'x' is no duration",
        "  cure: write 90s, 1h30m or 90d",
    ]


SECRETS = (
    "database = 'postgresql://me:secret@host/db'",
    "database = 'postgresql://me:secret@host/db'\ndatabase = 'postgresql://me:secret@host/db'",
    "database = 'postgresql://host/db?user=me&password=secret'",
    "database = 'postgresql://me:an/ugly:secret@host/db'",
    "[notify]\npage = 'https://me:secret@host/'",
    "[notify]\npage = 'ftp://me:secret@host/'",
    "[notify.targets]\nteam = 'slack://secret'",
    "[notify.targets]\nteam = ['secret']",
    "database = ['postgresql://me:secret@host/db']",
    "[run]\ndevices = ['postgresql://me:secret@host/db']",
    "[run]\npoints = 'postgresql://me:secret@host/db'",
)


def test_a_secret_in_the_file_is_refused_and_not_repeated(error_of):
    for content in SECRETS:
        error = error_of(content)
        assert error.line == content.count("\n") + 1
        assert "secret" not in str(error)


def test_a_folder_and_a_missing_or_unreadable_file_are_reported(folder, monkeypatch):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read: No such file"):
        load(folder / "nowhere.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(folder)
    monkeypatch.setattr(
        "pathlib.Path.read_bytes", lambda _: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    (folder / "perfsvc.toml").touch()
    with pytest.raises(ConfigError, match=r"perfsvc\.toml: cannot be read: Permission denied"):
        load()


VARIABLES = {
    ("PERFSVC_RUN__REPLICSA", "3"): ("no setting has this environment variable", "write PERFSVC_RUN__REPLICAS"),
    ("PERFSVC_RUN_REPLICAS", "3"): ("no setting has this environment variable", "write PERFSVC_RUN__REPLICAS"),
    ("PERFSVC_DATABASE", "x"): ("no setting has this environment variable", "write PERFSVC_DB"),
    ("PERFSVC_X__Y", "x"): ("no setting has this environment variable", "list the keys: perfsvc config show"),
    ("PERFSVC_RUN", "{}"): ("run is a table", "name one of its keys: PERFSVC_RUN__KEY=…"),
    ("PERFSVC_RUN__REPLICAS", "three"): ("run.replicas: 'three' is not a whole number", "set PERFSVC_RUN__REPLICAS=3"),
    ("PERFSVC_RUN__REPLICAS", "0"): ("run.replicas: 0 is less than 1", "set PERFSVC_RUN__REPLICAS=3"),
    ("PERFSVC_RUN__ENERGY", "perhaps"): ("run.energy: 'perhaps' is not true or false", "set PERFSVC_RUN__ENERGY=false"),
    ("PERFSVC_RUN__SELECT", "[a"): ("run.select: '[a' is not an array", "set PERFSVC_RUN__SELECT="),
    ("PERFSVC_RUN__BUDGET", "x"): ("run.budget: 'x' is no duration", "write 90s, 1h30m or 90d"),
    ("PERFSVC_THRESHOLDS", '[{chnge = "1%"}]'): ("thresholds[1] has no key 'chnge'", "write change"),
    ("PERFSVC_NOTIFY__TARGETS__TEAM", "a b"): ("notify.targets.team: it is no name", "write a name here"),
}


def test_a_wrong_variable_is_reported_by_its_name(monkeypatch):
    reported = {}
    for (name, value), (what, cure) in VARIABLES.items():
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            with pytest.raises(ConfigError) as raised:
                load()
        assert (raised.value.path, raised.value.line) == (name, 0)
        reported[name, value] = (raised.value.what[: len(what)], raised.value.cure[: len(cure)])
    assert reported == VARIABLES


def test_variables_that_are_not_settings_are_ignored(monkeypatch):
    for name in ("PERFSVC_CACHE", "PERFSVC_KEYS", "PERFSVC_LOCKS", "PERFSVC_TEST_POSTGRESQL", "PERFSVC_SLACK_URL"):
        monkeypatch.setenv(name, "x")
    assert set(load().origins.values()) == {"default"}


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://ann:secret@host/", "https://ann@host/", "https://h/\n"]
)
def test_an_address_of_the_site_that_is_no_link_for_readers_is_refused(url):
    with pytest.raises(ValidationError) as error:
        ServerSettings(public_url=url)
    assert "secret" not in error.value.errors()[0]["msg"]


# --- the line of each key --------------------------------------------------------------------------------------------


TEXT = '''# a comment with key = 1
suite = "x # no comment" # one
"quo.ted" = """
multi = 1
[not]
"""
[run]
devices = [
  "a",  # one
  'b]', "c",
]
a.b = {x = 1, y = [1, {z = 3.5}]}
[[thresholds]]
change = 1979-05-27T07:32:00Z
[[thresholds]]

change = """a"""""
[thresholds.sub]
k = [[1],
 [2, [3]]]
[notify . "targets"]
 t = '\\'
last = true'''

PATHS = {
    2: "suite",
    3: "quo.ted",
    7: "run",
    8: "run/devices",
    9: "run/devices/0",
    10: "run/devices/1 run/devices/2",
    12: "run/a run/a/b run/a/b/x run/a/b/y run/a/b/y/0 run/a/b/y/1 run/a/b/y/1/z",
    13: "thresholds thresholds/0",
    14: "thresholds/0/change",
    15: "thresholds/1",
    17: "thresholds/1/change",
    18: "thresholds/1/sub",
    19: "thresholds/1/sub/k thresholds/1/sub/k/0 thresholds/1/sub/k/0/0",
    20: "thresholds/1/sub/k/1 thresholds/1/sub/k/1/0 thresholds/1/sub/k/1/1 thresholds/1/sub/k/1/1/0",
    21: "notify notify/targets",
    22: "notify/targets/t",
    23: "notify/targets/last",
}
LINES = {
    tuple(int(key) if key.isdigit() else key for key in path.split("/")): line
    for line, paths in PATHS.items()
    for path in paths.split()
}


def key_paths(value, path=()):
    """The path of every value inside a parsed one."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path} - {()} | {inner for key, child in children for inner in key_paths(child, (*path, key))}


def test_every_key_has_its_line():
    assert dict(lines_of(TEXT)) == LINES
    assert key_paths(tomllib.loads(TEXT)) == set(LINES)


def test_an_element_of_several_lines_has_the_line_that_it_begins_with():
    text = '[run]\nselect = [\n  "a",\n  ["b",\n   "c"],\n  """d\ne""",\n  "f",\n]\n'
    lines = lines_of(text)
    assert [lines["run", "select", element] for element in range(4)] == [3, 4, 6, 8]


def test_each_element_of_a_long_array_has_its_line():
    elements = [f'"x{number}"' if number % 3 else f'[{number}, "[,"]' for number in range(1000)]
    with_comments = "".join(f"  {element}, # {element}\n\n" for element in elements)
    commas_first = "".join(f"  , {element}\n" for element in elements[1:])
    text = f"[run]\na.'b]' = [\n{with_comments}]\nlast = [ {elements[0]}\n{commas_first}]\nend = 1\n"
    lines = lines_of(text)
    assert key_paths(tomllib.loads(text)) == set(lines)
    for number in range(1000):
        assert lines["run", "a", "b]", number] == 3 + 2 * number
        assert lines["run", "last", number] == 2004 + number
    assert lines["run", "a", "b]", 999, 1] == 2001
    assert lines["run", "end"] == 3005


def test_text_that_is_not_toml_raises_nothing():
    for text in ("", "x", "= 3", "x = [1,", "]]]", "a = }", "a = {,\n]", "x = [ }", '"'):
        assert len(lines_of(text)) < 4
