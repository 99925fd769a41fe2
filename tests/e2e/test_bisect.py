"""``perfsvc bisect`` on git histories of a suite with scripted times."""

import shutil
import time

import pytest

from tests.e2e.history import CASE, SLOW, USUAL, History


@pytest.fixture
def history(perfsvc):
    return History(perfsvc)


def subjects(found):
    return [commit["subject"] for commit in found["culprits"]]


def test_commits_that_do_not_touch_the_case_are_neither_built_nor_measured(history):
    history.line("a...b.....C....D..")
    found = history.bisect(good="HEAD~17", code=1)
    assert subjects(found) == ["commit 10"]
    assert found["culprits"][0]["hash"] == history.git("rev-parse", "HEAD~7")
    assert (found["commits"], found["builds"], found["codes"]) == (17, 4, 4)


def test_skipped_commits_that_may_hide_the_culprit_are_named(history):
    history.line("ab")
    history.bench.write_text("benchmark = nothing\n")
    history.commit("a slip")
    shutil.rmtree(history.suite)
    history.commit("moved away")
    history.git("checkout", "-q", "HEAD~2", "--", ".")
    history.commit("back, and slow", "c", SLOW)
    found = history.bisect(good="HEAD~4", code=1)
    assert subjects(found) == ["a slip", "moved away", "back, and slow"]
    assert found["proof"]["before"] == history.git("rev-parse", "HEAD~3")
    assert [skipped["reason"] for skipped in found["skipped"]] == [
        "gpu/kernels/scale/bench.py:1: reading it raised NameError: name 'nothing' is not defined",
        "no folder gpu/kernels",
    ]
    assert not found["proven"]


def test_commits_without_the_case_are_skipped_and_former_names_are_followed(history):
    history.bench.write_text(history.bench.read_text().replace('"beta"', '"old"'))
    history.commit("good", "a", None)
    history.times[history.binary("scale/old[n=100]")] = USUAL
    history.bench.write_text(history.bench.read_text().replace('"old"', '"other"'))
    history.commit("gone for a while")
    history.bench.write_text(history.bench.read_text().replace('"other"', '"beta", formerly="old"'))
    history.commit("renamed", "b", USUAL)
    history.commit("slow", "c", SLOW)
    found = history.bisect(good="HEAD~3", code=1)
    assert subjects(found) == ["slow"]
    assert [skipped["subject"] for skipped in found["skipped"]] == ["gone for a while"]


def test_a_change_of_the_benchmark_file_is_reported(history):
    history.line("a")
    history.bench.write_text(history.bench.read_text().replace('{"REPEAT": 1}', '{"REPEAT": 4}'))
    history.commit("more of it", "a", SLOW)
    found = history.bisect(good="HEAD~1", code=1)
    assert found["changed"] == ["binary", "benchmark file"]
    assert found["files"] == ["gpu/kernels/scale/bench.py"]


def test_a_header_beside_the_suite_belongs_to_the_case(history):
    header = history.root / "gpu" / "shared" / "tile.cuh"
    header.parent.mkdir()
    kernel = '#include "../../shared/tile.cuh"\n' + history.source.read_text()
    for text, times in (("a", USUAL), ("b", USUAL), ("c", SLOW), ("d", SLOW)):
        header.write_text(f"// {text}\n")
        history.source.write_text(kernel)
        history.commit(f"header {text}", "", times)
    found = history.bisect(good="HEAD~3", code=1)
    assert (subjects(found), found["files"]) == (["header c"], ["gpu/shared/tile.cuh"])


def test_a_branch_is_searched_and_its_merge_is_blamed_only_if_the_branch_began_before_the_good_commit(history):
    history.line("ab")
    history.git("checkout", "-q", "-b", "side")
    history.line("S")
    history.commit("on it goes", "T", SLOW)
    history.git("checkout", "-q", "main")
    (history.root / "NEWS").write_text("news")
    meanwhile = history.commit("meanwhile")
    history.git("merge", "-q", "--no-ff", "-m", "merge side", "side")
    assert subjects(history.bisect(good="HEAD~3", code=1)) == ["commit 0"]
    assert subjects(history.bisect(good=meanwhile, code=1)) == ["merge side"]


def test_an_end_that_did_not_move_or_is_faster_is_no_regression_and_no_code_is_measured_twice(history):
    history.line("abBa")
    found = history.bisect(good="HEAD~2", code=0)
    assert (found["verdict"], found["culprits"]) == ("unchanged", [])
    assert found["reason"].startswith("the case did not move")
    found = history.bisect(good="HEAD~3", code=0)
    assert (found["verdict"], found["trials"]) == ("unchanged", [])
    history.commit("fast", "f", {"seconds": 0.9e-4})
    found = history.bisect(good="HEAD~1", code=0)
    assert (subjects(found), found["verdict"]) == (["fast"], "improvement")


def test_noise_that_hides_the_difference_is_inconclusive(history):
    history.line("ab")
    wild = [1e-4, 1.3e-4, 0.8e-4, 1.1e-4, 1.4e-4, 0.9e-4, 1.2e-4] * 4
    history.commit("wild", "c", {"seconds": wild})
    found = history.bisect("--seed", "1", good="HEAD~2", code=3)
    assert (found["verdict"], found["culprits"]) == ("inconclusive", [])
    assert found["trials"][0]["pairs"] == 12


def test_a_dirty_checkout_is_left_as_it_is(history):
    history.line("aBB")
    history.source.write_text("being edited")
    (history.root / "new").write_text("untracked")
    before = history.git("status", "--porcelain")
    history.bisect(good="HEAD~2", code=1)
    assert history.untouched()
    assert history.source.read_text() == "being edited"
    assert history.git("status", "--porcelain") == before
    assert history.git("symbolic-ref", "--short", "HEAD") == "main"


def test_an_interrupted_search_leaves_nothing_behind(history, monkeypatch):
    history.line("aB")

    def interrupt(*_, **_options):
        assert not history.untouched()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("perfsvc.service.bisect.builds.compile_units", interrupt)
        history.bisect(good="HEAD~1", code=130)
    assert history.untouched()
    history.commit("hangs", "h", {"fault": "hang"})
    device = f"fake:{history.perfsvc.script}"
    process = history.perfsvc.start("bisect", CASE, "--good", "HEAD~1", "--suite", history.suite, "--device", device)
    with process:
        for line in process.stderr:
            if line.startswith("measuring"):
                break
        time.sleep(0.5)
        process.send_signal(2)
        assert process.wait(timeout=60) == 130
    assert history.untouched()


def test_what_cannot_be_searched_is_a_usage_error(history):
    shutil.copytree(history.perfsvc.suites / "kinds" / "kinds", history.suite / "kinds")
    history.line("ab")
    history.git("branch", "start", "HEAD~1")
    history.git("checkout", "-q", "-b", "side", "start")
    history.commit("elsewhere", "e")
    history.git("checkout", "-q", "main")
    for message, given in {
        "they are the wrong way round": {"good": "HEAD", "bad": "HEAD~1"},
        "main and HEAD are the same commit": {"good": "main"},
        "'nowhere' is no revision": {"good": "nowhere"},
        "side is no ancestor of HEAD": {"good": "side"},
        "at the bad commit": {"case": "scale/bta[n=100]"},
        "there is no case scale/beta": {"case": "scale/beta"},
        "no time": {"case": "kinds/reports[n=1000]"},
    }.items():
        assert message in history.bisect(**{"good": "HEAD~1"} | given, code=2).err
    assert "is not measured warm" in history.bisect("--cache", "warm", good="HEAD~1", code=2).err
    shutil.rmtree(history.root / ".git")
    history.perfsvc.environment["GIT_CEILING_DIRECTORIES"] = str(history.perfsvc.folder.parent)
    assert "is in no git repository" in history.bisect(good="HEAD~1", code=2).err


def test_a_good_commit_that_does_not_compile_or_has_a_wrong_result_is_a_failed_case(history):
    history.source.write_text("#error not yet\n")
    history.commit("not yet")
    history.line("a")
    ended = history.bisect(good="HEAD~1", code=4)
    assert "at the good commit" in ended.err
    assert "does not compile" in ended.err
    history.commit("wrong", "w", {"fault": "wrong"})
    history.line("b")
    assert "no correct result: wrong result: " in history.bisect(good="HEAD~1", code=4).err


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("out[i] = 3.0f * x", "wrong result: "),
        ("__builtin_trap()", "the worker "),
        ("#error no", "scale.cu does not compile"),
    ],
)
def test_the_commit_that_broke_a_case_is_found_on_the_cpu(history, broken, reason):
    text = history.source.read_text()
    for place, kernel in enumerate((text, text, *[text.replace("out[i] = 2.0f * x", f"\n{broken}\n")] * 2)):
        history.source.write_text(f"{kernel}int line_{place};\n")
        history.commit(f"commit {place}")
    places = ("--suite", history.suite, "--device", "cpu", "--format", "json")
    found = history.perfsvc("bisect", CASE, "--good", "HEAD~3", *places, code=4).json
    assert (subjects(found), found["verdict"], found["proven"]) == (["commit 2"], "broken", True)
    assert found["reason"].startswith(reason)
    assert found["files"] == ["gpu/kernels/scale/scale.cu"]


def test_the_commit_that_removed_a_case_or_the_suite_is_found(history):
    history.line("a.")
    history.bench.write_text(history.bench.read_text().replace('"beta"', '"delta"'))
    history.commit("another name")
    found = history.bisect(good="HEAD~2", code=4)
    assert (subjects(found), found["skipped"]) == (["another name"], [])
    assert found["reason"].startswith("there is no case scale/beta[n=100]; at ")
    history.git("checkout", "-q", "HEAD~1", "--", ".")
    history.commit("back")
    shutil.rmtree(history.suite)
    history.commit("no suite")
    history.git("checkout", "-q", "HEAD~1", "--", ".")
    found = history.bisect(good="HEAD~4", code=4)
    assert (subjects(found), found["reason"][:22]) == (["no suite"], "no folder gpu/kernels;")


def test_a_metric_that_a_case_returns_is_searched_like_a_time(perfsvc):
    history = History(perfsvc)
    shutil.rmtree(history.suite)
    shutil.copytree(perfsvc.suites / "kinds", history.suite)
    bench = history.suite / "kinds" / "bench.py"
    text = bench.read_text()
    for latency in (2, 2.01, 3):
        bench.write_text(text.replace('"latency_ms": 2.0', f'"latency_ms": {latency}'))
        history.commit(f"latency {latency}")
    places = ("--suite", history.suite, "--device", "cpu", "--format", "json", "--threshold", "5%")
    metric = ("--metric", "latency_ms")
    found = perfsvc("bisect", "kinds/reports[n=1000]", "--good", "HEAD~2", *metric, *places, code=1).json
    assert subjects(found) == ["latency 3"]
    assert {turn["value"] for turn in found["proof"]["candidate"]} == {3.0}
    assert "higher" in found["reason"]
    (history.root / "README").write_text("more")
    history.commit("no other code")
    found = perfsvc("bisect", "kinds/python[n=1000]", "--good", "HEAD~1", *places, code=0).json
    assert "the same code" in found["reason"]


def test_a_kernel_made_slower_by_a_parameter_is_found_on_the_cpu(history):
    history.bench.write_text(history.bench.read_text().replace('smoke={"n": 100}', 'smoke={"n": 20_000}'))
    text = history.bench.read_text()
    for place, repeat in enumerate((1, 1, 200)):
        history.bench.write_text(text.replace('{"REPEAT": 1}', f'{{"REPEAT": {repeat}}}'))
        (history.root / "README").write_text(str(place))
        history.commit(f"repeat {repeat}, {place}")
    places = ("--suite", history.suite, "--device", "cpu", "--format", "json", "--budget", "5m")
    found = history.perfsvc("bisect", "scale/beta[n=20000]", "--good", "HEAD~2", *places, code=1).json
    assert subjects(found) == ["repeat 200, 2"]
    assert found["proof"]["ratio"] > 2
