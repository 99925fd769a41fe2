"""Doubts about the declared work of a case."""

from dataclasses import replace

import pytest

from perfsvc.model import Array, Buffer, CacheState, Case, DeviceInfo, Role, Work
from perfsvc.report.tables.run import doubt_text
from perfsvc.service.peaks import memory
from perfsvc.service.peaks.doubts import doubt, note

UNKNOWN_L2 = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
GPU = replace(UNKNOWN_L2, l2_bytes=1000)
RATES = {"memory": 3e6, "fp32": 1e6, "fp64": 2e5, "fp64_tensor": 4e5, "tf32": 8e6}


def declaring(work: Work, *, footprint: int = 4000) -> object:
    copy = memory.specs(UNKNOWN_L2)[0]
    buffer = Buffer(Array("x", "uint8", (footprint,)), Role.SCRATCH)
    return replace(copy, case=Case("scale", "x"), work=work, buffers=(buffer,))


@pytest.mark.parametrize(("nbytes", "doubted"), [(3150, False), (3151, True)])
def test_bytes_more_than_five_per_cent_above_the_peak_are_doubted(nbytes: int, doubted: bool) -> None:
    assert bool(doubt(declaring(Work(nbytes)), GPU, 1e-3, RATES)) is doubted


@pytest.mark.parametrize(
    ("footprint", "device", "rates"),
    [(3999, GPU, RATES), (4000, UNKNOWN_L2, RATES), (4000, GPU, {})],
    ids=["fits the cache", "cache unknown", "measured peak unknown"],
)
def test_a_footprint_that_may_fit_the_cache_is_not_doubted(footprint: int, device: DeviceInfo, rates: dict) -> None:
    assert doubt(declaring(Work(10**6), footprint=footprint), device, 1e-3, rates) is None


@pytest.mark.parametrize(
    ("flops", "precision", "doubted"),
    [
        (1250, "fp32", False),
        (1251, "fp32", True),
        (1251, "tf32", False),
        (500, "fp64", False),  # by the tensor cores
        (501, "fp64", True),
        (10**9, "bf16", False),  # not measured
        (10**9, "", False),
    ],
)
def test_operations_beyond_what_a_short_kernel_can_do_are_doubted(flops: int, precision: str, doubted: bool) -> None:
    assert bool(doubt(declaring(Work(flops=flops, precision=precision)), GPU, 1e-3, RATES)) is doubted


def test_tensor_cores_that_may_be_faster_than_our_kernels_are_no_reason_for_a_doubt() -> None:
    spec = declaring(Work(flops=10**9, precision="tf32"))
    assert doubt(spec, replace(GPU, target="sm_90"), 1e-3, RATES)
    assert doubt(spec, replace(GPU, target="sm_100"), 1e-3, RATES) is None


def test_a_doubt_shows_the_declared_bytes_the_rate_and_the_cure() -> None:
    doubted = doubt(declaring(Work(9000)), GPU, 1e-3, RATES)
    assert (doubted.case.id, doubted.cache, doubted.peak, doubted.declared) == (
        *("scale/x", CacheState.COLD, "memory", 9000),
    )
    text = doubt_text(doubted)
    for part in ("scale/x declares 9000 bytes", "9.00 MB/s", "FAKE-1", "3.00 MB/s", "cure: declare in work="):
        assert part in text
    assert note(doubted) == "its work is declared as more bytes than the GPU's memory can move in that time"


def test_a_doubt_about_operations_names_the_precision_and_how_to_declare_another() -> None:
    doubted = doubt(declaring(Work(flops=9000, precision="fp32")), GPU, 1e-3, RATES)
    text = doubt_text(doubted)
    for part in ("scale/x declares 9000 operations", "9.00 MFLOP/s", "measured FP32 peak of FAKE-1, 1.00 MFLOP/s"):
        assert part in text
    assert "a precision that differs from the inputs: tf32" in text
    assert note(doubted) == "its work is declared as more operations than the GPU can do in that time"
