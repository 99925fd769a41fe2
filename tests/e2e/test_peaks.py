"""Shares of the measured peak, on the fake device."""

import pytest

MIB = 1 << 20
CASE = "scale/alpha[n=100]"
PLAUSIBLE = {"peak/copy": {"seconds": 2e-3}, "peak/read": {"seconds": 0.5e-3}}
ROOF = {"device": "FAKE-0", "copy_bytes_per_s": MIB / 1e-3, "read_bytes_per_s": 2 * MIB / 1e-3}
SLOW_MEMORY = {"peak": {"seconds": 10.0}}
"""It copies 2 MiB in 10 s."""


def test_a_case_is_shown_as_a_share_of_the_better_peak(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-6}, **PLAUSIBLE})
    ended = perfsvc.fake("--format", "json", code=0)
    assert ended.json["peaks"] == [pytest.approx(ROOF)]
    share = 800 / 1e-6 / ROOF["read_bytes_per_s"]
    assert [row["peak_share"] for row in ended.json["results"]] == [pytest.approx(share, rel=1e-6)] * 3
    (first, *_) = perfsvc("report", "--format", "json", code=0).json
    assert first["peak_share"] == pytest.approx(share, rel=1e-6)
    *_, newest = perfsvc("show", CASE, "--format", "json", code=0).json
    assert newest["details"]["peak_share"] == pytest.approx(share, rel=1e-6)
    for out in (perfsvc.fake(code=0).out, perfsvc("report", code=0).out):
        assert "measured peak: copies 1.05 GB/s, reads 2.10 GB/s" in out
        (line,) = [line for line in out.splitlines() if line.startswith(f"✓  {CASE}")]
        assert " 38 % " in line


def test_the_peak_is_measured_once_a_run_and_is_no_case_of_it(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-6}, **PLAUSIBLE})
    ended = perfsvc.fake("--replicas", "2", code=0)
    assert "peak/" not in ended.out
    assert perfsvc.rows("select count(*) from peaks") == [(1,)]
    assert perfsvc.rows("select count(*) from cases where benchmark = 'measured peak'") == [(0,)]
    assert perfsvc.rows("select count(*) from measurements") == [(6,)]


def test_only_shares_are_missing_if_the_peak_cannot_be_measured(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-6}, "peak/copy": {"fault": "refused"}})
    ended = perfsvc.fake(code=0)
    assert "the memory of FAKE-0 could not be measured, so no share of it is shown: invalid configuration" in ended.err
    assert "of peak" not in ended.out
    assert "run 1: 3 ok" in ended.out
    assert perfsvc.rows("select count(*) from peaks") == [(0,)]


def test_the_cpu_device_has_no_peak(perfsvc):
    ended = perfsvc.cpu("--select", "*/alpha", "--replicas", "1", "--format", "json", suite="scale", code=0)
    assert ended.json["peaks"] == []
    assert [row["peak_share"] for row in ended.json["results"]] == [None]
    assert ended.err == ""


def test_work_beyond_the_peak_is_a_warning_and_the_time_stays(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}, **SLOW_MEMORY}, l2_bytes=100)
    ended = perfsvc.fake("--select", "*/alpha", "--format", "json", code=0)
    (row,) = ended.json["results"]
    (doubt,) = ended.json["doubts"]
    assert (row["status"], row["median_s"]) == ("ok", pytest.approx(1e-4))
    assert (doubt["case"], doubt["device"], doubt["cache"], doubt["declared_bytes"]) == (CASE, "FAKE-0", "cold", 800)
    assert doubt["bytes_per_s"] == pytest.approx(8e6)
    assert doubt["peak_bytes_per_s"] == pytest.approx(2 * MIB / 10)
    assert f"warning: {CASE} declares 800 bytes a launch, in its time 8.00 MB/s" in ended.err
    assert "cure: declare in work= what the problem has to read and write" in ended.err
    note = "its work is declared as more than the GPU's memory can move in that time"
    assert row["notes"] == [note]
    assert f"! {CASE}: {note}" in " ".join(perfsvc("report", code=0).out.split("\n"))
    assert perfsvc.rows("select distinct note from measurements") == [(note,)]


@pytest.mark.parametrize("l2_bytes", [0, 201])
def test_a_footprint_that_fits_the_cache_is_not_doubted(perfsvc, l2_bytes):
    perfsvc.play({"*": {"seconds": 1e-4}, **SLOW_MEMORY}, l2_bytes=l2_bytes)
    ended = perfsvc.fake("--select", "*/alpha", "--format", "json", code=0)
    assert ended.json["doubts"] == []
    assert ended.err == ""
