"""Text that no output can take as it is: NUL, lone surrogates, and characters that the terminal's encoding lacks."""

import shutil

import pytest

from tests.e2e.stored_text import fill, replace_texts, stored

SURROGATE = "\udcff lone, é, ✓, 数 "

BENCH = '''
"""A host variant whose metric has a hostile name, and one that is as it should be."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output


def odd(arrays, stream):
    arrays["out"][0] = 1
    return {"latency\\0ms": 1.0}


def good(arrays, stream):
    arrays["out"][0] = 1
    return {"latency_ms": 1.0}


benchmark = Benchmark(
    axes={"n": (8,)},
    smoke={"n": 8},
    inputs=lambda rng, n: {},
    outputs={"out": output("float32", 1)},
    reference=lambda: 1.0,
    tolerance=Tolerance(max=0, mean=0),
    work=lambda n: Work(written_bytes=4),
    variants=[Variant("odd", kind="host", run=odd), Variant("good", kind="host", run=good)],
)
'''


@pytest.fixture(params=["sqlite", "postgresql"])
def on_each_database(request, perfsvc):
    if request.param == "sqlite":
        yield perfsvc
        return
    databases = request.getfixturevalue("databases")
    name = databases.create(request.getfixturevalue("template_postgresql"))
    perfsvc.environment["PERFSVC_DB"] = databases.url(name)
    yield perfsvc
    databases.drop(name)


@pytest.mark.slow
def test_a_metric_with_nul_in_its_name_fails_its_case_alone(on_each_database, tmp_path):
    workplace = on_each_database
    (tmp_path / "odd" / "odd").mkdir(parents=True)
    (tmp_path / "odd" / "odd" / "bench.py").write_text(BENCH)
    ended = workplace("run", "--device", "cpu", "--suite", tmp_path / "odd", "--format", "json", code=4)
    rows = {row["case"].partition("[")[0]: row for row in ended.json["results"]}
    assert rows["odd/odd"]["status"] == "failed"
    assert "the metric name 'latency\\x00ms' is empty, too long, or has characters" in rows["odd/odd"]["reason"]
    assert rows["odd/odd"]["cure"] == "rename the metric"
    assert rows["odd/good"]["status"] == "ok"
    stored_rows = workplace("report", "--format", "json", code=0).json
    assert {row["status"] for row in stored_rows} == {"failed", "ok"}


@pytest.fixture(scope="module")
def odd(new_workplace):
    """A workplace with odd texts in all fields, and its case."""
    workplace = new_workplace()
    fill(workplace.database)
    replace_texts(workplace.database, lambda text: stored(f"{SURROGATE}{text}"))
    ((case,),) = workplace.rows("SELECT name FROM cases WHERE variant LIKE '%shared'")
    shutil.copytree(workplace.suites / "scale", workplace.folder / "scale")
    return workplace, case


COMMANDS = {
    "report": (),
    "show": (),
    "compare": ("1", "3"),
    "findings": (),
    "findings show": ("3",),
    "runs": (),
    "check": ("--suite", "scale", "--arch", "sm_90"),
    "list": ("--suite", "scale"),
    "doctor": (),
    "config show": (),
    "expect": (),
    "baseline show": (),
}


def process(workplace, encoding, *arguments):
    """Run a command in a process whose standard streams have an encoding; return its exit code and what it wrote."""
    workplace.environment["PYTHONIOENCODING"] = encoding
    with workplace.start(*arguments, encoding=encoding) as started:
        out, err = started.communicate(timeout=100)
    assert "Traceback" not in err
    return started.returncode, out


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_fails_for_an_encoding(odd, command, encoding):
    workplace, case = odd
    arguments = (case,) if command == "show" else COMMANDS[command]
    ended = workplace(*command.split(), *arguments, encoding=encoding)
    assert "Traceback" not in ended.err
    assert ended.code in ({0, 5} if command == "doctor" else {0, 1, 4})
    assert ended.out


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_lone_surrogate_in_a_reason_is_stored_and_shown(perfsvc, encoding):
    fill(perfsvc.database)
    reason = "\udcff the GPU was shared ✓"
    assert process(perfsvc, encoding, "runs", "exclude", "2", "--reason", reason)[0] == 0
    assert "the GPU was shared" in process(perfsvc, encoding, "runs", "history")[1]
    shown = perfsvc("runs", "history", "--format", "json", code=0).json
    assert shown[-1]["reason"] == stored(reason)
    assert process(perfsvc, encoding, "show", "\udcff/\ud7ff[✓]")[0] == 2
