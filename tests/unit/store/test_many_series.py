"""Nights on which hundreds and thousands of series move: no statement grows beyond what a database takes."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import event, select

from perfsvc.model import Case, Cause, Confirmation, Environment
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.findings.update import update_findings
from perfsvc.store.schema import engine
from perfsvc.store.schema.engine import MOST_PARAMETERS, among, transaction
from perfsvc.store.schema.tables import Cases
from tests.unit.store.conftest import ON_BOTH

pytestmark = ON_BOTH

OLD = Environment("580.1", "nvcc 13.0.88", 700.0)
STARTED = datetime(2026, 1, 1, tzinfo=UTC)


COUNT = 500
"""One statement that compared 492 series was too deep for SQLite."""


class Nights:
    """Nights that measure many cases, each with one binary for all of them."""

    def __init__(self, story, count):
        self.story, self.store, self.count = story, story.store, count
        self.cases = [Case("many", f"v{place}", (("n", 64),)) for place in range(count)]
        self.store.devices.put(story.gpu)

    def night(self, seconds, code):
        """Store and judge a run; return its number."""
        binary = self.story.binary(self.cases[0], code)
        run = self.story.begin(scope="many", started=STARTED)
        each = [(case, replica) for case in self.cases for replica in range(2)]
        entries = [self.story.entry(case, replica=place, samples=(seconds,) * 3, binary=binary) for case, place in each]
        self.store.measurements.put(run, entries)
        self.story.end_and_judge(run)
        return run

    def confirm(self, run):
        """Confirm all suspects of a run, and return how many there were."""
        suspects = suspects_of(self.store, run)
        for suspect in suspects:
            ratio = {"ratio": suspect.judgement.ratio, "low": suspect.judgement.low, "high": suspect.judgement.high}
            answer = Confirmation(suspect, Cause.KERNEL, "it is slower", 0.01, seed=1, budget_s=20.0, **ratio)
            self.store.confirmations.put(answer)
        return len(suspects)


@pytest.mark.slow  # hundreds of series take seconds, thousands on a busy machine minutes
@pytest.mark.timeout(600)
def test_nights_on_which_all_series_move_store_their_findings(story):
    nights = Nights(story, COUNT)
    nights.night(1e-4, b"fast")
    assert update_findings(story.store, nights.night(2e-4, b"slow")).raised == ()
    slow = nights.night(2e-4, b"slow")
    for raised in ((1,), ()):
        assert update_findings(story.store, slow).raised == raised
    (finding,) = story.store.findings.active()
    assert (finding.cause, len(finding.moved)) == (Cause.UNCONFIRMED, COUNT)
    assert finding.evidence.endswith("in runs 2 and 3, unconfirmed: it was not measured again")
    slow = nights.night(2e-4, b"slow")
    assert nights.confirm(slow) == COUNT
    assert update_findings(story.store, slow).raised == ()
    assert [each.cause for each in story.store.findings.active()] == [Cause.KERNEL]
    slower = nights.night(4e-4, b"slower")
    assert nights.confirm(slower) == 2 * COUNT  # against the baseline, and against the level before
    assert update_findings(story.store, slower).stepped == (1,)
    back = nights.night(1e-4, b"fast")
    assert update_findings(story.store, back).resolved == (1,)


def test_a_list_may_be_longer_than_a_statement_takes_parameters(story):
    """SQLite takes 32766, PostgreSQL 65535."""
    run = story.run(story.tiled, story.naive)
    assert run == 1
    with transaction(story.store.database.engine, writes=False) as connection:
        numbers = [*range(1, 70_001)]
        assert len(connection.scalars(select(Cases.id).where(among(Cases.id, numbers))).all()) == 2
        names = [f"no case {number}" for number in numbers] + [story.tiled.id]
        found = connection.scalars(select(Cases.name).where(among(Cases.name, names))).all()
        assert found == [story.tiled.id]
        assert connection.scalars(select(Cases.id).where(among(Cases.id, set()))).all() == []


def test_years_of_runs_are_read_in_statements_of_few_parameters(story):
    run = story.run(story.tiled, story.naive)
    store, runs = story.store, range(1, 3 * MOST_PARAMETERS)

    def count(_connection, _cursor, _statement, parameters, _context, many):
        assert many or len(parameters) <= 2 * MOST_PARAMETERS

    event.listen(store.database.engine, "before_cursor_execute", count)
    measured = {story.tiled.id, story.naive.id}
    assert {series.case.id for series in store.series.histories(runs)} == measured
    assert {series.case.id for series in store.series.histories(runs, cases=[story.tiled])} == {story.tiled.id}
    assert {series.case.id for series in store.series.samples(runs)} == measured
    assert {series.case.id for series in store.measurements.quantities(runs)} == measured
    assert set(store.measurements.columns(runs)["case"]) == measured
    assert set(store.devices.in_runs(runs)) == {run}
    assert store.devices.peaks_of(runs) == {}
    assert set(store.devices.full_environments(runs)) <= {run}
    assert store.exclusions.of_runs(runs) == []
    assert store.verdicts.runs(runs) <= {run}
    assert store.verdicts.events(runs) == {}
    assert store.confirmations.series(runs) == set()
    (row,) = store.runs.list()
    assert row.id == run


@pytest.mark.slow
def test_levels_and_baselines_are_read_the_same_however_many_parameters_a_statement_takes(story, monkeypatch):
    nights = Nights(story, 20)
    nights.night(1e-4, b"fast")
    run = nights.night(2e-4, b"slow")
    judged = judge_run(story.store, run, threshold=None)

    def levels():
        read = story.store.series.levels_of({one.series: run for one in judged})
        return {
            series: (level.run, level.status, level.reason, level.medians.tolist()) for series, level in read.items()
        }

    before = levels()
    monkeypatch.setattr(engine, "MOST_PARAMETERS", 5)
    assert judge_run(story.store, run, threshold=None) == judged
    assert levels() == before
