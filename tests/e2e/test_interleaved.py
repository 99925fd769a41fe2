"""``perfsvc compare --interleaved``: two git revisions, measured in A/B pairs without a database."""

import sys
from xml.etree import ElementTree as ET

import pytest

from tests.e2e.history import CASE, History


@pytest.fixture
def history(perfsvc):
    return History(perfsvc)


def verdicts(compared):
    return {row["case"]: (row["verdict"], row["cause"]) for row in compared["verdicts"]}


def change(history, old, new):
    text = history.bench.read_text()
    assert old in text
    history.bench.write_text(text.replace(old, new))


def test_revisions_are_written_to_files_and_nothing_is_stored_or_left_in_the_repository(history):
    history.line("aBb")
    files = ("--output", "compare.html", "--output", "compare.md", "--output", "junit=c.xml")
    history.compare("HEAD~2", "HEAD~1", *files, form="table", code=1)
    page, text, junit = (
        (history.perfsvc.folder / name).read_text() for name in ("compare.html", "compare.md", "c.xml")
    )
    assert "<h1>HEAD~1 against HEAD~2</h1>" in page
    assert "| **regression** | `scale/beta[n=100]` | +5.0 % |" in text
    assert ET.fromstring(junit).find(f"testsuite/testcase[@name='{CASE}']/failure") is not None  # noqa: S314 - our own
    assert not history.perfsvc.database.exists()
    assert history.untouched()
    assert verdicts(history.compare("HEAD~1", code=0))[CASE] == ("improvement", "kernel")


def test_the_same_code_is_unchanged_and_is_not_measured(history):
    history.line("a.")
    history.perfsvc.play({"*": {"fault": "refused"}})
    compared = history.compare("HEAD~1", code=0)
    assert set(verdicts(compared).values()) == {("unchanged", None)}
    change(history, "benchmark = Benchmark(", "# a remark\nbenchmark = Benchmark(")
    history.commit("a remark")
    table = history.compare("HEAD~2", code=0, form="table").out
    assert table == "3 cases have the same code at both revisions: unchanged, and are not measured.\n"


def test_other_inputs_are_measured_and_a_new_version_is_new_and_not_missing(history):
    history.line("a")
    change(history, "rng.standard_normal(n, dtype=np.float32)", "rng.random(n, dtype=np.float32)")
    history.commit("other inputs")
    rows = history.compare("HEAD~1", code=0)["verdicts"]
    assert [(row["verdict"], row["baseline_replicas"]) for row in rows] == [("unchanged", 3)] * 3
    change(history, "benchmark = Benchmark(", "benchmark = Benchmark(version=2, ")
    history.commit("another problem")
    compared = history.compare("HEAD~1", code=0)
    assert {verdict for verdict, _ in verdicts(compared).values()} == {"new"}


def test_a_changed_launch_is_the_cause(history):
    history.source.write_text(LOOP)
    change(history, 'args=("out", "a", "n")', 'args=("out", "a", "n", i32(1))')
    change(history, "ceil_div, output", "ceil_div, i32, output")
    history.commit("one round")
    change(history, "i32(1)", "i32(40000)")
    history.commit("many rounds")
    places = ("--suite", history.suite, "--device", "cpu", "--select", "scale/alpha", "--format", "json")
    compared = history.perfsvc("compare", "--interleaved", "HEAD~1", "HEAD", *places, code=1).json
    assert verdicts(compared) == {"scale/alpha[n=100]": ("regression", "launch")}


LOOP = """
extern "C" __global__ void scale(float *out, const float *a, int n, int rounds) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; ++round) {
        if (i < n) {
            reinterpret_cast<volatile float *>(out)[i] = 2 * a[i];
        }
    }
}
"""


def test_a_new_case_is_run_once_a_wrong_one_is_broken_and_one_that_is_gone_is_missing(history):
    history.line("a")
    change(history, 'variant("alpha")', 'variant("alpha"), variant("delta", params={"REPEAT": 3})')
    history.commit("a new variant")
    compared = history.compare("HEAD~1", code=0)
    assert verdicts(compared)["scale/delta[n=100]"] == ("new", None)
    history.times[history.binary("scale/delta[n=100]")] = {"seconds": 1e-4, "fault": "wrong"}
    history.perfsvc.play(history.times)
    compared = history.compare("HEAD~1", code=4)
    assert verdicts(compared)["scale/delta[n=100]"] == ("broken", None)
    change(history, 'variant("alpha"), variant("delta", params={"REPEAT": 3}), ', "")
    change(history, 'variant("gamma"', 'variant("omega", formerly="gamma"')
    history.commit("one less, one renamed")
    compared = history.compare("HEAD~2", code=4)  # which had no delta
    assert verdicts(compared) == {
        "scale/alpha[n=100]": ("missing", None),
        "scale/beta[n=100]": ("unchanged", None),
        "scale/omega[n=100]": ("unchanged", None),
    }


def test_a_source_that_does_not_compile_is_broken_and_a_broken_base_is_no_baseline(history):
    history.line("a")
    history.source.rename(history.source.with_suffix(".txt"))
    history.commit("no source")
    broken = history.compare("HEAD~1", code=4, form="table")
    assert "no source file 'scale.cu'" in broken.err
    assert str(history.suite) in broken.err
    assert "perfsvc-tmp" not in broken.err
    repaired = history.compare("HEAD", "HEAD~1", code=0)
    assert {verdict for verdict, _ in verdicts(repaired).values()} == {"new"}


def test_python_functions_run_with_the_modules_of_their_revision(history, monkeypatch):
    package = history.root / "library"
    (package / "mine").mkdir(parents=True)
    (package / "mine" / "__init__.py").write_text("")
    (package / "mine" / "numbers.py").write_text("FACTOR = 2.0\n")
    monkeypatch.setenv("PYTHONPATH", str(package))
    monkeypatch.setattr(sys, "path", [*sys.path, str(package)])
    (history.suite / "scale" / "bench.py").write_text(PYTHON_BENCH)
    history.commit("right")
    (package / "mine" / "numbers.py").write_text("FACTOR = 3.0\n")
    history.commit("wrong")
    places = ("HEAD~1", "HEAD", "--suite", history.suite, "--device", "cpu", "--format", "json")
    compared = history.perfsvc("compare", "--interleaved", *places, code=4).json
    assert verdicts(compared) == {"scale/host[n=100]": ("broken", None)}
    (package / "mine" / "numbers.py").write_text("FACTOR = 2.0  # of two\n")
    history.commit("right again")
    repaired = history.perfsvc("compare", "--interleaved", *places).json
    assert verdicts(repaired) == {"scale/host[n=100]": ("new", None)}


PYTHON_BENCH = """
import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, output


def scale(arrays, stream):
    from mine.numbers import FACTOR

    arrays["out"][...] = FACTOR * arrays["a"]


benchmark = Benchmark(
    axes={"n": (1000,)},
    smoke={"n": 100},
    inputs=lambda rng, n: {"a": rng.standard_normal(n, dtype=np.float32)},
    outputs={"out": output("float32", lambda n: n)},
    reference=lambda a: 2.0 * a,
    tolerance=Tolerance(max=1e-6, mean=1e-6),
    variants=[Variant("host", run=scale)],
)
"""


def test_a_mistake_is_named_and_without_time_the_cases_are_over_budget(history):
    history.line("ab")
    for says, arguments in {
        "are the same commit": ("--interleaved", "HEAD", "HEAD"),
        "'absent' is no revision": ("--interleaved", "absent", "HEAD"),
        "selects no case": ("--interleaved", "HEAD~1", "HEAD", "--select", "absent"),
        "--budget needs --interleaved": ("HEAD~1", "HEAD", "--budget", "1s"),
        "--points needs --interleaved": ("HEAD~1", "HEAD", "--points", "full"),
    }.items():
        places = ("--suite", history.suite, "--device", history.device)
        assert says in history.perfsvc("compare", *arguments, *places, code=2).err
    compared = history.compare("HEAD~1", "HEAD", "--budget", "0.001s")
    assert (compared["verdicts"], len(compared["over_budget"])) == ([], 3)
