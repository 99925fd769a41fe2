"""A database of every schema revision is upgraded and read, on SQLite and PostgreSQL."""

import json
import sqlite3
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, Boolean, DateTime, MetaData, insert

from perfsvc.installation import data_folder
from perfsvc.model import (
    Case,
    Cause,
    ChangeKind,
    CheckedKernel,
    Difference,
    Direction,
    EventKind,
    Evidence,
    ExpectedKind,
    FindingState,
    HotLine,
    Peak,
    ProfilerRule,
    Reason,
    ReasonKind,
    SourceLine,
    Status,
    Verdict,
    differences,
)
from perfsvc.store import RunState, StageState, Store
from perfsvc.store.keeping import upgrades
from perfsvc.store.measurements.batches import unpack_batches
from perfsvc.store.schema.engine import connect, resolve, transaction

DUMPS = sorted((Path(__file__).parents[2] / "data" / "schemas").glob("*.sql"))
CASE = "transpose/shared[n=64]"
WHY = Reason(
    ReasonKind.OCCUPANCY,
    0.9,
    "32 → 16 warps",
    (Evidence("achieved_occupancy", 0.5, None),),
    (ProfilerRule("Occupancy", "few warps", 0.5),),
    counted="instructions",
    before=(HotLine(0.75, "LDG.E R2, [R4.64]", 2),),
    after=(HotLine(1.0, "LDG.E R2, [R4.64]", 1, SourceLine("tile.cuh", 31), "t = a[i];", changed=True),),
)


def test_every_revision_has_a_dump():
    revisions = ScriptDirectory.from_config(upgrades._config()).walk_revisions()
    names = [script.revision for script in revisions]
    assert [dump.stem for dump in DUMPS] == sorted(names)
    assert upgrades._revisions(data_folder("migrations")) == tuple(names)


@pytest.fixture(scope="module", params=DUMPS, ids=lambda dump: dump.stem)
def dump(request):
    return request.param


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
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
    with transaction(engine, writes=True) as connection, closing(sqlite3.connect(":memory:")) as source:
        config = upgrades._config()
        config.attributes["connection"] = connection
        command.upgrade(config, dump.stem)
        source.row_factory = sqlite3.Row
        source.executescript(dump.read_text())
        tables = MetaData()
        tables.reflect(connection)
        for table in tables.sorted_tables:
            rows = source.execute(f"SELECT * FROM {table.name}").fetchall()  # noqa: S608 - a name of our own
            if rows and table.name != "alembic_version":
                values = [{column.name: value(column.type, row[column.name]) for column in table.c} for row in rows]
                connection.execute(insert(table), values)
                if "id" in table.c:  # the server goes on counting after what it was given
                    connection.exec_driver_sql(
                        f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}"  # noqa: S608 - likewise
                    )
    engine.dispose()


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


def test_runs_levels_and_histories_are_read(upgraded):
    first, second = (run.id for run in reversed(upgraded.runs.list()))
    assert upgraded.runs.get(first).counts == {Status.OK: 2, Status.FAILED: 1}
    assert upgraded.runs.labelled("first night").provenance.packages == {"numpy": "2.4.6"}
    (renamed,) = [series for series in upgraded.series.levels(second) if series.metric == "time"]
    assert renamed.case.id == CASE
    assert [*map(tuple, upgraded.series.levels(first)[renamed].replicas)] == [(0.5, 0.25), (0.125,)]
    history = upgraded.series.case_history(CASE)
    assert [[time.median_s for time in row.times] for row in history] == [[0.375, 0.125], [0.5]]
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
    assert histories[CASE, "time"].values[0].tolist() == [0.375, 0.125]
    assert histories[CASE, "overlap"].values[:, 0].tolist() == [0.75]


def test_environments_are_read(upgraded):
    first, second = (run.id for run in reversed(upgraded.runs.list()))
    (environment,) = upgraded.devices.environments().values()
    assert environment.parts == (("gpu.ecc", "on"), ("variable.CUDA_X", "1"))
    recorded = upgraded.devices.full_environments([first, second])
    assert differences(recorded[first], recorded[second]) == (
        Difference("gpu.ecc", "on", "off", ("GPU-1",)),
        Difference("variable.CUDA_X", "1", "2"),
    )


SUMMARY = {
    "variant_index": 2,
    "relative_to": "copy",
    "warmup": 3,
    "note": "the host fell behind once",
    "check_s": 0.25,
    "sampling_s": 3.5,
    "busy_s": 3.25,
    "sm_clock_hz": 1.5e9,
    "temperature_c": 90.0,
    "power_w": 500.0,
    "slowdowns": "power cap, thermal slowdown",
    "rejected_batches": 1,
    "noise_within": 0.25,
    "noise_between": 0.125,
    "noise_places": 0.0625,
    "lowest_place_s": 0.5,
    "highest_place_s": 0.75,
    "copy_bytes_per_s": 2.0e12,
    "read_bytes_per_s": 2.5e12,
    "precision": "tf32",
}


def test_the_summary_columns_are_read(upgraded):
    columns = upgraded.measurements.columns([2])
    assert {name: columns[name] for name in SUMMARY} == {name: [stored] for name, stored in SUMMARY.items()}


def test_noise_peaks_and_costs_are_read(upgraded):
    (tiled,) = {series.case for series in upgraded.series.levels(2)}
    columns = upgraded.measurements.columns([2])
    noise = [columns[name] for name in ("device", "cache", "noise_within", "noise_between")]
    assert noise == [["GPU-1"], ["cold"], [0.25], [0.125]]
    assert upgraded.devices.peaks(2) == ({"GPU-1": Peak(2.0e12, 2.5e12)})
    assert upgraded.devices.rates(2, "GPU-1") == {"memory": 2.5e12, "tf32": 4.0e14}
    assert [case.variant for _, case, _ in upgraded.runs.over_budget(2)] == ["naive"]
    costs = {
        case: past.cost_s for (_, case, _), past in upgraded.measurements.costs([tiled], ["GPU-1", "GPU-2"]).items()
    }
    assert costs == ({CASE: 4.0})
    assert upgraded.imports.known(["ab" * 32, "cd" * 32]) == {"ab" * 32: 1}


def test_batches_are_read(upgraded):
    with transaction(upgraded.database.engine, writes=False) as connection:
        rows = connection.exec_driver_sql("SELECT batches, xids FROM measurements WHERE batches IS NOT NULL").all()
    ((blob, xids),) = rows
    found = [(batch.rejected, batch.samples_s, batch.conditions.xids) for batch in unpack_batches(blob, (0.5,))]
    assert (found, xids) == ([("", (0.5,), ()), ("thermal slowdown", (0.75, 1.0), (48,))], "48")


def test_verdicts_are_read(upgraded):
    judged = {one.series.metric: one for one in upgraded.verdicts.of_run(2)}
    known = [(one.smallest, one.baseline_replicas, one.candidate_replicas) for one in judged.values()]
    assert set(known) == {(0.125, 6, 1)}
    assert {(one.baseline_runs, one.between_nights) for one in judged.values()} == {(3, 0.0625)}
    assert [one.cause for one in judged.values() if one.cause] == [Cause.KERNEL]


def test_findings_with_their_state_and_events_are_read(upgraded):
    findings = upgraded.findings.active()
    found = [(one.first_run, one.evidence, *(moved.series.case.id for moved in one.moved)) for one in findings]
    assert found == [(None, "last seen in night 1"), (2, "the old one is faster", CASE)]
    (expected,) = upgraded.expectations.of_host("box")
    assert (expected.kind, expected.name, expected.night, expected.devices) == (ExpectedKind.GPU, "GPU-2", 1, "auto")
    assert upgraded.findings.get(expected.finding).root_cause == "GPU-2 (NVIDIA H100) on host box"
    for found in upgraded.findings.active()[1:]:
        (moved,) = found.moved
        assert (moved.change, moved.direction, moved.series.device) == (
            ChangeKind.REGRESSION,
            Direction.SLOWER,
            "GPU-1",
        )
        known = ("abc..def", "bob", FindingState.IGNORED)
        assert (found.root_cause, found.owner, found.state) == known
    events = [(one.finding, one.kind, one.run, one.by) for one in upgraded.findings.events(finding=1)]
    raised = (1, EventKind.RAISED, 2, "")
    known = [raised, (1, EventKind.ASSIGNED, None, "ann"), (1, EventKind.IGNORED, None, "ann")]
    assert events == (known)
    (missing,) = upgraded.findings.events(night=1)
    assert (missing.finding, missing.kind, missing.run) == (2, EventKind.RAISED, None)


def test_a_finding_can_be_resolved_and_reopened_after_an_upgrade(empty, dump):
    with upgraded_in(empty, dump) as store:
        for found in store.findings.active():
            store.findings.set_state(found.id, FindingState.RESOLVED, by="ann")
            assert store.findings.set_state(found.id, FindingState.OPEN, by="ann").moved == found.moved


def test_confirmations_are_read(upgraded):
    found = [
        (one.cause, one.ratio, one.baseline[0].samples_s, one.seed) for one in upgraded.confirmations.of_run(2)[:1]
    ]
    assert found == [(Cause.KERNEL, 2.0, (0.25, 0.5), 7)]
    again = upgraded.confirmations.of_run(2)[1:]
    assert [(one.suspect.series.metric, one.baseline[0].metrics) for one in again] == (
        [("energy_j", {"energy_j": 0.5})]
    )


def test_profiles_and_explanations_are_read(upgraded):
    (counted,) = upgraded.profiles.of_binary(1)
    assert (counted.id, counted.profile.metrics) == (1, {"duration_s": 0.25, "registers": None})
    assert counted.profile.rules == (ProfilerRule("Occupancy", "few warps", 0.5),)
    assert [instruction.source for instruction in counted.profile.instructions] == [SourceLine("tile.cuh", 31)]
    assert [kernel.name for kernel in counted.profile.kernels] == ["head", "tiled"]
    with transaction(upgraded.database.engine, writes=False) as connection:
        failed = connection.exec_driver_sql("SELECT run_id, reason FROM profiles WHERE reason <> ''").all()
    assert failed == [(2, "no permission")]
    assert [(one.sentence, one.reasons, one.profiles) for one in upgraded.profiles.explanations(2)] == [
        ("fewer warps", (WHY,), (1, 2))
    ]
    assert upgraded.profiles.report(1) == b"report"


def test_static_checks_are_read(upgraded):
    shared = CheckedKernel(Case("transpose", "shared", (("n", 64),), formerly=("tiled",)), "sm_90", "tiled")
    found = upgraded.checks.baselines([shared], "kernels", "nvcc 13.0.88")
    assert [(one.check, one.toolkit, one.checked.facts.registers) for one in found] == ([(1, "nvcc 13.0.88", 32)])


def test_nights_are_read(upgraded):
    nights = upgraded.nights.list()
    assert [(one.id, one.state, one.run, one.commit, one.dirty, one.suite_digest, one.settings) for one in nights] == [
        (1, RunState.INTERRUPTED, 2, "def", True, "aa", {"replicas": 3})
    ]
    assert [
        (stage.name, stage.state, stage.wall_s, stage.cure, stage.exit_code) for one in nights for stage in one.stages
    ] == [
        ("doctor", StageState.FAILED, 0.5, "install one", 5),
        ("run", StageState.RUNNING, None, "", 0),
    ]
