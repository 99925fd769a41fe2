"""Which measured peak a case comes nearest to."""

from perfsvc.model import PeakShare, peak_of, peak_of_case, plausible

RATES = {"memory": 3e12, "l2": 8e12, "fp32": 60e12, "fp64": 30e12, "fp64_tensor": 60e12, "bf16": 900e12}


def test_the_nearest_peak_is_the_one_of_which_a_case_has_the_largest_share():
    cases = [
        (1.5e12, 6e12, "fp32", False, PeakShare("memory", 0.5)),
        (1.5e12, 45e12, "fp32", False, PeakShare("fp32", 0.75)),
        (6e12, 6e12, "fp32", True, PeakShare("l2", 0.75)),
        (1.5e12, 450e12, "bf16", False, PeakShare("memory", 0.5)),
        (1.5e12, 450e12, "fp8", False, PeakShare("memory", 0.5)),  # its peak is not known
        (0, 15e12, "fp64", False, PeakShare("fp64", 0.25)),
        (1.5e12, 0, "", False, PeakShare("memory", 0.5)),
        (0, 0, "fp32", False, None),
    ]
    assert [
        peak_of_case(1.0, moved_bytes, flops, precision, RATES, warm=in_l2, l2_bytes=2 * moved_bytes)
        for moved_bytes, flops, precision, in_l2, _ in cases
    ] == [nearest for *_, nearest in cases]


def test_double_precision_is_limited_by_the_faster_of_its_units():
    assert peak_of("fp64", RATES) == 60e12
    assert peak_of("fp64", {"fp64": 30e12}) == 30e12
    assert peak_of("", RATES) is None


def test_without_the_peak_of_the_l2_cache_a_case_in_it_has_no_share_of_the_memory():
    assert peak_of_case(1.0, 6e12, 0, "", {"memory": 3e12}, warm=True, l2_bytes=12e12) is None


def test_the_limit_of_fp64_is_unknown_without_the_tensor_cores_that_the_gpu_has():
    assert peak_of("fp64", {"fp64": 30e12, "tf32": 400e12}) is None


def test_a_rate_that_no_gpu_has_is_not_plausible():
    for rate in [0.0, -1.0, float("inf"), float("nan"), 5e-324, "fast", None]:
        assert not plausible(rate), rate
        assert plausible(1e12), rate


def test_the_bandwidth_of_a_warm_case_has_a_peak_only_where_its_arrays_are_known_to_be():
    for moved, l2, warm, share in [
        (100, 50, False, PeakShare("memory", 0.5)),
        (100, 200, True, PeakShare("l2", 0.25)),
        (100, 100, True, None),
        (100, 50, True, PeakShare("memory", 0.5)),
    ]:
        rates = {"memory": 20.0, "l2": 40.0}
        assert peak_of_case(10.0, moved, 0, "", rates, warm=warm, l2_bytes=l2) == share, (moved, l2, warm, share)


def test_a_case_without_a_time_has_no_share_of_a_peak():
    assert peak_of_case(None, 100, 0, "", {"memory": 20.0}, warm=False, l2_bytes=0) is None
    assert peak_of_case(2.0, 0, 30, "fp32", {"fp32": 30.0}, warm=False, l2_bytes=0) == PeakShare("fp32", 0.5)
    assert peak_of_case(2.0, 0, 0, "", {"link": 10.0}, warm=False, l2_bytes=0, link_bytes=5) == PeakShare("link", 0.25)
