"""A database of every schema revision is upgraded and read, on SQLite and PostgreSQL."""

import json
import sqlite3
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, Boolean, DateTime, MetaData, insert, select

from perfsvc.installation import data_folder
from perfsvc.model import Status, Verdict
from perfsvc.store import Store
from perfsvc.store.keeping import upgrades
from perfsvc.store.schema.engine import connect, resolve, transaction

DUMPS = sorted((Path(__file__).parents[2] / "data" / "schemas").glob("*.sql"))
CASE = "transpose/shared[n=64]"


def test_every_revision_has_a_dump():
    revisions = ScriptDirectory.from_config(upgrades._config()).walk_revisions()
    names = [script.revision for script in revisions]
    assert [dump.stem for dump in DUMPS] == sorted(names)
    assert upgrades._revisions(data_folder("migrations")) == tuple(names)


@pytest.fixture(scope="module", params=DUMPS, ids=lambda dump: dump.stem)
def dump(request):
    return request.param


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def kind(request):
    return request.param


def fill(place, dump):
    """Fill an empty database with what perfsvc stored at a past revision."""
    if place.startswith("postgresql"):
        fill_server(place, dump)
    else:
        with closing(sqlite3.connect(place)) as connection:
            connection.executescript(dump.read_text())


def fill_server(place, dump):
    """Fill a server: the migrations up to the revision create the tables, and the rows come from the dump of SQLite."""
    engine = connect(resolve(place))
    with transaction(engine, writes=True) as connection:
        config = upgrades._config()
        config.attributes["connection"] = connection
        command.upgrade(config, dump.stem)
        for table, rows in dumped(dump, connection).items():
            if rows:
                connection.execute(insert(table), rows)
                if "id" in table.c:  # the server goes on counting after what it was given
                    connection.exec_driver_sql(
                        f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}"  # noqa: S608 - a name of our own
                    )
    engine.dispose()


def dumped(dump, connection):
    """Return the rows of each table of a dump that a database has too, in the order of their keys."""
    tables = MetaData()
    tables.reflect(connection)
    with closing(sqlite3.connect(":memory:")) as source:
        source.row_factory = sqlite3.Row
        source.executescript(dump.read_text())
        rows = {}
        for table in tables.sorted_tables:
            if table.name == "alembic_version":
                continue
            order = ", ".join(column.name for column in table.primary_key)
            stored = source.execute(f"SELECT * FROM {table.name} ORDER BY {order}").fetchall()  # noqa: S608 - our names
            rows[table] = [{column.name: value(column.type, row[column.name]) for column in table.c} for row in stored]
    return rows


def value(kind, stored):
    """Return a value of SQLite as the Python value that PostgreSQL expects."""
    if stored is None:
        return None
    if isinstance(kind, Boolean):
        return bool(stored)
    if isinstance(kind, DateTime):
        return datetime.fromisoformat(stored).replace(tzinfo=UTC)
    return json.loads(stored) if isinstance(kind, JSON) else stored


@contextmanager
def upgraded_in(place, dump):
    fill(place, dump)
    assert Store.upgrade(place).before == dump.stem
    assert Store.check(place).problems == ()
    with Store.open(place) as store:
        yield store


@pytest.fixture(scope="module")
def upgraded(kind, dump, request, tmp_path_factory):
    """Open an upgraded database, which all tests of its revision only read."""
    with ExitStack() as ended:
        if kind == "sqlite":
            place = str(tmp_path_factory.mktemp("past") / "perfsvc.db")
        else:
            databases = request.getfixturevalue("databases")
            name = databases.create()
            ended.callback(databases.drop, name)
            place = databases.url(name)
        yield ended.enter_context(upgraded_in(place, dump))


def test_every_row_is_what_perfsvc_stored(upgraded, dump):
    with upgraded.database.reading() as connection:
        for table, rows in dumped(dump, connection).items():
            found = connection.execute(select(table).order_by(*table.primary_key)).mappings()
            assert [{name: in_utc(stored) for name, stored in row.items()} for row in found] == rows, table.name


def in_utc(stored):
    return stored.replace(tzinfo=UTC) if isinstance(stored, datetime) else stored


def test_runs_levels_and_histories_are_read(upgraded):
    first, second = (run.id for run in reversed(upgraded.runs.list()))
    assert upgraded.runs.get(first).counts == {Status.OK: 2, Status.FAILED: 1}
    assert upgraded.runs.labelled("first night").provenance.packages == {"numpy": "2.4.6"}
    (renamed,) = [series for series in upgraded.series.levels(second) if series.metric == "time"]
    assert renamed.case.id == CASE
    assert list(upgraded.series.levels(first)[renamed].medians) == [0.375, 0.125]
    assert upgraded.series.rebuild() == []
    history = upgraded.series.case_history(CASE)
    assert [(row.median_s, row.replicas) for row in history] == [(pytest.approx((0.375 * 0.125) ** 0.5), 2), (0.5, 1)]
    assert {run.provenance.scope for run in upgraded.runs.list()} == {"kernels"}
    assert upgraded.baselines.get([renamed], second) == {renamed: first}
    assert upgraded.baselines.expected(second).keys() == {renamed}
    assert upgraded.verdicts.of_run(second)[-1].verdict is Verdict.UNCHANGED
    assert [pin.comment for pin in upgraded.baselines.pins()] == ["release"]
    (exclusion,) = upgraded.exclusions.all()
    assert (exclusion.run, exclusion.by, exclusion.included_by) == (first, "ann", "bob")
    record, modules, bench = upgraded.binaries.replay("transpose/tiled[n=64]", first)
    assert (record.seed, list(modules.values()), bench) == (7, [b"cubin"], b"# bench.py")
    assert upgraded.binaries.python_modules("transpose/tiled[n=64]", first) == {"helpers": "# helpers.py"}
    assert upgraded.measurements.columns([second])["metrics"] == [{"overlap": 0.75}]
    histories = {
        (series.case.id, series.metric): history
        for series, history in upgraded.series.histories_until(second, 9).items()
    }
    assert histories[CASE, "time"].runs.tolist() == [first, second]
    assert histories[CASE, "time"].level[0] == pytest.approx((0.375 * 0.125) ** 0.5)
    assert histories[CASE, "overlap"].level.tolist() == [0.75]
