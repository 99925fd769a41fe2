"""An attacker who can write to the shared database: none of his code runs, and what he changed is refused aloud."""

import zlib
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import JSON, LargeBinary, Text, select, text, update
from sqlalchemy.exc import IntegrityError

from perfsvc.keys import Keys
from perfsvc.model import digest
from perfsvc.store.schema.all_tables import metadata
from perfsvc.store.schema.engine import connect, resolve, transaction
from tests.e2e.nights import CASE, SLOW, USUAL, Nights


class Attacker:
    """Whoever can write to a database, and has no key."""

    def __init__(self, database: str, canary) -> None:
        self._database = database
        self.canary = canary
        self.code = f"open({str(canary)!r}, 'w').close()\n"

    @contextmanager
    def connected(self):
        engine = connect(resolve(self._database))
        try:
            with transaction(engine, writes=True) as connection:
                yield connection
        finally:
            engine.dispose()

    def plant(self) -> None:
        """Put his code into the stored benchmark files of all binaries, with consistent digests."""
        with self.connected() as connection:
            benches = connection.execute(text("select sha256, content from artifacts where kind = 'bench'")).all()
            for sha256, content in benches:
                evil = zlib.decompress(content) + b"\n" + self.code.encode()
                values = {"old": sha256, "new": digest(evil), "size": len(evil), "content": zlib.compress(evil)}
                for statement in (
                    "insert into artifacts values (:new, 'bench', :size, :content)",
                    "update binary_files set sha256 = :new, name = :new where sha256 = :old",
                    "update binaries set record = replace(record, :old, :new)",
                ):
                    names = {name: value for name, value in values.items() if f":{name}" in statement}
                    connection.execute(text(statement), names)
            for binary, record in connection.execute(text("select id, record from binaries")).all():
                values = {"id": binary, "digest": digest(record.encode())}
                connection.execute(text("update binaries set digest = :digest where id = :id"), values)

    def overwrite(self, table) -> None:
        """Write his code into every free text, JSON value and blob of a table."""
        keys = {*table.primary_key.columns} | {key.parent for key in table.foreign_keys}
        values = {}
        for column in table.columns:
            if column in keys or column.unique:
                continue
            if isinstance(column.type, JSON):
                values[column] = {"suite": self.code, "x": self.code}
            elif isinstance(column.type, LargeBinary):
                values[column] = zlib.compress(self.code.encode())
            elif type(column.type) is Text or type(column.type).__name__ == "FreeText":
                values[column] = self.code
        with self.connected() as connection:
            for column, value in values.items():
                with suppress(IntegrityError), connection.begin_nested():
                    connection.execute(update(table).values({column: value}))


@pytest.fixture
def kind():
    """The kind of database, unless a test names another."""
    return "sqlite"


@pytest.fixture
def database(request, kind, perfsvc):
    """The database of the workplace, on both kinds."""
    if kind == "sqlite":
        yield str(perfsvc.database)
        return
    databases = request.getfixturevalue("databases")
    name = databases.create()
    perfsvc.environment["PERFSVC_DB"] = databases.url(name)
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture
def attacker(database, tmp_path):
    return Attacker(database, tmp_path / "canary")


class NightsOnBoth(Nights):
    """Nights whose database may be on a server."""

    def __init__(self, perfsvc, attacker):
        super().__init__(perfsvc)
        self._attacker = attacker

    def slower(self):
        with self._attacker.connected() as connection:
            old = connection.execute(text("select distinct sha256 from binary_files")).scalars().all()
        self.perfsvc.rebuild(self.suite)
        self.perfsvc.play({"*": USUAL, "scale/beta": SLOW, **dict.fromkeys(old, USUAL)})


@pytest.fixture
def nights(perfsvc, attacker):
    return NightsOnBoth(perfsvc, attacker)


def two_nights(perfsvc):
    """Run two nights in a workplace, of which the second finds a case slower."""
    nights = NightsOnBoth(perfsvc, Attacker(perfsvc.environment["PERFSVC_DB"], "nowhere"))
    nights(code=0)
    nights.slower()
    nights(code=1)


@pytest.fixture(scope="module")
def two_nights_on_postgresql(databases):
    """Two nights in a database on PostgreSQL, as ``prepared`` takes them, and the name of that database."""
    name = databases.create()

    def prepare(perfsvc):
        perfsvc.environment["PERFSVC_DB"] = databases.url(name)
        two_nights(perfsvc)

    yield prepare, name
    databases.drop(name)


@pytest.fixture
def after_two_nights(request, kind, prepared):
    """The workplace of a test after two nights, which all tests share, with a database of its own."""
    if kind == "sqlite":
        yield prepared(two_nights)
        return
    databases = request.getfixturevalue("databases")
    prepare, template = request.getfixturevalue("two_nights_on_postgresql")
    workplace = prepared(prepare)
    name = databases.create(template)
    workplace.environment["PERFSVC_DB"] = databases.url(name)
    yield workplace
    databases.drop(name)


def confirm(perfsvc, code=None):
    return perfsvc("confirm", CASE, "--device", f"fake:{perfsvc.script}", code=code)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_code_that_an_attacker_put_into_the_database_does_not_run_and_the_night_says_so(nights, attacker, monkeypatch):
    perfsvc = nights.perfsvc
    nights(code=0)
    attacker.plant()
    nights.slower()
    ended = nights(code=5)
    assert "stored code of 1 suspect was refused" in ended.out
    assert f"the code of {CASE} in run 1 was changed in the database after it was stored" in ended.out + ended.err
    assert not attacker.canary.exists()
    ended = confirm(perfsvc, code=5)
    assert "was changed in the database" in ended.out + ended.err
    assert "unconfirmed" in perfsvc("compare", "1", "2", code=1).out
    assert not attacker.canary.exists()
    monkeypatch.setattr(Keys, "require", lambda *_: None)  # without signatures, the attack succeeds
    confirm(perfsvc)
    assert attacker.canary.exists()


CODE = ("artifacts", "binaries", "binary_files", "cases", "nights", "python_codes")
OTHERS = [table.name for table in metadata().sorted_tables if table.name not in CODE]
ATTACKS = {f"sqlite-{name}": [name] for name in CODE} | {"sqlite-even": OTHERS[::2], "sqlite-odd": OTHERS[1::2]}
ATTACKS |= {"postgresql-code": CODE[:3], "postgresql-others": OTHERS}
"""The tables of each attack, on a kind of database: each table of code and of what is run is attacked alone."""


@pytest.mark.parametrize(
    ("kind", "tables"), [(name.partition("-")[0], tables) for name, tables in ATTACKS.items()], ids=ATTACKS
)
def test_no_row_that_an_attacker_overwrites_runs_his_code(after_two_nights, tmp_path, tables):
    perfsvc = after_two_nights
    attacker = Attacker(perfsvc.environment["PERFSVC_DB"], tmp_path / "canary")
    for table in tables:
        attacker.overwrite(metadata().tables[table])
    for arguments in (("nightly",), ("nightly", "--resume"), ("compare", "1", "2")):
        perfsvc(*arguments)
    confirm(perfsvc)
    assert not attacker.canary.exists()


def test_a_night_that_an_attacker_sent_to_his_own_suite_is_not_resumed(nights, attacker, tmp_path, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("perfsvc.service.nightly.stages.judge_measured", killed)
        nights(code=130)
    theirs = tmp_path / "theirs" / "scale"
    theirs.mkdir(parents=True)
    (theirs / "bench.py").write_text(attacker.code)
    with attacker.connected() as connection:
        (settings,) = connection.execute(select(metadata().tables["nights"].c.settings)).scalars()
        values = {"suite": str(theirs.parent), "settings": settings | {"suite": str(theirs.parent)}, "suite_digest": ""}
        connection.execute(update(metadata().tables["nights"]).values(values))
        connection.execute(text("delete from stages where name <> 'lock'"))
    ended = nights("--resume", code=5)
    assert "what night 1 began with was changed in the database" in ended.err
    assert not attacker.canary.exists()
