"""Several GPUs: all at once, each case dealt to one of them or to all, one of them lost, one of them in use."""

import json
import time
from collections import Counter
from functools import partial

import pytest

from perfsvc import suite
from perfsvc.device.find import find
from perfsvc.measure.host import pool
from perfsvc.measure.plan import order
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import Status, digest

SAMPLING = Sampling(samples=60, recovery_s=0)
USUAL = {"*": {"seconds": 1e-4}}
CASES = [f"scale/{name}[n={n}]" for name in ("alpha", "beta", "gamma") for n in (1000, 4000)]


class Host:
    """A machine with fake GPUs, on which the cases of a suite are measured."""

    def __init__(self, folder, cases):
        self.folder = folder
        self.specs = cases
        self.said = []

    def boards(self, **scripts):
        """GPUs of one model, by their UUIDs."""
        for uuid, cases in scripts.items():
            (self.folder / f"{uuid}.json").write_text(json.dumps({"uuid": uuid, "cases": cases}))
        return {one.uuid: one for one in find([f"fake:{self.folder / uuid}.json" for uuid in scripts])}

    def task(self, uuid, spec):
        inputs = suite.Inputs()
        return Task(
            uuid,
            spec.record(["0" * 64 for _ in spec.units], digest(spec.bench_text.encode())),
            (b"code",) * len(spec.units),
            spec.cache,
            SAMPLING,
            spec.tolerance,
            Recipe(spec.arrays, partial(suite.make_arrays, spec, inputs), partial(suite.make_fresh, spec)),
        )

    def plan(self, boards, spread, replicas=2):
        tasks = [self.task(uuid, spec) for uuid in boards for spec in self.specs]
        dealt = order.spread(tasks, boards.values(), spread)
        return Plan(dealt, replicas, 1, 60.0, spread=spread)

    def measure(self, boards, spread):
        """What came of each case on each GPU in each replica."""
        found = pool.measure(self.plan(boards, spread), boards, self.said.append)
        return {(one.device, one.case.id, one.replica): one for one in found}


@pytest.fixture
def host(perfsvc, monkeypatch):
    monkeypatch.setenv("PERFSVC_LOCKS", str(perfsvc.folder / "locks"))
    return Host(perfsvc.folder, suite.discover(perfsvc.suites / "scale").resolve(suite.Selection(), "full"))


def timed(found, uuid):
    """The cases that have times on a GPU, with the number of their replicas."""
    return Counter(case for (board, case, _), one in found.items() if board == uuid and one.status is Status.OK)


def test_every_board_measures_every_case_once_a_replica(host):
    found = host.measure(host.boards(A={"*": {"seconds": 1e-4}}, B={"*": {"seconds": 3e-4}}), "each-device")
    assert timed(found, "A") == timed(found, "B") == dict.fromkeys(CASES, 2)
    assert {(board, one.samples_s[0]) for (board, *_), one in found.items()} == {("A", 1e-4), ("B", 3e-4)}


def test_boards_work_at_once(host):
    boards = host.boards(A={"*": {"fault": "hang"}}, B=USUAL)
    measuring = pool.measure(host.plan(boards, "each-device"), boards)
    assert [next(measuring).device for _ in range(2 * len(CASES))] == ["B"] * 2 * len(CASES)
    measuring.close()


def test_a_case_is_dealt_to_the_same_board_every_night(host):
    boards = host.boards(A=USUAL, B=USUAL)
    tonight = host.measure(boards, "each-model")
    assert timed(tonight, "A") + timed(tonight, "B") == dict.fromkeys(CASES, 2)
    assert set(timed(tonight, "A")).isdisjoint(timed(tonight, "B"))
    assert timed(tonight, "A")
    assert timed(tonight, "B")
    tomorrow = host.measure(dict(reversed(boards.items())), "each-model")
    assert set(tomorrow) == set(tonight)


def lose_a(host, spread):
    """The GPU A vanishes at its first case of the second replica; gives that case and the others dealt to A."""
    order = host.plan(host.boards(A=USUAL, B=USUAL), spread).order("A")
    broke, *others = (task.record.case.id for replica, task in order if replica == 1)
    assert len(others) >= 2
    found = host.measure(host.boards(A=USUAL | {broke: {"fault": "lost", "replica": 1}}, B=USUAL), spread)
    assert timed(found, "A") == dict.fromkeys([broke, *others], 1)
    assert found["A", broke, 1].status is Status.FAILED
    assert "lost" in found["A", broke, 1].reason
    return found, broke, others


def test_the_cases_of_a_board_that_vanishes_are_measured_in_full_on_another_of_its_model(host):
    found, broke, others = lose_a(host, "each-model")
    assert timed(found, "B") == dict.fromkeys(set(CASES) - {broke}, 2)
    assert {one.status for key, one in found.items() if key != ("A", broke, 1)} == {Status.OK}
    assert host.said == [f"A is lost (the fake device A is lost): B measures {len(others)} of its cases"]


def test_the_cases_of_a_board_that_vanishes_fail_with_the_reason_where_every_board_measures_them(host):
    found, broke, others = lose_a(host, "each-device")
    assert timed(found, "B") == dict.fromkeys(CASES, 2)
    failed = {key: one for key, one in found.items() if one.status is Status.FAILED and key != ("A", broke, 1)}
    assert set(failed) == {("A", case, 1) for case in others}
    assert {one.reason for one in failed.values()} == {"the fake device A is lost"}
    assert all(one.cure for one in failed.values())


def on_two_boards(perfsvc, *arguments, code, **scripts):
    """Runs the suite from the command line on GPUs of one model; what it wrote for people."""
    devices = []
    for uuid, cases in scripts.items():
        (perfsvc.folder / f"{uuid}.json").write_text(json.dumps({"uuid": uuid, "cases": cases}))
        devices += ["--device", f"fake:{perfsvc.folder / uuid}.json"]
    suite = ("--suite", perfsvc.suites / "scale", "--points", "full", "--replicas", "2")
    return perfsvc("run", *devices, *suite, *arguments, code=code)


def stored(perfsvc, run, status="ok"):
    """The cases with that status in a run, by GPU, each with the number of its replicas."""
    rows = perfsvc.rows(
        "select m.run_id, m.status, d.uuid, c.variant, c.point from measurements m"
        " join devices d on d.id = m.device_id join cases c on c.id = m.case_id"
    )
    return Counter(tuple(case) for of_run, how, *case in rows if (of_run, how) == (run, status))


def test_cases_are_dealt_from_the_command_line_and_compared_with_the_night_before(perfsvc):
    for _ in range(2):
        on_two_boards(perfsvc, "--spread", "each-model", code=0, A=USUAL, B=USUAL)
    first, second = stored(perfsvc, 1), stored(perfsvc, 2)
    assert first == second
    assert sorted(first.values()) == [2] * len(CASES)
    assert {uuid for uuid, *_ in first} == {"A", "B"}
    assert perfsvc.rows("select distinct verdict from verdicts where run_id = 2 and ratio is not null") == [
        ("unchanged",)
    ]


def test_what_another_board_took_over_is_stored_under_that_board(perfsvc):
    on_two_boards(perfsvc, "--spread", "each-model", code=0, A=USUAL, B=USUAL)
    dealt = stored(perfsvc, 1)
    lost = USUAL | {"scale": {"fault": "lost"}}
    ended = on_two_boards(perfsvc, "--spread", "each-model", code=4, A=lost, B=USUAL)
    assert "A is lost" in ended.err
    ((board, *broke),) = stored(perfsvc, 2, "failed")
    assert board == "A"
    assert stored(perfsvc, 2) == {("B", *case): 2 for _, *case in dealt if case != broke}


@pytest.mark.slow
def test_a_second_run_waits_for_the_board_says_so_and_goes_on(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "hang"}})
    arguments = ("run", "--device", f"fake:{perfsvc.script}", "--suite", perfsvc.suites / "scale", "--replicas", "1")
    lock = perfsvc.folder / "locks" / "FAKE-0.lock"
    with perfsvc.start(*arguments) as first:
        while not (lock.exists() and lock.read_text()):
            time.sleep(0.05)
        with perfsvc.start(*arguments, "--select", "scale/alpha") as second:
            said = second.stderr.readline()
            while said and "in use" not in said:
                said = second.stderr.readline()
            assert f"FAKE-0 is in use by another perfsvc run (pid {first.pid}): waiting" in said
            first.kill()
            second.communicate(timeout=60)
            assert second.returncode == 0
    assert perfsvc.rows("select count(*) from measurements where run_id = 2 and status = 'ok'") == [(1,)]
