"""What differs in the environments of two runs, and the parts of it whose change begins a new baseline."""

import json

import pytest

from perfsvc.store import Store

ON, OFF = {"CUDA_MODULE_LOADING": "LAZY"}, {"CUDA_MODULE_LOADING": "EAGER"}
CHANGE = "variable.CUDA_MODULE_LOADING LAZY → EAGER"
CHANGED = {"name": "variable.CUDA_MODULE_LOADING", "before": "LAZY", "after": "EAGER", "devices": []}
PARTS = '[segments]\nparts = ["variable.CUDA_MODULE_*"]\n'


class Box:
    """A workplace outside any repository, so that no uncommitted change counts."""

    def __init__(self, perfsvc):
        self.perfsvc = perfsvc
        self.suite = perfsvc.folder / "scale"
        if not self.suite.exists():
            perfsvc.own("scale")
        perfsvc.play({"*": {"seconds": 1e-4}})

    def run(self, variables, *, settings="", **script):
        (self.perfsvc.folder / "perfsvc.toml").write_text(settings)
        self.perfsvc.environment.pop("CUDA_MODULE_LOADING", None)
        self.perfsvc.environment.update(variables)
        if script:
            self.perfsvc.play({"*": {"seconds": 1e-4}}, **script)
        return self.perfsvc.fake("--replicas", "2", suite=self.suite)

    def segments(self):
        """Return the environment of each run."""
        return dict(self.perfsvc.rows("select distinct run_id, environment_id from measurements order by run_id"))


@pytest.fixture
def box(perfsvc):
    return Box(perfsvc)


def two_runs(perfsvc):
    for variables in (ON, OFF):
        Box(perfsvc).run(variables)


@pytest.fixture
def changed(prepared):
    """A workplace with two runs, between which a variable changed."""
    return Box(prepared(two_runs))


def test_compare_shows_what_changed_above_the_table_and_each_run_has_its_environment(changed):
    assert len(set(changed.segments().values())) == 1, "without the setting, a changed part begins no segment"
    for base in ("1", "@baseline"):
        lines = changed.perfsvc("compare", base, "2", code=0).out.splitlines()
        assert "1 difference of the environment since run 1" in lines
        assert lines.index(f"  {CHANGE}") < next(n for n, line in enumerate(lines) if line.startswith("verdict"))
        assert f"- {CHANGE}\n" in changed.perfsvc("compare", base, "2", "--format", "github").out
        found = changed.perfsvc("compare", base, "2", "--format", "json").json
        assert found["environment"] == {"before": 1, "after": 2, "differences": [CHANGED]}
    assert "EAGER → LAZY" in changed.perfsvc("runs", "environment", "2", "1", code=0).out
    found = changed.perfsvc("runs", "environment", "1", "2", "--format", "json", code=0).json
    assert found == {"before": 1, "after": 2, "differences": [CHANGED]}
    assert "variable.CUDA_MODULE_LOADING" in changed.perfsvc("runs", "environment", "latest", code=0).out
    found = changed.perfsvc("runs", "environment", "2", "--format", "json", code=0).json
    assert (found["run"], found["common"]["variable.CUDA_MODULE_LOADING"]) == (2, "EAGER")
    assert found["devices"]["FAKE-0"]["software.driver"] == "0.0"
    measured = changed.perfsvc.fake("--replicas", "1", "--format", "json", suite=changed.suite).json["environment"]
    assert measured == {name: found[name] for name in ("common", "devices")}
    assert "there is no run 7" in changed.perfsvc("runs", "environment", "7", code=2).err
    assert "there is no run 7" in changed.perfsvc("runs", "environment", "1", "7", code=2).err


def test_a_run_of_which_no_environment_is_known_compares_as_before(changed):
    with Store.open(changed.perfsvc.database) as store, store.database.writing() as connection:
        connection.exec_driver_sql("UPDATE runs SET full_environment_id = NULL WHERE id = 1")
    assert "environment" not in changed.perfsvc("compare", "1", "2", code=0).out
    assert changed.perfsvc("compare", "1", "2", "--format", "json").json["environment"] is None
    ended = changed.perfsvc("runs", "environment", "1", code=2)
    assert "run 1 recorded no environment" in ended.err
    assert "cure: name another run: perfsvc runs" in ended.err


def test_a_changed_part_that_the_setting_names_begins_a_segment(box):
    box.run(ON, settings=PARTS)
    assert "has changed since" not in box.run(ON, settings=PARTS).err
    ended = box.run(OFF, settings=PARTS)
    message = f"has changed since run 2: {CHANGE}; perfsvc compares later runs only with run 3 and the runs after it"
    assert message in " ".join(ended.err.split())
    assert "has changed since" not in box.run(OFF, settings=PARTS).err
    first, second, third, fourth = box.segments().values()
    assert first == second != third == fourth
    baselines = box.perfsvc.rows(
        "select distinct run_id, baseline_run_id from levels where verdict is not null order by run_id"
    )
    assert baselines[1:] == [(2, 1), (3, 1), (4, 3)]


def test_a_driver_begins_a_segment_without_the_setting_and_is_a_difference(box):
    box.run(ON)
    ended = box.run(ON, driver="1.0")
    assert "has changed since run 1: driver 0.0 → 1.0;" in " ".join(ended.err.split())
    assert "software.driver 0.0 → 1.0 (FAKE-0)" in box.perfsvc("compare", "1", "2", code=0).out


def test_a_pattern_that_can_match_no_part_is_an_error(box):
    for pattern in ("gpu.eec", "ecc", "gpu", "speed.*", ""):
        ended = box.run(ON, settings=f"[segments]\nparts = {json.dumps([pattern])}\n").require(2)
        assert f"perfsvc.toml:2: segments.parts[1]: {pattern!r} matches no part of the environment" in ended.err
        assert "cure: write " in ended.err
