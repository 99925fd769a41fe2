"""Several GPUs: they measure at once, share the cases or not, get lost, or are in use."""

import json
import time
from collections import Counter

USUAL = {"*": {"seconds": 1e-4}}
CASES = [f"scale/{name}[n={n}]" for name in ("alpha", "beta", "gamma") for n in (1000, 4000)]


def on_two_devices(perfsvc, *arguments, code, **scripts):
    """Run the suite from the command line on GPUs of one model."""
    devices = []
    for uuid, cases in scripts.items():
        (perfsvc.folder / f"{uuid}.json").write_text(json.dumps({"uuid": uuid, "cases": cases}))
        devices += ["--device", f"fake:{perfsvc.folder / uuid}.json"]
    suite = ("--suite", perfsvc.suites / "scale", "--points", "full", "--replicas", "2")
    return perfsvc("run", *devices, *suite, *arguments, code=code)


def stored(perfsvc, run, status="ok"):
    """Return the cases with this status in a run, by device, with the number of their replicas."""
    rows = perfsvc.rows(
        "select m.run_id, m.status, d.uuid, c.variant, c.point from measurements m"
        " join devices d on d.id = m.device_id join cases c on c.id = m.case_id"
    )
    return Counter(tuple(case) for of_run, how, *case in rows if (of_run, how) == (run, status))


def test_cases_are_divided_as_in_the_run_before_and_those_of_a_lost_gpu_are_stored_under_another(perfsvc):
    for _ in range(2):
        on_two_devices(perfsvc, "--spread", "each-model", code=0, A=USUAL, B=USUAL)
    first, second = stored(perfsvc, 1), stored(perfsvc, 2)
    assert first == second
    assert sorted(first.values()) == [2] * len(CASES)
    assert {uuid for uuid, *_ in first} == {"A", "B"}
    query = "select distinct verdict from levels where run_id = 2 and ratio is not null"
    assert perfsvc.rows(query) == [("unchanged",)]
    lost = USUAL | {"scale": {"fault": "lost"}}
    ended = on_two_devices(perfsvc, "--spread", "each-model", code=4, A=lost, B=USUAL)
    assert "A is lost" in ended.err
    ((uuid, *broke),) = stored(perfsvc, 3, "failed")
    assert uuid == "A"
    assert stored(perfsvc, 3) == {("B", *case): 2 for _, *case in first if case != broke}


def test_a_second_run_reports_that_it_waits_for_the_device_and_then_continues(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "hang"}})
    arguments = ("run", "--device", f"fake:{perfsvc.script}", "--suite", perfsvc.suites / "scale", "--replicas", "1")
    lock = perfsvc.folder / "locks" / "FAKE-0.lock"
    with perfsvc.start(*arguments) as first:
        while not (lock.exists() and lock.read_text()):
            time.sleep(0.05)
        with perfsvc.start(*arguments, "--select", "scale/alpha") as second:
            line = second.stderr.readline()
            while line and "in use" not in line:
                line = second.stderr.readline()
            assert f"FAKE-0 is in use by another perfsvc run (pid {first.pid}): waiting" in line
            first.kill()
            second.communicate(timeout=60)
            assert second.returncode == 0
    assert perfsvc.rows("select count(*) from measurements where run_id = 2 and status = 'ok'") == [(1,)]
