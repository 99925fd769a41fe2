"""``perfsvc import``: real files of other tools become runs, once and as a whole, and are judged like our own runs."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.stored_text import PAYLOADS
from tests.unit.formats.test_formats import DATA, FILES

COMMIT = "1f" * 20


def counts(perfsvc):
    tables = [name for (name,) in perfsvc.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: perfsvc.rows(f"SELECT count(*) FROM {name}") for name in tables}  # noqa: S608


def nvbench(folder, name, **factors):
    """Write the file of NVBench with the times of some benchmarks multiplied; return its path."""
    document = json.loads((DATA / "nvbench.json").read_text())
    for benchmark in document["benchmarks"]:
        for summary in benchmark["states"][0]["summaries"]:
            if "/time/gpu/" in summary["tag"]:
                value = summary["data"][0]
                value["value"] = repr(float(value["value"]) * factors.get(benchmark["name"], 1.0))
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def night(perfsvc, label, factor, **options):
    """Import three files of a commit as the replicas of a run."""
    unlike = 1 + ord(label) / 1e6  # a file with the content of an earlier one would be skipped
    files = [
        nvbench(perfsvc.folder, f"{label}{number}.json", copy=factor * (unlike + number / 2000), dot=1 + number / 3000)
        for number in range(3)
    ]
    return perfsvc("import", "nvbench", *files, "--label", label, "--host", "box", "--commit", label * 40, **options)


@pytest.mark.parametrize("options", [(), ("--separate",)])
def test_a_copy_of_a_file_in_the_same_command_is_skipped_and_named(perfsvc, options):
    files = [
        nvbench(perfsvc.folder, name, copy=factor) for name, factor in (("a.json", 1), ("b.json", 1), ("c.json", 2))
    ]
    ended = perfsvc("import", "nvbench", *files, *options, code=0)
    assert f"{files[1]} has the same content as {files[0]}, and is skipped" in ended.err
    per_run = [number for (number,) in perfsvc.rows("SELECT count(*) FROM measurements GROUP BY run_id")]
    assert per_run == ([4, 4] if options else [8])


@pytest.mark.parametrize("tool", FILES)
def test_a_file_and_its_copy_are_imported_once(perfsvc, tool):
    file = DATA / FILES[tool]
    perfsvc("import", tool, file)
    before = counts(perfsvc)
    copied = perfsvc.folder / f"copy-{file.name}"
    (shutil.copytree if file.is_dir() else shutil.copy)(file, copied)
    for path in (file, copied):
        again = perfsvc("import", tool, path, code=0)
        assert "imported before, and skipped" in again.out
        assert "nothing new" in again.out
    assert counts(perfsvc) == before


def test_a_file_that_is_not_valid_stores_nothing_of_any_file(perfsvc):
    perfsvc("import", "nvbench", DATA / "nvbench.json", code=0)
    before = counts(perfsvc)
    good = nvbench(perfsvc.folder, "good.json", copy=1.1)
    bad = perfsvc.folder / "bad.json"
    bad.write_text(good.read_text()[:-300])
    refused = perfsvc("import", "nvbench", good, bad, code=2)
    assert "bad.json is not in the format nvbench: it is no JSON: line" in refused.err
    assert "cure:" in refused.err
    assert counts(perfsvc) == before
    perfsvc("import", "nvbench", good, code=0)
    assert counts(perfsvc)["runs"] == [(2,)], "the good file was not known yet"


def test_an_error_while_storing_leaves_nothing(perfsvc, monkeypatch):
    """The second file changes after it was checked."""
    files = [nvbench(perfsvc.folder, f"{number}.json", copy=1 + number / 100) for number in range(2)]
    read, seen = Path.read_bytes, []

    def changing(path):
        seen.append(path.name)
        return read(path) + (b" " if seen.count("1.json") == 2 and path.name == "1.json" else b"")

    monkeypatch.setattr(Path, "read_bytes", changing)
    refused = perfsvc("import", "nvbench", *files, code=2)
    assert "1.json was changed while it was imported" in refused.err
    assert perfsvc.rows("SELECT count(*) FROM runs") == perfsvc.rows("SELECT count(*) FROM devices") == [(0,)]


def test_files_of_one_commit_are_replicas_and_give_verdicts_and_findings(perfsvc):
    night(perfsvc, "a", 1.0, code=0)
    night(perfsvc, "b", 1.0, code=0)
    slower = night(perfsvc, "c", 1.1, code=1)
    assert slower.out.count("regression") >= 2
    assert perfsvc.rows("SELECT replicas FROM runs") == [(3,)] * 3
    assert perfsvc("findings", "--format", "json", code=0).json == [], "one night alone raises no finding"
    night(perfsvc, "d", 1.1, code=1)
    (finding,) = perfsvc("findings", "--format", "json", code=0).json
    assert finding["root_cause"] == "bbbbbbbbb..ccccccccc"
    assert {moved["series"]["case"]["variant"] for moved in finding["moved"]} == {"nvbench", "nvbench-2"}
    compared = perfsvc("compare", "b", "c", "--format", "json", code=1).json
    assert compared["counts"] == {"regression": 2, "unchanged": 2}
    night(perfsvc, "e", 1.0, code=0)
    assert perfsvc("findings", "--format", "json", code=0).json == [], "the old level is back"


def test_a_single_replica_is_inconclusive(perfsvc):
    one, other = (nvbench(perfsvc.folder, f"{factor}.json", copy=factor) for factor in (1.0, 1.5))
    perfsvc("import", "nvbench", one, "--commit", COMMIT, code=0)
    assert "inconclusive" in perfsvc("import", "nvbench", other, "--commit", "2e" * 20, code=0).out
    perfsvc("import", "nvbench", nvbench(perfsvc.folder, "third.json", copy=1.6), "--strict", code=3)


def test_a_missing_case_of_the_same_program_is_reported(perfsvc):
    perfsvc("import", "nvbench", DATA / "nvbench.json", code=0)
    document = json.loads((DATA / "nvbench.json").read_text())
    document["benchmarks"] = document["benchmarks"][:2]
    less = perfsvc.folder / "less.json"
    less.write_text(json.dumps(document))
    assert "missing" in perfsvc("import", "nvbench", less, code=4).out
    document["meta"]["argv"] = ["other"]
    less.write_text(json.dumps(document))
    assert "missing" not in perfsvc("import", "nvbench", less, code=0).out


def test_each_file_of_separate_is_a_run_in_the_order_of_time(perfsvc):
    files = [nvbench(perfsvc.folder, f"{number}.json", copy=1 + number / 100) for number in range(3)]
    for file, moment in zip(files, (3_000, 1_000, 2_000), strict=True):
        os.utime(file, (moment, moment))
    perfsvc("import", "nvbench", *files, "--separate", "--label", "old", code=0)
    assert perfsvc.rows("SELECT path FROM imports ORDER BY run_id") == [(str(files[index]),) for index in (1, 2, 0)]
    assert perfsvc.rows("SELECT replicas FROM runs") == [(1,)] * 3


def test_a_file_of_an_earlier_time_is_imported_with_a_warning(perfsvc):
    new, old = (nvbench(perfsvc.folder, f"{factor}.json", copy=factor) for factor in (1.0, 1.001))
    perfsvc("import", "nvbench", new, "--at", "2026-11-24T03:00+00:00", code=0)
    second = perfsvc("import", "nvbench", old, "--at", "2026-11-20T03:00+00:00", code=0)
    assert "import the oldest files first" in second.err


def test_time_commit_and_host_come_from_the_file_and_from_options_before_it(perfsvc):
    perfsvc("import", "csv", DATA / "csv.csv", code=0)
    copied = perfsvc.folder / "csv.csv"
    copied.write_text((DATA / "csv.csv").read_text() + "\n")
    options = ("--commit", "2e" * 20, "--host", "farm", "--at", "2026-11-21T00:00+00:00")
    perfsvc("import", "csv", copied, *options, code=0)
    (_, *from_the_file), (*from_options,) = perfsvc.rows("SELECT git_commit, host, started_at FROM runs")
    assert from_the_file == ["node7", "2026-11-20 03:00:00.000000"]
    assert from_options == ["2e" * 20, "farm", "2026-11-21 00:00:00.000000"]


def test_of_a_folder_of_asv_only_what_was_added_is_imported(perfsvc):
    folder = shutil.copytree(DATA / "asv", perfsvc.folder / "results")
    perfsvc("import", "asv", folder, code=4)
    (newest,) = (folder / "vm").glob("7032*")
    document = json.loads(newest.read_text())
    document["results"]["bench.time_more"] = [[1e-3], [], "version", 1795529966327, 0.1]
    newest.write_text(json.dumps(document))
    perfsvc("import", "asv", folder, "--strict")
    added = perfsvc.rows("SELECT cases.variant, measurements.run_id FROM measurements JOIN cases ON cases.id = case_id")
    assert [variant for variant, run in added if run == 3] == ["time_more"]


def test_a_counter_is_imported_and_judged_on_request(perfsvc):
    perfsvc("import", "csv", DATA / "csv.csv", "--metric", "energy_mj", code=0)
    assert perfsvc.rows("SELECT DISTINCT name FROM metrics") == [("energy_mj",)]
    assert perfsvc.rows(
        "SELECT count(verdict) FROM levels JOIN series ON series.id = series_id WHERE metric = 'energy_mj'"
    ) == [(2,)]
    refused = perfsvc("import", "csv", DATA / "csv.csv", "--metric", "joules", code=2)
    assert "the files have energy_mj" in refused.err
    assert "has a metric of this name" in perfsvc("import", "csv", DATA / "csv.csv", "--metric", "time", code=2).err


@pytest.mark.quick
def test_a_wrong_argument_is_a_usage_error_and_stores_nothing(perfsvc):
    real = ("nvbench", DATA / "nvbench.json")
    for says, arguments in {
        "excel": ("excel", "a.xls"),
        "Missing argument": ("nvbench",),
        "absent.json is no file": ("nvbench", "absent.json"),
        "is a folder": ("nvbench", DATA),
        "'no such' is neither a commit": (*real, "--commit", "no such"),
        "'--output=x' is neither a commit": (*real, "--commit", "--output=x"),
        "'soon' is no time": (*real, "--at", "soon"),
        "name their commits": ("asv", DATA / "asv", "--commit", COMMIT),
        "hold 2 runs": ("asv", DATA / "asv", "--at", "2026-11-24"),
        "is not in the format csv": ("csv", DATA / "nvbench.json"),
        "name the format nvbench, in which it has results": ("hyperfine", DATA / "nvbench.json"),
    }.items():
        assert says in perfsvc("import", *arguments, code=2).err
        assert not perfsvc.database.exists()


def test_an_imported_gpu_is_no_gpu_that_this_host_must_have(perfsvc):
    """``--device auto`` takes the CPU device where no GPU is, although an imported run of this host has one."""
    perfsvc("import", "nvbench", DATA / "nvbench.json", "--host", os.uname().nodename, code=0)
    assert perfsvc.cpu("--select", "*/alpha", "--samples", 3, "--replicas", 1, suite="scale").code in {0, 3}
    assert "NVIDIA H100" not in perfsvc("expect", "list", "--all", code=0).out


def test_an_imported_suspect_cannot_be_measured_again(perfsvc):
    night(perfsvc, "a", 1.0, code=0)
    night(perfsvc, "b", 1.2, code=1)
    refused = perfsvc("confirm", "copy/nvbench", "--run", "2", "--device", "cpu")
    assert refused.code == 2
    assert "none of the devices asked for" in refused.err


@pytest.mark.parametrize(
    "names",
    [
        ("escape", "github", "long", "hyperlink", "return", "script"),
        ("lines", "nul", "github_later", "rich", "invisible", "markdown"),
    ],
)
def test_hostile_names_are_inert(perfsvc, names):
    """A file has a payload in each place; test_hostile_text.py shows each text in each format."""
    document = json.loads((DATA / "nvbench.json").read_text())
    program, device, benchmark, axis, reason, label = map(PAYLOADS.get, names)
    document["meta"]["argv"] = [program]
    document["devices"][0]["name"] = device
    document["benchmarks"][0]["name"] = benchmark
    document["benchmarks"][2]["states"][0]["axis_values"] = [{"name": axis, "type": "string", "value": axis}]
    document["benchmarks"][3]["states"][0] |= {"is_skipped": True, "skip_reason": reason, "summaries": None}
    file = perfsvc.folder / "hostile.json"
    file.write_text(json.dumps(document))
    ended = perfsvc("import", "nvbench", file, "--label", label.replace("\0", ""), code=0)
    for text in (ended.out, ended.err, perfsvc("report", code=0).out, perfsvc("report", "--format", "csv", code=0).out):
        assert "\x1b" not in text
        assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert len(perfsvc("report", "--format", "json", code=0).json) == 4
    assert "nothing new" in perfsvc("import", "nvbench", file, code=0).out


def write_csv(perfsvc, name, times, more=""):
    path = perfsvc.folder / name
    rows = "".join(f"copy,x,{replica},{time}{more}\n" for replica, time in enumerate(times))
    path.write_text(f"benchmark,variant,replica,time_us{',commit,at' if more else ''}\n{rows}")
    return path


def test_two_programs_with_equal_cases_have_two_histories_if_their_suites_are_named(perfsvc):
    for name, time in (("a", 10.0), ("b", 20.0)):
        file = write_csv(perfsvc, f"{name}.csv", [time, time, time + 0.1])
        assert "1 new" in perfsvc("import", "csv", file, "--suite-name", f"program_{name}", code=0).out
    file = write_csv(perfsvc, "c.csv", [20.0, 20.0, 20.2])
    assert "program_a:copy/x" in perfsvc("import", "csv", file, "--suite-name", "program_a", code=1).out
    assert perfsvc.rows("select name from cases order by id") == [("program_a:copy/x",), ("program_b:copy/x",)]


@pytest.mark.parametrize("together", [True, False])
def test_a_state_that_nvbench_skips_is_the_case_that_was_timed(perfsvc, together):
    timed = nvbench(perfsvc.folder, "timed.json")
    document = json.loads(timed.read_text())
    for benchmark in document["benchmarks"]:
        for state in benchmark["states"]:
            state.update(summaries=[], is_skipped=True, skip_reason="out of memory")
    skipped = perfsvc.folder / "skipped.json"
    skipped.write_text(json.dumps(document))
    if together:
        perfsvc("import", "nvbench", timed, skipped, "--host", "h", "--separate")
    else:
        perfsvc("import", "nvbench", timed, "--host", "h")
        perfsvc("import", "nvbench", skipped, "--host", "h", code=4)  # what was timed is no longer: missing, and why
    states = perfsvc.rows("select run_id, case_id, cache from measurements order by run_id, case_id")
    of_run = {run: [row[1:] for row in states if row[0] == run] for run in (1, 2)}
    assert of_run[1] == of_run[2]


@pytest.mark.parametrize(("threshold", "raised"), [("30%", 0), ("10%", 1)])
def test_the_threshold_of_a_command_holds_for_histories_too(perfsvc, threshold, raised):
    for night_, time in enumerate([100.0, 100.1, 99.9, 100.0, 100.2, 99.8, 120.0, 120.1, 119.9]):
        more = f",{night_ + 1:040x},2026-01-{night_ + 1:02}T00:00:00"
        perfsvc("import", "csv", write_csv(perfsvc, f"{night_}.csv", [time], more), "--threshold", threshold)
    assert perfsvc.rows("select count(*) from findings") == [(raised,)]
