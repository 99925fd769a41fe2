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
    out = perfsvc("report", code=0).out
    assert "measured peak: copies 1.05 GB/s, reads 2.10 GB/s" in out
    assert [line for line in out.splitlines() if line.startswith(f"✓  {CASE}") and " 38 % " in line]


def test_the_peak_is_measured_once_a_run_is_no_case_of_it_and_may_be_missing(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-6}, **PLAUSIBLE})
    ended = perfsvc.fake("--replicas", "2", code=0)
    assert "peak/" not in ended.out
    assert perfsvc.rows("select count(copy_bytes_per_s) from run_devices") == [(1,)]
    assert perfsvc.rows("select count(*) from cases where benchmark = 'measured peak'") == [(0,)]
    assert perfsvc.rows("select count(*) from measurements") == [(6,)]
    perfsvc.play({"*": {"seconds": 1e-6}, "peak/copy": {"fault": "refused"}})
    ended = perfsvc.fake("--replicas", "1", code=0)
    assert "the memory of FAKE-0 could not be measured, so no share of it is shown: invalid configuration" in ended.err
    assert "of peak" not in ended.out
    assert "run 2: 3 ok" in ended.out
    assert perfsvc.rows("select count(copy_bytes_per_s) from run_devices") == [(1,)]


def test_work_beyond_the_peak_is_a_warning_and_the_time_stays(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}, **SLOW_MEMORY}, l2_bytes=100)
    ended = perfsvc.fake("--select", "*/alpha", "--format", "json", code=0)
    (row,) = ended.json["results"]
    (doubt,) = ended.json["doubts"]
    assert (row["status"], row["median_s"]) == ("ok", pytest.approx(1e-4))
    assert (doubt["case"], doubt["device"], doubt["cache"], doubt["declared"]) == (CASE, "FAKE-0", "cold", 800)
    assert doubt["rate"] == pytest.approx(8e6)
    assert doubt["peak_rate"] == pytest.approx(2 * MIB / 10)
    assert f"warning: {CASE} declares 800 bytes a launch, in its time 8.00 MB/s" in ended.err
    assert "cure: declare in work= what the problem has to read and write" in ended.err
    note = "its work is declared as more bytes than the GPU's memory can move in that time"
    assert row["notes"] == [note]
    assert f"! {CASE}: {note}" in " ".join(perfsvc("report", code=0).out.split("\n"))
    assert perfsvc.rows("select distinct note from measurements") == [(note,)]


def test_a_footprint_that_fits_the_cache_is_not_doubted(perfsvc):
    for l2_bytes in (0, 201):
        perfsvc.play({"*": {"seconds": 1e-4}, **SLOW_MEMORY}, l2_bytes=l2_bytes)
        ended = perfsvc.fake("--select", "*/alpha", "--replicas", "1", "--format", "json", code=0)
        assert (ended.json["doubts"], ended.err) == ([], "")


def test_arithmetic_and_the_l2_cache_are_measured_once_for_each_driver_and_power_limit(perfsvc):
    peaks = {"peak": {"seconds": 1e-3}, "peak/fp32": {"seconds": 1e-3}, **PLAUSIBLE}
    perfsvc.play({"*": {"seconds": 1e-6}, **peaks}, l2_bytes=1 << 20)
    first = perfsvc.fake("--replicas", "1", "--format", "json", code=0)
    (measured,) = first.json["peaks"]
    names = {"fp32", "fp64", "fp64_tensor", "tf32", "bf16", "fp16", "fp8", "l2"}
    assert measured.keys() == {*ROOF, *names}
    assert perfsvc.rows("select count(*) from gpu_peaks") == [(len(names),)]
    assert perfsvc.rows("select count(*) from measurements") == [(3,)]
    slower = {name: times | ({"seconds": 2e-3} if name == "peak" else {}) for name, times in peaks.items()}
    perfsvc.play({"*": {"seconds": 1e-6}, **slower}, l2_bytes=1 << 20)
    (again,) = perfsvc.fake("--replicas", "1", "--format", "json", code=0).json["peaks"]
    assert {name: again[name] for name in names} == {name: measured[name] for name in names}
    perfsvc.play({"*": {"seconds": 1e-6}, **slower}, l2_bytes=1 << 20, driver="newer")
    (other,) = perfsvc.fake("--replicas", "1", "--format", "json", code=0).json["peaks"]
    assert other["fp32"] == measured["fp32"]  # it has a time of its own
    assert other["fp64"] == pytest.approx(measured["fp64"] / 2)


@pytest.mark.parametrize(("flops", "doubts"), [(10_000, 0), (30_000, 1)])
def test_a_case_that_computes_is_shown_as_a_share_of_the_peak_of_its_precision(perfsvc, flops, doubts):
    suite = perfsvc.own("scale")
    bench = suite / "scale" / "bench.py"
    bench.write_text(bench.read_text().replace("flops=n)", f"flops={flops} * n)"))
    perfsvc.play({"*": {"seconds": 1e-6}, "peak": {"seconds": 1e-3}, **PLAUSIBLE}, l2_bytes=1 << 20)
    run = ("run", "--device", f"fake:{perfsvc.script}", "--suite", suite, "--select", "*/alpha", "--replicas", "1")
    ended = perfsvc(*run, "--format", "json", code=0)
    (measured,) = ended.json["peaks"]
    (row,) = ended.json["results"]
    share = 100 * flops / 1e-6 / measured["fp32"]
    assert (row["peak"], row["peak_share"]) == ("fp32", pytest.approx(share, rel=1e-6))
    assert len(ended.json["doubts"]) == doubts
    assert ("more than the measured FP32 peak of FAKE-0" in ended.err) == bool(doubts)
    out = perfsvc("report", code=0).out
    assert f" {100 * share:.0f} % FP32 " in out
    assert "reads 2.10 GB/s, FP32 2.01 TFLOP/s" in out


def test_a_peak_that_a_case_exceeds_is_measured_again_in_the_next_run(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-9}, "peak": {"seconds": 10.0}, **PLAUSIBLE}, l2_bytes=1 << 20)
    run = ("--select", "*/alpha", "--replicas", "1", "--format", "json")
    first = perfsvc.fake(*run, code=0)
    assert [doubt["peak"] for doubt in first.json["doubts"]] == ["fp32"]
    perfsvc.play({"*": {"seconds": 1e-9}, "peak": {"seconds": 1e-3}, **PLAUSIBLE}, l2_bytes=1 << 20)
    second = perfsvc.fake(*run, code=0)
    assert second.json["doubts"] == []
    (before,), (after,) = first.json["peaks"], second.json["peaks"]
    assert after["fp32"] == pytest.approx(1e4 * before["fp32"])
    assert after["bf16"] == before["bf16"]
