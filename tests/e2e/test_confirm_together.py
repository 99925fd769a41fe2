"""Many suspects share the processes of their A/B pairs, and GPUs of one model share an answer."""

import functools
import json
import re
import time
from types import SimpleNamespace

import pytest

from perfsvc.measure.host import device_queue
from perfsvc.measure.host.worker_handle import WorkerHandle
from perfsvc.measure.plan import order
from perfsvc.store.verdicts import ConfirmationStore

USUAL_S = 1e-4
NOISY_S = [1.1e-4, 1.1e-4, 1.2e-4, 1.02e-4, 1.05e-4, 1.15e-4] * 4
"""The seconds of a case that is surely slower in the two replicas of a run, and noisy in its A/B pairs."""
SLOW_S = 1.05e-4
VARIANTS = ("alpha", "beta", "gamma")
CASES = [f"scale/{variant}[n={n}]" for variant in VARIANTS for n in (1000, 4000)]
FULL = ("--points", "full", "--replicas", "2")


class Workers:
    """The worker processes that commands start, each with its device and the (case, side) that it was sent in order."""

    def __init__(self):
        self.started = []
        self.old = frozenset()

    def clear(self, old=frozenset()):
        """Forget all workers; ``old`` are the digests of old binaries."""
        self.started.clear()
        self.old = old

    def open(self, device):
        self.started.append(SimpleNamespace(device=device.uuid, sent=[]))

    def send(self, task):
        side = "old" if self.old.intersection(task.record.modules) else "new"
        self.started[-1 if len({worker.device for worker in self.started}) == 1 else self._of(task)].sent.append(
            (task.record.case.id, side)
        )

    def _of(self, task):
        return max(number for number, worker in enumerate(self.started) if worker.device == task.device)

    def on(self, device):
        return [worker for worker in self.started if worker.device == device]

    @property
    def sides(self):
        """The side of each worker: o for old, n for new, or no if it was sent both."""
        return ["".join(sorted({side[0] for _, side in worker.sent})) for worker in self.started]


@pytest.fixture
def workers(monkeypatch):
    seen = Workers()

    class Watched(WorkerHandle):
        def open(self, device, helper_kernels, *, programs):
            seen.open(device)
            return super().open(device, helper_kernels, programs=programs)

        def send(self, task, *arguments):
            seen.send(task)
            return super().send(task, *arguments)

    monkeypatch.setattr(device_queue, "WorkerHandle", Watched)
    return seen


class Gpus:
    """Fake GPUs, and a suite in the folder of a workplace."""

    def __init__(self, perfsvc, *names, model="Fake GPU"):
        self.perfsvc, self.names, self.model = perfsvc, names, model
        self.suite = perfsvc.folder / "scale"

    def begin(self):
        """Measure the suite once; the second commit changes all its binaries."""
        self.perfsvc.own("scale")
        self.play({"*": {"seconds": USUAL_S}})
        self.run(*FULL, code=0)
        self.perfsvc.rebuild(self.suite)

    @functools.cached_property
    def old(self):
        """The binaries of the first run."""
        return frozenset(self.perfsvc.modules().values())

    def play(self, cases, **by_name):
        """Script the GPUs: all alike, or some of them in another way."""
        for name in self.names:
            script = {"uuid": name, "model": self.model.format(name), "cases": by_name.get(name, cases)}
            (self.perfsvc.folder / f"{name}.json").write_text(json.dumps(script))

    def slower(self, seconds=SLOW_S, old=USUAL_S, **cases):
        """Return a script in which old binaries keep their times, and new ones are slower."""
        return {"*": {"seconds": seconds}, **{sha256: {"seconds": old} for sha256 in self.old}, **cases}

    @property
    def devices(self):
        return [word for name in self.names for word in ("--device", f"fake:{self.perfsvc.folder / name}.json")]

    def run(self, *arguments, code=None):
        return self.perfsvc("run", *self.devices, "--suite", self.suite, *arguments, code=code)

    def confirm(self, *arguments, code=None):
        """Run the suite with ``--confirm``; return the confirmations by case, device and what was printed."""
        ended = self.run(*FULL, "--confirm", "--format", "json", *arguments, code=code)
        found = {(one["case"], one["device"]): one for one in ended.json["confirmations"]}
        return found, ended

    def confirm_case(self, case, *arguments, code=None):
        """Measure a case of the latest run again on all GPUs; return the confirmations by device."""
        ended = self.perfsvc("confirm", case, *self.devices, "--format", "json", *arguments, code=code)
        return {one["device"]: one for one in ended.json}, ended


def measure(perfsvc):
    Gpus(perfsvc, "A").begin()


@pytest.fixture
def gpu(prepared, workers):
    """A fake GPU whose six cases were measured once."""
    return Gpus(prepared(measure), "A")


def test_a_process_runs_all_cases_of_a_side_in_one_order_and_the_sides_alternate(gpu, workers):
    sides, orders = set(), set()
    for seed in range(3):
        gpu.play(gpu.slower(SLOW_S * (1 + seed / 1000)))  # else the answer of the first run holds for the others
        workers.clear(gpu.old)
        found, _ = gpu.confirm("--seed", str(seed), code=1)
        assert {case for case, _ in found} == set(CASES)
        assert {(one["cause"], one["pairs"], one["looks"]) for one in found.values()} == {("kernel", 3, 1)}
        again = workers.started[2:]  # two replicas of the run came first
        assert [sorted(case for case, _ in worker.sent) for worker in again] == [sorted(CASES)] * 6
        words = "".join(workers.sides[2:])
        assert re.fullmatch("(onno|noon)(on|no)", words)
        sides.add(words)
        for first, second in zip(again[::2], again[1::2], strict=True):
            assert [case for case, _ in first.sent] == [case for case, _ in second.sent]
            orders.add(tuple(case for case, _ in first.sent))
    assert len(sides) > 1
    assert len(orders) > 4


def test_a_decided_suspect_is_not_measured_again_and_a_noisy_suspect_is(gpu, workers):
    gpu.play(gpu.slower(**{"scale/beta[n=1000]": {"seconds": NOISY_S}}))
    workers.clear(gpu.old)
    found, _ = gpu.confirm("--seed", "2", code=1)
    pairs = {case: one["pairs"] for (case, _), one in found.items()}
    assert pairs.pop("scale/beta[n=1000]") > 3
    assert set(pairs.values()) == {3}
    later = workers.started[2 + 6 :]
    assert {case for worker in later for case, _ in worker.sent} == {"scale/beta[n=1000]"}


@pytest.mark.parametrize("fault", ["crash", "wrong"])
def test_a_faulty_binary_costs_only_its_own_suspect(gpu, workers, fault):
    gpu.play(gpu.slower(**{gpu.perfsvc.modules()["beta"]: {"fault": fault}}))
    workers.clear(gpu.old)
    found, _ = gpu.confirm(code=1)
    bad = {case for (case, _), one in found.items() if one["cause"] == "unconfirmed"}
    assert bad == {"scale/beta[n=1000]", "scale/beta[n=4000]"}
    assert all(found[case, "A"]["reason"].startswith("the baseline's binary has no correct result") for case in bad)
    assert {one["cause"] for (case, _), one in found.items() if case not in bad} == {"kernel"}
    assert len(workers.started) <= 2 + 6 + len(bad)


# --- the budget ------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow_clock(monkeypatch):
    """Let each case that a worker is sent take ten seconds by the clock of the queues."""
    passed = SimpleNamespace(s=0.0)
    send = device_queue.WorkerHandle.send

    def slowly(self, *arguments):
        passed.s += 10.0
        return send(self, *arguments)

    monkeypatch.setattr(device_queue.WorkerHandle, "send", slowly)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed.s)
    monkeypatch.setattr(device_queue, "time", clock)


def test_the_largest_changes_come_first_and_the_next_run_measures_what_did_not_fit(
    gpu, workers, slow_clock, monkeypatch
):
    gpu.play(gpu.slower())
    found, ended = gpu.confirm("--confirm-budget", "0.001s", code=1)
    assert found == {}
    assert "6 suspects were not measured again: the budget of 0.001 s ended" in ended.err
    assert gpu.perfsvc.rows("select count(*) from confirmations") == [(0,)]
    monkeypatch.setattr(order, "GROUP", 2)
    by_size = {
        case: {"seconds": USUAL_S * (1.05 + 0.05 * number), "between": 5e-4} for number, case in enumerate(CASES)
    }
    gpu.play({**gpu.slower(), **by_size})
    found, ended = gpu.confirm("--confirm-budget", "245s", code=1)
    assert {case for case, _ in found} == set(CASES[2:])
    assert {one["cause"] for one in found.values()} == {"kernel"}
    message = "2 suspects were not measured again: the budget of 245 s ended; they are suspects again the next night"
    assert message in ended.err
    found, ended = gpu.confirm("--confirm-budget", "1h", code=1)
    measured = {case for (case, _), one in found.items() if one["pairs"]}
    assert measured == set(CASES[:2])
    assert "not measured again" not in ended.err


def test_a_suspect_whose_budget_ends_between_two_looks_keeps_what_it_has(gpu, workers, slow_clock):
    gpu.play(gpu.slower(**{CASES[0]: {"seconds": NOISY_S}}))
    gpu.run(*FULL, code=1)
    found, _ = gpu.confirm_case(CASES[0], "--budget", "75s", "--seed", "2", code=0)
    assert (found["A"]["cause"], found["A"]["pairs"], found["A"]["looks"]) == ("unconfirmed", 4, 2)
    assert found["A"]["reason"].endswith("; the budget of 75 s ended after 4 pairs")


# --- stops and resumptions -------------------------------------------------------------------------------------------


def test_each_confirmation_is_stored_as_soon_as_it_is_decided(gpu, workers, monkeypatch):
    put = ConfirmationStore.put
    stored = []

    def killed(self, confirmation):
        if len(stored) == 2:
            raise KeyboardInterrupt
        stored.append(confirmation.suspect.series.case.id)
        put(self, confirmation)

    monkeypatch.setattr(order, "GROUP", 2)
    gpu.play(gpu.slower())
    workers.clear(gpu.old)
    with monkeypatch.context() as patch:
        patch.setattr(ConfirmationStore, "put", killed)
        assert gpu.run(*FULL, "--confirm").code == 130
    assert len(workers.started) == 2 + 6 + 6  # two replicas, the group of two, and the group that was killed
    assert gpu.perfsvc.rows("select count(*) from confirmations where cause = 'kernel'") == [(2,)]


# --- several GPUs of one model ---------------------------------------------------------------------------------------

CASE = "scale/beta[n=1000]"
NAMES = ("A", "B", "C", "D")


def measure_four(perfsvc):
    """Measure on four GPUs of one model; in run 2 one case is slower on all of them, most of all on C."""
    four = Gpus(perfsvc, *NAMES)
    four.begin()
    only = {CASE: {"seconds": SLOW_S}, "*": {"seconds": USUAL_S}}
    four.play(only, C=only | {CASE: {"seconds": 1.08e-4}})
    four.run(*FULL, code=1)


@pytest.fixture
def gpus(prepared, workers):
    """Four fake GPUs, and workers that know which binaries are old."""
    four = Gpus(prepared(measure_four), *NAMES)
    workers.clear(four.old)
    return four


def processes(workers):
    return {name: len(workers.on(name)) for name in NAMES}


def test_gpus_that_agree_share_an_answer(gpus, workers):
    gpus.play(gpus.slower())
    found, _ = gpus.confirm_case(CASE, code=1)
    assert processes(workers) == {"A": 2, "B": 0, "C": 6, "D": 0}
    assert {name: one["pairs"] for name, one in found.items()} == {"A": 1, "B": 0, "C": 3, "D": 0}
    slower = "measured in A/B pairs, its code is 5.0 % slower than the baseline's"
    assert found.pop("C")["reason"] == slower
    assert {one["reason"] for one in found.values()} == {f"{slower}, as on C, and checked on A with one pair"}
    assert {(one["cause"], one["verdict"], one["looks"]) for one in found.values()} == {("kernel", "regression", 1)}
    assert all(one["ratio"] == pytest.approx(1.05) for one in found.values())


@pytest.mark.parametrize("ratio", [0.95, 1.2])
def test_gpus_that_disagree_are_all_measured(gpus, workers, ratio):
    gpus.play(gpus.slower(), A=gpus.slower(seconds=USUAL_S * ratio))
    found, _ = gpus.confirm_case(CASE, code=1)
    assert processes(workers) == {"A": 2 + 6, "B": 6, "C": 6, "D": 6}
    assert {name: one["pairs"] for name, one in found.items()} == dict.fromkeys(NAMES, 3)
    assert {name for name, one in found.items() if one["cause"] == "kernel"} == set("BCD") | set("A" * (ratio > 1))
    assert not any("with one pair" in one["reason"] for one in found.values())


def test_chance_on_one_gpu_is_no_answer_for_the_others(gpus, workers):
    gpus.play({"*": {"seconds": USUAL_S}}, D=gpus.slower())
    found, _ = gpus.confirm_case(CASE, code=1)
    assert {name: one["pairs"] for name, one in found.items()} == dict.fromkeys(NAMES, 3)
    assert {name: one["cause"] for name, one in found.items()} == dict.fromkeys("ABC", "noise") | {"D": "kernel"}


def test_a_check_that_fails_is_no_check(gpus, workers):
    gpus.play(gpus.slower(), A=gpus.slower(**{CASE: {"fault": "wrong"}}))
    found, _ = gpus.confirm_case(CASE, code=4)
    assert {name: one["cause"] for name, one in found.items()} == dict.fromkeys("BCD", "kernel") | {"A": "unconfirmed"}
    assert found["B"]["pairs"] == found["D"]["pairs"] == 3


def test_gpus_of_other_models_share_no_answer(perfsvc):
    gpus = Gpus(perfsvc, "A", "B", model="Fake {}")
    gpus.begin()
    gpus.play(gpus.slower())
    found, _ = gpus.confirm(code=1)
    assert len(found) == 2 * len(CASES)
    assert {one["pairs"] for one in found.values()} == {3}


def test_a_lost_gpu_costs_its_own_suspects_and_other_gpus_are_measured(gpus, workers):
    lost = gpus.slower(seconds=1.2e-4, **{gpus.perfsvc.modules()["beta"]: {"fault": "lost"}})
    gpus.play(gpus.slower(), C=lost)
    found, ended = gpus.confirm(code=1)
    assert {(case, name) for (case, name), one in found.items() if one["cause"] == "kernel" and name != "C"} == {
        (case, name) for case in CASES for name in "ABD"
    }
    assert {name for (_, name), one in found.items() if one["cause"] != "kernel"} == {"C"}
    assert "the suspects of C are not measured again: the fake device C is lost" in ended.err
    assert "budget" not in ended.err
