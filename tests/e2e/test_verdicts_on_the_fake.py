"""The whole way from the command line to the verdict, to exact numbers."""

import pytest

MICROSECOND = 1e-6
ALPHA = ("--select", "scale/alpha", "--replicas", "2")
CASES = [f"scale/{variant}[n=100]" for variant in ("alpha", "beta", "gamma")]


@pytest.fixture
def suite(perfsvc):
    return perfsvc.own("scale")


def verdicts(ended):
    return {row["case"]: row["verdict"] for row in ended.json["results"]}


def test_what_is_slower_with_the_same_code_is_shown_and_no_alarm(perfsvc):
    perfsvc.play({"*": {"seconds": 100 * MICROSECOND}})
    perfsvc.fake(code=0)
    perfsvc.play({"*": {"seconds": 100 * MICROSECOND}, "scale/beta": {"seconds": 105 * MICROSECOND}})
    ended = perfsvc.fake("--format", "json", "--strict", code=0)
    assert verdicts(ended) == {CASES[0]: "unchanged", CASES[1]: "regression", CASES[2]: "unchanged"}
    assert {row["cause"] for row in ended.json["results"]} == {None, "noise"}
    out = perfsvc("compare", "latest~1", "latest", code=0).out
    assert "\nnoise " in out
    assert out.endswith("\n0 regressions, 1 moved by noise, 0 improvements, 2 unchanged\n")


NOISY = {
    "*": {"seconds": 100 * MICROSECOND},
    "scale/gamma": {"seconds": [99 * MICROSECOND, 100 * MICROSECOND, 101 * MICROSECOND]},
}


def test_an_inconclusive_case_is_no_regression_but_strict_says_so(perfsvc, suite):
    perfsvc.play({"*": {"seconds": 100 * MICROSECOND}})
    perfsvc.fake(suite=suite, code=0)
    perfsvc.rebuild(suite)
    perfsvc.play(NOISY)
    ended = perfsvc.fake("--format", "json", suite=suite, code=0)
    assert verdicts(ended) == {CASES[0]: "unchanged", CASES[1]: "unchanged", CASES[2]: "inconclusive"}
    (reason,) = [row["verdict_reason"] for row in ended.json["results"] if row["case"] == CASES[2]]
    assert reason.endswith(" replicas on each side would settle it")
    perfsvc("compare", "1", "2", code=0)
    perfsvc("compare", "1", "2", "--strict", code=3)
    perfsvc.fake("--strict", suite=suite, code=3)


def test_an_unchanged_case_beside_a_large_change_says_why(perfsvc, suite):
    perfsvc.play(NOISY)
    perfsvc.fake(suite=suite, code=0)
    wild = [90 * MICROSECOND, 250 * MICROSECOND, 120 * MICROSECOND]
    perfsvc.play({"*": {"seconds": 100 * MICROSECOND}, "scale/gamma": {"seconds": wild}})
    beyond = "beyond the threshold of 1 %, but with the same code as in run 1, and too noisy to tell"
    why = f"unchanged scale/gamma[n=100]: {beyond}"
    for shown in (perfsvc.fake(suite=suite, code=0), perfsvc("compare", "1", "2", code=0)):
        marked = [line for line in shown.out.splitlines() if "unchanged same code" in line]
        assert [line.count("scale/gamma[n=100]") for line in marked] == [1]
        assert why in " ".join(shown.out.split())


def test_noise_of_unchanged_code_is_not_inconclusive(perfsvc, suite):
    perfsvc.play(NOISY)
    for _ in range(3):
        ended = perfsvc.fake("--format", "json", "--strict", suite=suite, code=0)
    assert verdicts(ended) == dict.fromkeys(CASES, "unchanged")
    noisy = next(row for row in ended.json["results"] if row["case"] == CASES[2])
    assert noisy["verdict_reason"].startswith("the same code as in 2 earlier runs; the times allow -")
    assert (noisy["baseline_run"], noisy["baseline_runs"], noisy["baseline_replicas"]) == (1, 2, 6)
    assert "against 2 runs since run 1" in perfsvc("report", code=0).out


def test_a_regression_stays_one_on_the_next_night(perfsvc, suite):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(*ALPHA, suite=suite, code=0)
    perfsvc.rebuild(suite)
    perfsvc.play({"*": {"seconds": 1.2e-4}})
    perfsvc.fake(*ALPHA, suite=suite, code=1)
    perfsvc.fake(*ALPHA, suite=suite, code=1)
    perfsvc("baseline", "set", "latest", code=0)
    perfsvc.fake(*ALPHA, suite=suite, code=0)
    perfsvc("baseline", "clear", code=0)
    perfsvc.fake(*ALPHA, suite=suite, code=1)


def test_the_threshold_decides_what_is_relevant(perfsvc, suite):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(*ALPHA, suite=suite, code=0)
    perfsvc.rebuild(suite)
    perfsvc.play({"*": {"seconds": 1.05e-4}})
    perfsvc.fake(*ALPHA, "--threshold", "0.1", suite=suite, code=0)
    perfsvc("compare", "1", "2", code=1)


def test_runs_have_names_and_a_run_that_is_not_there_is_a_usage_error_with_its_cure(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    for label in ("before", "after"):
        perfsvc.fake("--label", label, "--replicas", "2", code=0)
    for pair in (("before", "after"), ("latest~1", "after")):
        perfsvc("compare", *pair, code=0)
    for asked in ("latest~5", "no-such-label"):
        ended = perfsvc("compare", asked, "latest", code=2)
        assert asked in ended.err
        assert "cure:" in ended.err


def test_the_order_differs_between_replicas_and_repeats_with_the_seed(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    arguments = ("--points", "full", "--replicas", "4", "--seed", "3")
    perfsvc.fake(*arguments, code=0)
    perfsvc.fake(*arguments, code=0)
    rows = perfsvc.rows("select run_id, replica, case_id from measurements order by id")
    orders = {(run, replica): [] for run, replica, _ in rows}
    for run, replica, case in rows:
        orders[run, replica].append(case)
    assert len({tuple(orders[1, replica]) for replica in range(4)}) > 1
    assert [orders[1, r] for r in range(4)] == [orders[2, r] for r in range(4)]
