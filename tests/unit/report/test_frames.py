import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

from perfsvc.errors import InfrastructureError, MissingPackageError, UsageError
from perfsvc.installation import install_command
from perfsvc.judge import levels_of
from perfsvc.report.export.files import BINARY, TEXT, write
from perfsvc.report.export.frames import details, frame, further, parse_point, summary
from tests.unit.report import stored

EXACT = 1.2345678901234567e-05


def columns(**changed: list[Any]) -> dict[str, list[Any]]:
    """Return three replicas of a case, the last one wrong, and a skipped case."""
    own = {
        "case": ["dot/tree[n=4096]"] * 3 + ["dot/cp|async[n=8192]"],
        "variant": ["tree"] * 3 + ["cp|async"],
        "point": ["n=4096"] * 3 + ["n=8192"],
        "replica": [0, 1, 2, 0],
        "status": ["ok", "ok", "wrong", "skipped"],
        "reason": ["", "", "out <differs>", "needs sm_100"],
        "median_s": [EXACT, 2e-5, 1e-9, None],
        "low_s": [1e-5, 1.9e-5, 1e-9, None],
        "high_s": [1.3e-5, 2.1e-5, 1e-9, None],
        "samples": [100, 100, 1, 0],
        "bandwidth_bytes_per_s": [3e12, 2e12, 9e15, None],
        "max_error": [1e-7, 2e-7, 0.5, None],
        "mean_error": [1e-8, 1e-8, 0.1, None],
        "peak": ["memory", "memory", None, None],
        "peak_share": [0.75, 0.5, None, None],
    }
    return stored.columns(4, **own | changed)


def text_of(fmt: str, table: pd.DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    write(lambda: [table], fmt, None)
    return capsys.readouterr().out


# --- frames ----------------------------------------------------------------------------------------------------------


def test_axes_keep_their_types_and_stay_empty_where_a_case_has_none() -> None:
    table = frame({"point": ["n=4096,dtype=f32", "alpha=0.5", "", "n=1,mix=2", "mix=x"]})
    assert str(table["n"].dtype) == "Int64"
    assert table["n"].isna().tolist() == [False, True, True, False, True]
    assert table["alpha"].dtype == "float64"
    assert table["dtype"].iloc[0] == "f32"
    assert table["mix"].dropna().tolist() == ["2", "x"]
    table = frame({"point": ["samples=7"], "samples": [100]})  # an axis named like a column gets a prefix
    assert (table["samples"].iloc[0], table["axis_samples"].iloc[0]) == (100, 7)
    assert parse_point("n=4096,alpha=0.5,dtype=f32") == {"n": 4096, "alpha": 0.5, "dtype": "f32"}
    assert (parse_point(""), parse_point("a=1,b,a=2")) == ({}, {"a": "1,b,a=2"})


def test_axes_and_metrics_that_are_given_as_objects_are_spread_out() -> None:
    table = frame({"point": ["n=1", "n=2"], "axes": [{"n": 1}, {"n": 2}], "metrics": [{"overlap": 0.5}, {}]})
    assert table["n"].tolist() == [1, 2]
    assert table["metric_overlap"].iloc[0] == 0.5
    assert math.isnan(table["metric_overlap"].iloc[1])
    assert not {"axes", "metrics"} & set(table)


def test_the_summary_has_a_row_a_case_with_the_level_that_verdicts_compare() -> None:
    medians = [EXACT, 2e-5, 1.5e-5]
    right = {"status": ["ok"] * 3 + ["skipped"], "median_s": [*medians, None], "samples": [100, 100, 100, 0]}
    tree = summary(frame(columns(**right))).to_dict("records")[0]
    (center,), (low,), (high,) = levels_of(np.array([medians]))
    assert tree["median_s"] == pytest.approx(center, rel=1e-12)
    assert (tree["low_s"], tree["high_s"]) == (pytest.approx(low), pytest.approx(high))
    assert (tree["replicas"], tree["samples"], tree["status"], tree["reason"]) == (3, 300, "ok", "")
    assert tree["between_cv"] == pytest.approx(np.std(medians, ddof=1) / np.mean(medians))
    first = summary(frame(columns()).iloc[:1]).to_dict("records")[0]  # a single replica keeps its own interval
    assert (first["median_s"], first["low_s"], first["high_s"]) == (pytest.approx(EXACT), 1e-5, 1.3e-5)
    assert math.isnan(first["between_cv"])
    table = summary(frame(columns(run=[1, 2, 2, 2], device=["GPU-1", "GPU-1", "GPU-2", "GPU-1"])))
    assert len(table) == 4
    empty = frame({name: [] for name in columns()})
    assert empty.empty
    assert summary(empty).empty


def test_the_bandwidth_of_a_summary_is_that_of_its_level_and_a_metric_may_be_zero() -> None:
    medians = [1e-5, 4e-5]
    rows = columns(status=["ok", "ok", "skipped", "skipped"], median_s=[*medians, None, None])
    rows["case"] = ["a", "a", "b", "b"]
    rows["bandwidth_bytes_per_s"] = [*(6e7 / median for median in medians), None, None]
    level = summary(frame(rows)).to_dict("records")[0]
    assert (level["median_s"], level["bandwidth_bytes_per_s"]) == (pytest.approx(2e-5), pytest.approx(6e7 / 2e-5))
    hops = columns(status=["ok"] * 4, metrics=[{"hops": 0.0}, {"hops": 3.0}, {"hops": 3.0}, {}])
    assert summary(frame(hops))["metric_hops"].iloc[0] == 2.0


def test_a_case_with_a_replica_that_is_not_ok_has_no_time_in_the_summary() -> None:
    tree, skipped = summary(frame(columns())).to_dict("records")
    assert all(math.isnan(tree[name]) for name in ("median_s", "low_s", "high_s", "bandwidth_bytes_per_s"))
    assert (tree["replicas"], tree["samples"]) == (2, 0)
    assert (tree["status"], tree["reason"], tree["max_error"], tree["n"]) == ("wrong", "out <differs>", 0.5, 4096)
    assert (skipped["status"], skipped["replicas"], skipped["reason"]) == ("skipped", 0, "needs sm_100")
    assert math.isnan(skipped["median_s"])


# --- text ------------------------------------------------------------------------------------------------------------


def test_csv_and_json_keep_times_in_full_and_timestamps_iso(capsys: pytest.CaptureFixture[str]) -> None:
    of_csv = list(csv.DictReader(io.StringIO(text_of("csv", frame(columns()), capsys))))
    of_json = json.loads(text_of("json", frame(columns()), capsys))
    assert float(of_csv[0]["median_s"]) == of_json[0]["median_s"] == EXACT
    assert of_csv[0]["started_at"] == of_json[0]["started_at"] == "2026-11-21T09:30:00+00:00"
    assert (of_csv[3]["median_s"], of_json[3]["median_s"], of_json[0]["n"]) == ("", None, 4096)


def test_markdown_is_a_table_whose_cells_cannot_break_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = text_of("markdown", frame(columns(reason=["", "", "two\nlines", "a|b"])), capsys).splitlines()
    assert len(lines) == 6
    assert lines[1].startswith("| --- |")
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert "two<br>lines" in lines[4]
    assert str(EXACT) in lines[2]


def test_html_is_one_page_with_its_style_inside_and_escaped_text(capsys: pytest.CaptureFixture[str]) -> None:
    page = text_of("html", frame(columns()), capsys)
    assert page.startswith("<!doctype html>")
    for part in ("prefers-color-scheme: dark", "out &lt;differs&gt;", "needs sm_100"):
        assert part in page
    warning = "say nothing about a GPU"
    for part in ("<differs>", "src=", "href=", "tree cold", 'data-name="vs ', warning):
        assert part not in page
    assert warning in text_of("html", frame(columns(device_kind=["cpu"] * 4)), capsys)


def test_every_format_writes_every_frame_to_a_file(tmp_path):
    whole, none = frame(columns()), frame({name: [] for name in columns()})
    for fmt in (*TEXT, *BINARY):
        for number, table in enumerate((whole, summary(whole), none)):
            target = tmp_path / f"{number}.{fmt}"
            write([table].copy, fmt, target)
            assert target.stat().st_size > 0, (fmt, number)


# --- binary ----------------------------------------------------------------------------------------------------------


def test_excel_gets_utc_times_without_a_zone_in_columns_named_utc(tmp_path: Path) -> None:
    write(lambda: [frame(columns())], "xlsx", tmp_path / "report.xlsx")
    header, first, *_ = openpyxl.load_workbook(tmp_path / "report.xlsx").active.iter_rows(values_only=True)
    row = dict(zip(header, first, strict=True))
    assert row["started_at_utc"] == datetime(2026, 11, 21, 9, 30)  # noqa: DTZ001 - Excel knows no time zones
    assert row["median_s"] == pytest.approx(EXACT, rel=1e-15)


def test_binary_formats_do_not_go_to_standard_output_and_an_unknown_format_names_the_known_ones():
    for fmt in BINARY:
        with pytest.raises(UsageError, match="binary") as raised:
            write(lambda: [frame(columns())], fmt, None)
        assert raised.value.cure == f"--output report.{fmt}", fmt
    with pytest.raises(UsageError, match="no format is named yaml") as raised:
        write(lambda: [frame(columns())], "yaml", None)
    assert "csv, json, markdown, html, parquet, xlsx" in raised.value.cure


def test_a_missing_package_is_named_with_its_cure(tmp_path, monkeypatch):
    for fmt, package in {"parquet": "pyarrow", "xlsx": "openpyxl"}.items():
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingPackageError, match=package) as raised:
            write(lambda: [frame(columns())], fmt, tmp_path / "report")
        assert raised.value.cure == install_command("export"), fmt


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for fmt in (*TEXT, *BINARY):
        with pytest.raises(UsageError, match="cannot be written"):
            write(lambda: [frame(columns())], fmt, tmp_path / "missing" / "report")


def test_a_full_disk_keeps_the_earlier_file(tmp_path: Path, full_disk: None) -> None:
    (tmp_path / "report").write_text("old")
    for fmt in (*TEXT, *BINARY):
        with pytest.raises(InfrastructureError, match="report cannot be written: No space left on device") as full:
            write(lambda: [frame(columns())], fmt, tmp_path / "report")
        assert full.value.cure == "make room on its disk, or name a file on another disk", fmt
        assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report", "old")], fmt


def test_the_variants_of_a_point_stand_one_below_the_other_however_they_were_measured() -> None:
    measured = [("b", "n=16"), ("a", "n=16"), ("b", "n=2"), ("a", "n=2")]
    same = {name: [value] * len(measured) for name, value in (("run", 1), ("device", "G"), ("cache", "cold"))}
    variants, points = map(list, zip(*measured, strict=True))
    table = frame({**same, "benchmark": ["t"] * 4, "variant": variants, "point": points, "replica": [0] * 4})
    assert list(zip(table["variant"], table["n"], strict=True)) == [("a", 2), ("b", 2), ("a", 16), ("b", 16)]


# --- ladders and reference variants ----------------------------------------------------------------------------------


def on_a_ladder(**changed: list[Any]) -> pd.DataFrame:
    """Return two replicas of three variants, compared with the last variant."""
    same = {"run": 1, "device": "G", "cache": "cold", "benchmark": "t", "version": 1, "point": "n=2"}
    same["relative_to"] = "copy"
    own = {
        "variant": ["tiled", "copy", "naive"] * 2,
        "case": ["t/tiled", "t/copy", "t/naive"] * 2,
        "variant_index": [1, 2, 0] * 2,
        "replica": [0] * 3 + [1] * 3,
        "median_s": [2.0, 1.0, 8.0, 4.0, 1.0, 2.0],
        "status": ["ok"] * 6,
    }
    rest = {"reason": "", "low_s": 1.0, "high_s": 1.0, "samples": 10}
    return frame({name: [value] * 6 for name, value in (same | rest).items()} | own | changed)


def test_variants_are_listed_in_the_suites_order() -> None:
    assert list(on_a_ladder()["variant"])[::2] == ["naive", "tiled", "copy"]
    assert list(on_a_ladder(variant_index=[None] * 6)["variant"])[::2] == ["copy", "naive", "tiled"]


def test_relative_speed_is_of_the_same_replica_and_in_the_summary_of_the_levels() -> None:
    table = on_a_ladder()
    assert list(table["relative_speed"]) == [0.125, 0.5, 0.5, 0.25, 1.0, 1.0]
    assert list(summary(table)["relative_speed"]) == pytest.approx([0.25, 1 / math.sqrt(8), 1.0])
    assert details(summary(table).to_dict("records")[0]).relative_speed == pytest.approx(0.25)


def test_a_reference_variant_at_another_point_or_a_wrong_or_absent_one_does_not_count():
    others = {
        "device": ("G", "H"),
        "cache": ("cold", "warm"),
        "point": ("n=2", "n=3"),
        "version": (1, 2),
        "run": (1, 2),
    }
    for differs, (here, there) in others.items():
        table = summary(on_a_ladder(**{differs: [here, there, here] * 2}))
        shares = dict(zip(table["variant"], table["relative_speed"], strict=True))
        assert shares["copy"] == 1.0, differs
        assert math.isnan(shares["tiled"]), differs
    wrong = on_a_ladder(status=["ok", "wrong", "ok", "ok", "ok", "ok"])
    assert summary(wrong)["relative_speed"].isna().all()
    both, alone = on_a_ladder(relative_to=["copy", "copy", ""] * 2), on_a_ladder(relative_to=[""] * 6)
    for table in (alone, summary(alone), summary(both[both["relative_to"] != "copy"])):
        assert (table["relative_to"] == "").all()
        assert table["relative_speed"].isna().all()


# --- what stands beside the times ------------------------------------------------------------------------------------


def test_the_summary_aggregates_each_column_in_its_own_way() -> None:
    rates = {"warmup": [10, 20, 30, 0], "rejected_batches": [1, 0, 2, 0], "sm_clock_hz": [1e9, 2e9, 3e9, None]}
    right = rates | {"temperature_c": [50.0, 70.0, 60.0, None], "peak_share": [0.5, 0.5, 0.5, None]}
    right |= {"stopped": ["precision", "sample cap", "precision", ""], "status": ["ok"] * 3 + ["skipped"]}
    right |= {"note": ["not blocked", "waited; not blocked", "", ""]}
    right |= {"slowdowns": ["power cap", "power cap, thermal slowdown", "", ""]}
    tree, skipped = summary(frame(columns(**right))).to_dict("records")
    assert (tree["warmup"], tree["rejected_batches"], tree["sm_clock_hz"], tree["temperature_c"]) == (60, 3, 2e9, 70)
    assert (tree["stopped"], tree["note"]) == ("precision; sample cap", "not blocked; waited")
    assert tree["slowdowns"] == "power cap, thermal slowdown"
    assert (tree["peak_share"], tree["noise_within"]) == (pytest.approx(0.5), 0.004)
    assert math.isnan(skipped["peak_share"])
    result = details(tree)
    assert (result.sm_clock_hz, result.note, result.rejected_batches) == (2e9, "not blocked; waited", 3)


def test_replicas_that_come_nearest_to_another_peak_do_not_count_for_the_share():
    peaks = {"peak": ["memory", "fp32", "memory", None], "peak_share": [0.5, 0.9, 0.5, None]}
    same = {
        name: [columns()[name][0]] * 4 for name in ("case", "variant", "point", "cache", "device") if name in columns()
    }
    (row, *_) = summary(frame(columns(**peaks, **same, replica=[0, 1, 2, 3], status=["ok"] * 4))).to_dict("records")
    assert (row["peak"], row["peak_share"]) == ("memory", pytest.approx(0.5))


def test_the_page_has_shares_metrics_details_the_reference_variant_and_cache_states(capsys):
    metrics = [{"latency_ms": 2.5, "sm_cycles": 1000.0}] * 3 + [{}]
    page = text_of("html", frame(columns(status=["ok"] * 3 + ["skipped"], metrics=metrics)), capsys)
    assert "copies 4.00 TB/s, reads 3.00 TB/s" in page
    for part in ('data-name="% of peak"', 'data-name="latency_ms"', "<dt>sm_cycles</dt><dd>1 000</dd>"):
        assert part in page
    assert "<dt>temperature</dt><dd>54 °C</dd>" in page
    bare = text_of("html", frame(columns(copy_bytes_per_s=[None] * 4, peak_share=[None] * 4)), capsys)
    assert 'data-name="% of peak"' not in bare
    held = columns(relative_to=["tree"] * 4, version=[1] * 4, status=["ok"] * 3 + ["skipped"])
    page = text_of("html", frame(held), capsys)
    assert '<td data-name="vs tree" class="number">1.00×</td>' in page
    assert "<dt>of reference variant</dt>" not in page
    same = {"case": ["dot/tree[n=4096]"] * 4, "variant": ["tree"] * 4, "status": ["ok"] * 4}
    page = text_of("html", frame(columns(cache=["cold", "cold", "warm", "warm"], **same)), capsys)
    assert "tree cold" in page
    assert "tree warm" in page


# --- parts -----------------------------------------------------------------------------------------------------------


OF_RUNS = {
    "run": [1, 2, 3, 4],
    "axes": [{"n": 4}, {"n": 5}, {"n": 5, "dtype": "f32"}, {}],
    "metrics": [{"steps": 1.0}, {}, {"bits": 2.0}, {}],
}
"""Four runs, a row each, whose rows have different axes and metrics."""


def in_parts() -> list[pd.DataFrame]:
    """Return the table of four runs in two parts."""
    following = further(OF_RUNS["axes"], ["steps", "bits"])
    halves = [{name: cells[at] for name, cells in columns(**OF_RUNS).items()} for at in (slice(2), slice(2, 4))]
    return [frame(half, following) for half in halves]


def test_parts_together_are_the_whole_table_and_its_file(tmp_path) -> None:
    parts, whole = in_parts(), frame(columns(**OF_RUNS))
    assert [str(part["n"].dtype) for part in parts] == ["Int64", "Int64"]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)
    for fmt in ("csv", "json", "markdown", "parquet"):
        write(in_parts, fmt, tmp_path / "parts")
        write(lambda: [pd.concat(in_parts(), ignore_index=True)], fmt, tmp_path / "whole")
        if fmt == "parquet":
            pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "parts"), pd.read_parquet(tmp_path / "whole"))
        else:
            assert (tmp_path / "parts").read_text() == (tmp_path / "whole").read_text(), fmt


def test_parts_without_rows_leave_no_trace_in_json(tmp_path: Path) -> None:
    none = frame({name: [] for name in columns()})
    parts = [none, *(part.assign(a=1) for part in in_parts()), none]
    write(lambda: parts, "json", tmp_path / "parts")
    assert len(json.loads((tmp_path / "parts").read_text())) == 4
    write(lambda: [none, none], "json", tmp_path / "none")
    assert json.loads((tmp_path / "none").read_text()) == []


def test_parquet_can_be_written_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(in_parts, "parquet", tmp_path / "pipe")
    reader.join(timeout=30)
    assert len(pd.read_parquet(BytesIO(read[0]))) == 4


def test_a_part_that_cannot_be_read_keeps_the_earlier_file(tmp_path: Path) -> None:
    def parts() -> Iterator[pd.DataFrame]:
        yield in_parts()[0]
        raise InfrastructureError("the database is gone", cure="find it")

    (tmp_path / "report").write_text("old")
    with pytest.raises(InfrastructureError, match="the database is gone"):
        write(parts, "csv", tmp_path / "report")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report", "old")]
