"""The result of a case among all that a program printed or wrote."""

import json
import re
from itertools import product
from pathlib import Path

import pytest

from perfsvc.errors import ProgramError, ResultError, UnsupportedError
from perfsvc.measure.worker import program_results
from perfsvc.measure.worker.program_results import ProgramOutput, result_of
from perfsvc.model import Case, RunProgram

NCCL = b"""
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    20.00   52.43   52.43      0    10.00   26.21   26.21      0
     2097152        524288     float     sum      -1    40.00   52.43   52.43      0    30.00   26.21   26.21      5
"""
CSV = b"benchmark,variant,n,time_us,metric:joules\ncopy,a,8,3,1.5\ncopy,a,8,4,1.5\ncopy,a,16,9,2\nfill,a,8,1,1\n"
HYPERFINE = {"results": [{"command": "./x", "mean": 2.0, "times": [1.0, 2.0, 3.0], "exit_codes": [0, 0, 0]}]}
PYTEST = {
    "machine_info": {"node": "box"},
    "commit_info": {},
    "benchmarks": [
        {"name": "test_a", "fullname": "t.py::test_a", "group": None, "params": None, "stats": {"data": [0.5, 0.25]}}
    ],
    "datetime": "2026-01-01T00:00:00+00:00",
    "version": "5.1.0",
}
MEAN = {"name": "value", "type": "float64", "value": "1.5e-05"}
SUMMARY = {"tag": "nv/cold/time/gpu/mean", "name": "GPU Time", "data": [MEAN]}


def state(n):
    axis = {"name": "n", "type": "int64", "value": str(n)}
    return {"name": f"Device=0 n={n}", "device": 0, "is_skipped": False, "axis_values": [axis], "summaries": [SUMMARY]}


NVBENCH = {
    "meta": {"argv": ["./bench"], "version": {"json": {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}}},
    "devices": [{"id": 0, "name": "NVIDIA H100", "sm_version": 900, "number_of_sms": 132}],
    "benchmarks": [{"name": "copy", "index": 0, "states": [state(8), state(16)]}],
}


def google(*names, **fields):
    rows = [{"name": name, "run_type": "iteration", "real_time": 2.0, "time_unit": "us", **fields} for name in names]
    return {"context": {}, "benchmarks": rows}


def choose(folder, parse, stdout=b"", *, point=(), command=("./bench",), **fields):
    content = stdout if isinstance(stdout, bytes) else json.dumps(stdout).encode()
    step = RunProgram(command=command, files=("bench",), parse=parse, **fields)
    return result_of(ProgramOutput(folder, content, ""), step, Case("b", "v", point))


def test_every_format_has_times(tmp_path):
    table = [
        ("nvbench", NVBENCH, {"point": (("n", 16),)}, (1.5e-5,)),
        ("google-benchmark", google("BM_a", "BM_a", "BM_b"), {"pick": (("benchmark", "BM_a"),)}, (2e-6, 2e-6)),
        ("nccl-tests", NCCL, {"point": (("size", 1048576),), "pick": (("variant", "in-place"),)}, (1e-5,)),
        ("hyperfine", HYPERFINE, {}, (1.0, 2.0, 3.0)),
        ("pytest-benchmark", PYTEST, {}, (0.5, 0.25)),
        ("csv", CSV, {"point": (("n", 8),), "pick": (("benchmark", "copy"),)}, (3e-6, 4e-6)),
    ]
    for parse, stdout, chosen, samples_s in table:
        assert choose(tmp_path, parse, stdout, **chosen).samples_s == pytest.approx(samples_s), parse


def test_axes_that_the_result_lacks_do_not_matter_and_picked_values_do(tmp_path):
    assert choose(tmp_path, "csv", CSV, point=(("m", 1),), pick=(("n", 16),)).samples_s == pytest.approx((9e-6,))
    with pytest.raises(ProgramError, match="no result that fits the case"):
        choose(tmp_path, "csv", CSV, pick=(("m", 1),))


def test_several_fitting_results_are_listed(tmp_path):
    with pytest.raises(ProgramError) as raised:
        choose(tmp_path, "csv", CSV, point=(("n", 8),))
    assert "2 results that fit the case: copy/a[n=8], fill/a[n=8]" in raised.value.what
    assert "pick={'benchmark': 'copy'}" in raised.value.cure


def test_a_result_of_another_point_is_no_result_of_the_case(tmp_path):
    with pytest.raises(ProgramError, match=re.escape("fits the case [n=32], only copy/a[n=8], copy/a[n=16], fill/")):
        choose(tmp_path, "csv", CSV, point=(("n", 32),))


def test_only_named_metrics_are_taken_and_counters_count(tmp_path):
    assert choose(tmp_path, "csv", CSV, pick=(("benchmark", "fill"),)).metrics == {}
    chosen = choose(tmp_path, "csv", CSV, pick=(("benchmark", "fill"),), metrics=("joules",))
    assert chosen.metrics == {"joules": 1.0}
    with pytest.raises(ProgramError, match="no metric 'watts'; its metrics: joules"):
        choose(tmp_path, "csv", CSV, pick=(("benchmark", "fill"),), metrics=("watts",))


def test_what_the_program_reports_about_itself_is_the_reason(tmp_path):
    with pytest.raises(ResultError, match="the program reports a wrong result: 5 elements"):
        choose(tmp_path, "nccl-tests", NCCL, point=(("size", 2097152),), pick=(("variant", "in-place"),))
    failed = google("BM_a", error_occurred=True, error_message="no memory")
    with pytest.raises(ProgramError, match="the program reports that it failed: no memory"):
        choose(tmp_path, "google-benchmark", failed)
    with pytest.raises(UnsupportedError, match="the program skipped it"):
        choose(tmp_path, "google-benchmark", google("BM_a", skipped=True, skip_message="no fp8"))


def test_the_file_that_the_command_names_is_read(tmp_path):
    (tmp_path / "bench").write_text("the program")
    (tmp_path / "out.csv").write_bytes(CSV)
    for command in (("./bench", "--csv", "out.csv"), ("./bench", "--csv=out.csv", "bench", "/etc/passwd", "\0")):
        assert choose(tmp_path, "csv", command=command, pick=(("n", 16),)).samples_s == pytest.approx((9e-6,))


def test_a_named_result_is_the_only_one(tmp_path):
    (tmp_path / "out.csv").write_bytes(CSV)
    (tmp_path / "log.txt").write_text("log")
    command = ("./bench", "--csv=out.csv", "--log=log.txt")
    with pytest.raises(ProgramError, match=re.escape("several files that its command names: out.csv, log.txt")):
        choose(tmp_path, "csv", command=command)
    assert choose(tmp_path, "csv", command=command, result="out.csv", pick=(("n", 16),)).samples_s
    with pytest.raises(ProgramError, match=re.escape("it wrote no file 'other.csv'")):
        choose(tmp_path, "csv", CSV, result="other.csv")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ProgramError, match="it wrote no file 'folder'"):
        choose(tmp_path, "csv", CSV, result="folder")


def test_a_result_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(program_results, "MOST_RESULT_BYTES", 10)
    (tmp_path / "out.csv").write_bytes(CSV)
    with pytest.raises(ProgramError, match=re.escape("its file 'out.csv' is larger than")):
        choose(tmp_path, "csv", result="out.csv")


def test_nonsense_is_named_as_what_it_is_not(tmp_path):
    formats = ("nvbench", "google-benchmark", "nccl-tests", "hyperfine", "pytest-benchmark", "csv")
    for parse, content in product(formats, (b"", b"\0", b"{", b"[]", b"null", b"benchmark,time_s\n")):
        with pytest.raises(ProgramError, match=f"its standard output .*{parse}|its standard output has no results"):
            choose(tmp_path, parse, content)
    with pytest.raises(ProgramError, match="it printed nothing"):
        choose(tmp_path, "nvbench", b"")


def test_an_impossible_time_is_refused(tmp_path):
    for seconds in ("1e-13", "2e9"):
        with pytest.raises(ProgramError, match="which is impossible"):
            choose(tmp_path, "csv", f"benchmark,time_s\na,{seconds}\n".encode())


REAL = Path(__file__).parents[3] / "data" / "formats"


def test_real_files_have_the_samples_of_a_case(tmp_path):
    in_place = {"point": (("size", 8),), "pick": (("variant", "in-place"),)}
    table = [
        ("nvbench", "nvbench.json", {"pick": (("benchmark", "dot"), ("variant", "nvbench"))}, 1),
        ("nvbench", "nvbench.json", {"pick": (("benchmark", "copy"), ("variant", "nvbench-2"))}, 1),
        ("google-benchmark", "google-benchmark.json", {"pick": (("arg0", "1024"),)}, 3),
        ("nccl-tests", "nccl-tests.txt", in_place, 1),
        ("hyperfine", "hyperfine.json", {"point": (("n", 1),)}, 5),
        ("pytest-benchmark", "pytest-benchmark.json", {"point": (("n", 10),), "pick": (("variant", "test_sort"),)}, 40),
        ("csv", "csv.csv", {"pick": (("variant", "ours"),)}, 3),
    ]
    for parse, file, chosen, samples in table:
        (tmp_path / "out").write_bytes((REAL / file).read_bytes())
        result = choose(tmp_path, parse, command=("./bench", "--out=out"), **chosen)
        assert len(result.samples_s) == samples, parse
        assert all(1e-9 < time < 10 for time in result.samples_s)
