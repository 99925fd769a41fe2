"""A password, a token or the address of a target is in no output, no file and no stored row."""

import pytest
from sqlalchemy import create_engine, make_url

from perfsvc.store.schema.all_tables import metadata
from tests.e2e.nights import Nights

SECRET = "hunter2"  # noqa: S105 - a test's
URLS = {
    "plain": f"postgresql://u:{SECRET}@127.0.0.1:1/db",
    "query": f"postgresql://u@127.0.0.1:1/db?password={SECRET}",
    "escaped query": f"postgresql://u@127.0.0.1:1/db?pass%77ord={SECRET}",
    "escaped": f"postgresql://u:%20{SECRET}@127.0.0.1:1/db",
    "spaces": f"postgresql://u:a {SECRET}@127.0.0.1:1/db",
    "number and space": f"postgresql://u:12 {SECRET}@127.0.0.1:1/db",
    "user with @": f"postgresql://u@server:{SECRET}@127.0.0.1:1/db",
    "user with space": f"postgresql://a u:{SECRET}@127.0.0.1:1/db",
    "password with @": f"postgresql://u:a@{SECRET}@127.0.0.1:1/db",
    "user with /": f"postgresql://a/u:{SECRET}@127.0.0.1:1/db",
    "one slash": f"postgresql:/u:{SECRET}@127.0.0.1:1/db",
    "no number": f"postgresql://u:{SECRET}@127.0.0.1:port/db",
    "unknown": f"mysql://u:{SECRET}@127.0.0.1:1/db",
    "postgres": f"postgres://u:{SECRET}@127.0.0.1:1/db",
    "driver": f"postgresql+nodriver://u:{SECRET}@127.0.0.1:1/db",
    "settings": f"host=127.0.0.1 password={SECRET}",
}


def without_secret(ended):
    assert SECRET not in ended.out + ended.err
    assert "Traceback" not in ended.err
    return ended


COMMANDS = ("runs", "db check", "db upgrade", "doctor")


@pytest.mark.parametrize("name", URLS)
def test_no_error_about_a_database_has_its_password(perfsvc, name):
    """``runs`` gets all URLs, each of the other commands every third of them."""
    url, place = URLS[name], list(URLS).index(name)
    for command in (COMMANDS[0], COMMANDS[1 + place % 3]):
        perfsvc.environment.pop("PERFSVC_DB", None)
        assert without_secret(perfsvc(*command.split(), "--db", url)).code
        perfsvc.environment["PERFSVC_DB"] = url
        without_secret(perfsvc(*command.split()))
    without_secret(perfsvc("config", "show"))
    without_secret(perfsvc("config", "show", "--format", "json"))


@pytest.mark.parametrize("url", [URLS["plain"], URLS["query"], URLS["user with @"]])
def test_no_usage_error_repeats_a_password(perfsvc, url):
    for arguments in (("{}",), ("db", "check", "{}"), ("show", "{}"), ("runs", "list", "--last", "{}"), ("--{}",)):
        assert without_secret(perfsvc(*(argument.format(url) for argument in arguments))).code


@pytest.mark.parametrize(
    "line",
    [
        f'database = "postgresql://u:{SECRET}@h/db"',
        f'database = "postgresql://u@h/db?password={SECRET}"',
        f'database = "postgresql://u@server:{SECRET}@h/db"',
        f'database = ["postgresql://u:{SECRET}@h/db"]',
        f'[notify]\ntargets = {{ team = "json://u:{SECRET}@h" }}',
        f'[notify]\ntargets = ["discord://1234567890/{SECRET}"]',
        f'[notify]\npage = "https://u:{SECRET}@h/"',
        f'[nightly]\nheartbeat = "https://hc-ping.com/{SECRET}"',
        f'[nightly]\nheartbeat = ["https://hc-ping.com/{SECRET}"]',
    ],
)
def test_no_error_about_the_settings_repeats_a_secret(perfsvc, line):
    (perfsvc.folder / "perfsvc.toml").write_text(f"{line}\n")
    del perfsvc.environment["PERFSVC_DB"]  # it would be used instead of the file's database
    for arguments in (("config", "show"), ("nightly",), ("doctor",)):
        assert without_secret(perfsvc(*arguments)).code


MORE = """
[notify]
targets = {{ team = "TEAM_URL", chat = "CHAT_URL", hook = "HOOK_URL" }}
about = ["new", "resolved", "failed"]
"""
HEARTBEAT = "[nightly]\nheartbeat = 'BEAT_URL'\n"


def rows_of(url):
    """Return all texts in a database."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        # As tuples: a row of SQLAlchemy shortens its long values when it is printed.
        rows = (connection.execute(table.select()).fetchall() for table in metadata().sorted_tables)
        texts = [str([tuple(row) for row in of_table]) for of_table in rows]
    engine.dispose()
    return "\n".join(texts)


def test_a_night_keeps_its_secrets(perfsvc, databases, monkeypatch):
    name = databases.create()
    plain = databases.url(name)
    secret_url = f"{plain}&password={SECRET}"
    try:
        perfsvc.environment |= {
            "PERFSVC_DB": secret_url,
            "TEAM_URL": f"json://user:{SECRET}@127.0.0.1:1/x",
            "CHAT_URL": f"discord://{SECRET}",
            "HOOK_URL": f"jsons://127.0.0.1:1/{SECRET}?verify=no",
            "BEAT_URL": f"http://[{SECRET}]/ping",
            "NCCL_TOKEN": SECRET,
            "TORCH_INDEX": f"https://{SECRET}@127.0.0.1/x",
            "TRITON_STORE": f"postgresql://u:{SECRET}@127.0.0.1/x",
        }
        monkeypatch.setattr("perfsvc.service.notify.notify.PAUSES_S", (0.0,))
        nights = Nights(perfsvc, MORE.format() + HEARTBEAT, page=True)
        usual = {"*": {"seconds": 1e-4}}
        perfsvc.play(usual)
        run = ("run", "--device", f"fake:{perfsvc.script}", "--suite", nights.suite, f"--db={secret_url}")
        without_secret(perfsvc(*run, "--replicas", "1"))
        perfsvc.play({**usual, "scale/beta": {"fault": "wrong"}})
        ended = without_secret(nights())
        assert "the heartbeat did not arrive" in ended.err + ended.out
        assert "did not get" in ended.err + ended.out
        without_secret(perfsvc("doctor"))
        without_secret(perfsvc("schedule", "print", "--as", "systemd"))
        without_secret(perfsvc("schedule", "print", "--as", "cron"))
        stored = rows_of(plain)
        assert "***" in stored
        assert "variable.NCCL_TOKEN" in stored
        without_secret(perfsvc("runs", "environment", "1"))
        assert SECRET not in stored
        for path in perfsvc.folder.rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    finally:
        databases.drop(name)
