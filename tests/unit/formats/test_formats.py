"""The parsers of other tools' files, on files in tests/data/formats; nccl-tests.txt and csv.csv are written by hand.

The real ones: NVBench from an H100 (two benchmarks of a longer file), Google Benchmark 1.7, pytest-benchmark 5.3, asv
0.6 and hyperfine 1.15 on two cores of an AMD EPYC. nccl-tests.txt has the lines that ``src/util.cu`` of nccl-tests 2.17
prints, with invented times.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from perfsvc import formats
from perfsvc.errors import FormatError
from perfsvc.formats.fields import LONGEST_NAME, MOST_AXES, benchmark_name, point_of, variant_name
from perfsvc.model import CacheState, Status

DATA = Path(__file__).parents[2] / "data" / "formats"
FILES = {
    "nvbench": "nvbench.json",
    "google-benchmark": "google-benchmark.json",
    "pytest-benchmark": "pytest-benchmark.json",
    "asv": "asv",
    "hyperfine": "hyperfine.json",
    "nccl-tests": "nccl-tests.txt",
    "csv": "csv.csv",
}


def read(tool, name=""):
    return list(formats.read(tool, DATA / (name or FILES[tool])))


def refusal(tool, text, folder=None):
    with pytest.raises(FormatError) as raised:
        list(formats.parse(tool, text if isinstance(text, bytes) else text.encode(), folder))
    assert raised.value.cure
    return raised.value.what


def changed(name, old, new):
    text = (DATA / name).read_text()
    assert old in text
    return text.replace(old, new, 1)


def test_every_format_has_a_real_file_whose_results_have_distinct_cases():
    assert set(FILES) == set(formats.FORMATS)
    for tool in FILES:
        results = read(tool)
        keys = {(one.benchmark, one.variant, one.point, one.replica, one.commit) for one in results}
        assert len(keys) == len(results) > 1, tool


def test_a_file_of_something_else_is_refused_with_a_cure():
    for tool in FILES:
        for text in ["", "null", "[]", "{}", "\0\1\2", "{" * 100_000, "9" * 5000, "\ud800"]:
            assert "is not in the format" in refusal(tool, text.encode("utf-8", "surrogatepass")), (tool, text)


# --- NVBench ---------------------------------------------------------------------------------------------------------


def test_a_state_of_nvbench_has_its_median_device_clock_and_bytes():
    first, second, *_ = read("nvbench")
    assert (first.benchmark, first.variant, first.point) == ("copy", "nvbench", ())
    assert first.samples_s == (0.00022841599583625793,)
    assert first.cache is CacheState.COLD
    assert first.moved_bytes == 2 * 4 * 2**26  # NVBench has the bandwidth, which is these bytes over the mean time
    assert first.clock_hz == 1975879449.7989032
    assert first.metrics["back_to_back_s"] == 0.0002267493532415022
    assert first.counters["nv/cold/time/cpu/median"] == 0.00026003500000000004
    assert first.device is not None
    assert (first.device.model, first.device.compute_capability) == ("NVIDIA H100 80GB HBM3", "9.0")
    assert (first.device.multiprocessors, first.device.l2_bytes) == (132, 50 << 20)
    assert "no samples" in first.note
    assert (second.benchmark, second.variant) == ("copy", "nvbench-2"), "a repeated name keeps its occurrence"
    assert first.program == "nvb.py"


# --- Google Benchmark ------------------------------------------------------------------------------------------------


def test_repetitions_of_google_benchmark_are_samples_of_one_process():
    results = {(one.benchmark, one.variant, one.point): one for one in read("google-benchmark")}
    short = results["BM_Sum", "google-benchmark", (("arg0", 1024),)]
    assert short.samples_s[0] == pytest.approx(1.6656347313674189e-06)
    assert len(short.samples_s) == 3
    assert short.counters["widgets"] == 7
    assert short.counters["cpu_s"] < 1e-5
    assert (short.host, short.program) == ("vm", "g_bench")
    assert short.started == datetime(2026, 11, 24, 14, 18, 43, tzinfo=UTC)
    sort = results["BM_Sort<int>", "real_time", (("n", 1000), ("k", 2))]
    assert 1e-6 < sort.samples_s[0] < 1e-4, "its unit is the microsecond"
    assert "time_unit" in refusal("google-benchmark", changed("google-benchmark.json", '"ns"', '"lightyears"'))
    broken = results["BM_Broken", "google-benchmark", ()]
    assert (broken.status, broken.reason) == (Status.FAILED, "no such device")


# --- pytest-benchmark ------------------------------------------------------------------------------------------------


def test_rounds_of_pytest_benchmark_are_samples_of_one_process():
    results = {(one.variant, one.point): one for one in read("pytest-benchmark")}
    sort = results["test_sort", (("n", 10),)]
    assert (sort.benchmark, len(sort.samples_s)) == ("test_speed", 40)
    assert sort.commit == "b9dc0332720cadd1ca1f067a01b84865a4058936"
    assert (sort.host, sort.dirty) == ("vm", False)
    assert results["test_text", (("text", "a/b"), ("twice", "true"))].counters == {"letters": 3}
    assert results["TestLists.test_sum", ()].samples_s[0] == 9.819000069910545e-07


def test_files_without_repetitions_or_rounds_have_the_median():
    (of_sum, *_) = (
        one for one in read("google-benchmark", "google-benchmark-aggregates.json") if one.benchmark == "BM_Sum"
    )
    assert len(of_sum.samples_s) == 1
    assert "no repetitions" in of_sum.note
    results = read("pytest-benchmark", "pytest-benchmark-saved.json")
    assert {len(one.samples_s) for one in results} == {1}
    assert all("no rounds" in one.note for one in results)


# --- asv -------------------------------------------------------------------------------------------------------------


def test_a_folder_of_asv_has_a_commit_in_each_file():
    results = read("asv")
    assert {one.commit[:8] for one in results} == {"7032ec01", "c378158e"}
    assert {one.host for one in results} == {"vm"}
    latest = {(one.variant, one.point): one for one in results if one.commit.startswith("7032ec01")}
    env = ("env", "existing-py3.11")
    assert latest["time_sort", (("n", 10), ("order", "up"), env)].samples_s == (7.714999696872837e-07,)
    assert latest["time_sort", (("n", 1000), ("order", "up"), env)].status is Status.SKIPPED
    assert latest["time_broken", (env,)].status is Status.FAILED
    assert latest["peakmem_list", (env,)].metrics == {"peak_memory_bytes": 24797184}
    assert latest["track_ratio", (env,)].counters == {"value": 0.5}
    assert len({one.digest for one in results}) == 10, "a digest for each benchmark of a commit"
    assert latest["time_sum", (env,)].started == datetime.fromtimestamp(1795529962, UTC), "the commit's date"


def test_asv_without_benchmarks_json_still_has_times():
    text = next((DATA / "asv" / "vm").glob("7032*")).read_bytes()
    results = {(one.variant, one.point): one for one in formats.parse("asv", text)}
    key = "time_sort", (("param1", 10), ("param2", "down"), ("env", "existing-py3.11"))
    assert results[key].samples_s == (7.169999776124314e-07,)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(FormatError, match="no results of asv"):
        list(formats.read("asv", tmp_path))
    with pytest.raises(FormatError, match="is a folder"):
        list(formats.read("csv", tmp_path))


# --- hyperfine -------------------------------------------------------------------------------------------------------


def test_each_run_of_hyperfine_is_a_process():
    results = read("hyperfine")
    first = [one for one in results if one.variant == "seq 1000"]
    assert [one.replica for one in first] == [0, 1, 2, 3, 4]
    assert [one.samples_s for one in first][:2] == [(0.0013369095,), (0.0054115635,)]
    assert first[0].point == (("n", 1),)


# --- nccl-tests ------------------------------------------------------------------------------------------------------


def test_the_table_of_nccl_tests_has_two_sides():
    results = {(one.variant, one.point[0][1]): one for one in read("nccl-tests")}
    assert len(results) == 6
    large = results["in-place", 134217728]
    assert large.point == (("size", 134217728), ("type", "float"), ("redop", "sum"), ("root", -1))
    assert large.samples_s == (pytest.approx(739.9e-6),)
    assert large.metrics == {"bus_bytes_per_s": pytest.approx(181.4e9)}
    assert (large.benchmark, large.host, large.moved_bytes) == ("all_reduce_perf", "node1", 134217728)
    assert large.device is not None
    assert large.device.model == "2 × NVIDIA H100 80GB HBM3"


def test_wrong_elements_of_nccl_tests_are_a_wrong_result_and_a_cut_row_is_refused():
    row = "8             2     float     sum      -1    13.58    0.00    0.00       "
    results = list(formats.parse("nccl-tests", changed("nccl-tests.txt", f"{row}0", f"{row}5").encode()))
    assert [one.status for one in results[:2]] == [Status.WRONG, Status.OK]
    assert results[0].reason == "5 elements of the result are wrong"
    cut = (DATA / "nccl-tests.txt").read_text().split("0.00       0")[0]
    assert "line 12 has 7 cells" in refusal("nccl-tests", cut)


def test_rows_that_nccl_tests_repeats_are_samples():
    text = (DATA / "nccl-tests.txt").read_text()
    (row,) = [line for line in text.splitlines() if line.strip().startswith("32768")]
    results = list(formats.parse("nccl-tests", text.replace(row, f"{row}\n{row.replace('15.02', '16.02')}").encode()))
    assert next(one.samples_s for one in results if one.point[0][1] == 32768) == pytest.approx((15.02e-6, 16.02e-6))


# --- CSV -------------------------------------------------------------------------------------------------------------


def test_rows_of_csv_are_samples_of_their_replica():
    ours, second, cublas = read("csv")
    assert (ours.benchmark, ours.variant) == ("gemm", "ours")
    assert ours.point == (("n", 1024), ("dtype", "f16"))
    assert ours.samples_s == pytest.approx((35.5e-6, 35.75e-6))
    assert (second.replica, cublas.variant) == (1, "cublas")
    assert ours.counters == {"energy_mj": 10.25}
    assert (ours.host, ours.commit[:4]) == ("node7", "1f1f")
    assert ours.started == datetime(2026, 11, 20, 3, tzinfo=UTC)


def test_a_wrong_csv_names_the_line_and_a_reason_in_csv_is_a_failure():
    for text, says in [
        ("", "its first line is empty"),
        ("time_s,n\n1,1\n", "no column benchmark"),
        ("benchmark,n\na,1\n", "no columns of times"),
        ("benchmark,time_s,time_ms\na,1,2\n", "2 columns of times"),
        ("benchmark,time_s,n,n\na,1,2,3\n", "two columns have the same name"),
        ("benchmark,time_s\na,1,2\n", "line 2 has 3 cells"),
        ("benchmark,time_s\na,-1\n", "line 2: time_s is no time above zero"),
        ("benchmark,time_s\na,nan\n", "is no time above zero"),
        ("benchmark,time_s\n,1\n", "names no benchmark"),
        ("benchmark,time_s,at\na,1,yesterday\n", "is no time: 'yesterday'"),
        ("benchmark,time_s,cache\na,1,lukewarm\n", "the cache is 'lukewarm', and must be cold or warm"),
        ("benchmark,time_s,replica\na,1,-1\n", "the replica is '-1', and must be a number from 0"),
        ("benchmark,time_s\n", "no rows"),
    ]:
        assert says in refusal("csv", text), (text, says)
    assert "nvbench: it is empty" in refusal("nvbench", " \n")
    (one,) = formats.parse("csv", b"benchmark,time_s,reason\na,,out of memory\n")
    assert (one.status, one.reason) == (Status.FAILED, "out of memory")


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_fit_the_id_of_a_case():
    assert benchmark_name("a/b[c]") == "a.b(c)"
    assert variant_name("") == variant_name("  ") == "unnamed"
    long = variant_name("x" * 100_000)
    assert len(long) < LONGEST_NAME + 20
    assert long != variant_name("x" * 100_001)
    assert variant_name("a\ud800\0") == "a\\ud800\N{REPLACEMENT CHARACTER}", "as the database would return it"


def test_values_of_axes_are_numbers_where_they_look_like_numbers():
    point = point_of([("a", "12"), ("b", "-1.5e3"), ("c", "9" * 30), ("d", float("nan")), ("e", None), ("f", [1])])
    assert point == (("a", 12), ("b", -1500.0), ("c", "9" * 30), ("d", "nan"), ("e", "none"), ("f", "(1)"))
    with pytest.raises(FormatError, match="axes"):
        point_of((str(number), number) for number in range(MOST_AXES + 1))


def test_a_second_result_of_a_case_is_a_variant_of_its_own():
    document = '{"results": [{"command": "a", "times": [1, 2]}, {"command": "a", "times": [3, 4]}]}'
    results = list(formats.parse("hyperfine", document.encode()))
    assert [(one.variant, one.replica) for one in results] == [("a", 0), ("a", 1), ("a-2", 0), ("a-2", 1)]


def test_what_is_no_file_or_too_large_is_refused(tmp_path, monkeypatch):
    with pytest.raises(FormatError, match="is no file"):
        formats.content(tmp_path / "absent")
    with pytest.raises(FormatError, match="is no file"):
        formats.content(Path("/dev/zero"))
    monkeypatch.setattr(formats, "MOST_BYTES", 10)
    with pytest.raises(FormatError, match="at most 10 B are allowed"):
        formats.content(DATA / "csv.csv")
    with pytest.raises(ValueError, match="is no format"):
        list(formats.parse("excel", b""))
