from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event

from perfsvc.model import Status, Verdict


@contextmanager
def counted(store):
    statements = []

    def note(_connection, _cursor, statement, *_):
        statements.append(statement)

    event.listen(store._engine, "before_cursor_execute", note)
    yield statements
    event.remove(store._engine, "before_cursor_execute", note)


def test_a_measurement_is_one_row_with_everything_about_it(story):
    run = story.begin(label="nightly", commit="abc", branch="main", host="box")
    story.put(run, story.tiled, samples=(1.0, 2.0, 6.0), metrics={"overlap": 0.5}, max_error=1e-6, stopped="enough")
    row = {name: values[0] for name, values in story.store.columns([run]).items()}
    expected = {
        "run": run,
        "label": "nightly",
        "commit": "abc",
        "branch": "main",
        "host": "box",
        "device": "GPU-1",
        "device_kind": "cuda",
        "device_model": "NVIDIA H100",
        "case": "transpose/tiled[n=4096,dtype=f32]",
        "benchmark": "transpose",
        "variant": "tiled",
        "point": "n=4096,dtype=f32",
        "axes": {"n": 4096, "dtype": "f32"},
        "version": 1,
        "mode": "cold",
        "replica": 0,
        "status": "ok",
        "median_s": 2.0,
        "low_s": 1.0,
        "high_s": 6.0,
        "samples": 3,
        "bandwidth_bytes_per_s": 3000.0,
        "flops_per_s": 5.0,
        "max_error": 1e-6,
        "stopped": "enough",
        "driver": "580.1",
        "toolkit": "nvcc 13.0.88",
        "power_limit_w": 700.0,
        "metrics": {"overlap": 0.5},
    }
    assert {name: row[name] for name in expected} == expected
    assert type(row["status"]) is type(row["mode"]) is str


def test_what_was_not_timed_has_no_bandwidth(story):
    run = story.begin()
    story.put(run, story.tiled, status=Status.FAILED, reason="does not compile")
    columns = story.store.columns([run])
    assert columns["bandwidth_bytes_per_s"] == columns["flops_per_s"] == columns["median_s"] == [None]
    assert columns["reason"] == ["does not compile"]


def test_columns_are_of_all_runs_or_of_some(story):
    first, second, third = story.run(), story.run(), story.run(story.tiled, story.naive)
    assert story.store.columns()["run"] == [first, second, third, third]
    assert story.store.columns([first, third])["run"] == [first, third, third]
    assert {len(values) for values in story.store.columns([]).values()} == {0}


@pytest.mark.parametrize(
    "ask",
    [
        lambda story, run: story.store.levels(run),
        lambda story, run: story.store.columns(),
        lambda story, run: story.store.runs(),
        lambda story, run: story.store.history(story.tiled.id),
        lambda story, run: story.store.baselines(story.store.levels(run), run),
        lambda story, run: story.store.verdicts(run),
    ],
    ids=["levels", "columns", "runs", "history", "baselines", "verdicts"],
)
def test_the_number_of_statements_does_not_grow_with_the_rows(story, ask):
    def grow(times):
        for size in range(times):
            cases = [replace(story.tiled, point=(("n", n),)) for n in range(size + 1)]
            run = story.run(story.tiled, *cases)
            story.store.put_verdicts(run, [story.judgement(case, verdict=Verdict.UNCHANGED) for case in cases])
        return run

    few = grow(2)
    with counted(story.store) as before:
        ask(story, few)
    many = grow(5)
    with counted(story.store) as after:
        ask(story, many)
    assert 0 < len(before) == len(after) <= 12
