"""The measured peaks of a run's devices."""

from dataclasses import replace

import pytest

from perfsvc.model import Case, DeviceInfo, Measurement, Peak, Status
from perfsvc.service.peaks import kernels, sampling
from perfsvc.service.peaks import specs as peaks_of
from perfsvc.service.peaks.collector import PeakCollector
from perfsvc.store import Store

PLAIN = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
GPU = replace(PLAIN, multiprocessors=2, l2_bytes=1 << 20, driver="580", power_limit_w=700.0)
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "AMD EPYC", "cpu-x86_64")
MIB = 1 << 20
OTHERS = ["fp32", "fp64", "fp64_tensor", "tf32", "bf16", "fp16", "fp8", "l2"]


@pytest.fixture
def store(tmp_path):
    with Store.open(str(tmp_path / "perfsvc.db")) as opened:
        for device in (PLAIN, replace(PLAIN, uuid="FAKE-2"), CPU):
            opened.devices.put(device)
        yield opened


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def collect(store, messages, provenance):
    def collect(*devices: DeviceInfo, **options: object) -> PeakCollector:
        return PeakCollector(store, store.runs.begin(provenance), devices, messages.append, **options)

    return collect


@pytest.fixture
def provenance():
    from datetime import UTC, datetime

    from perfsvc.model import Provenance

    return Provenance(datetime.now(UTC), "perfsvc run", "kernels")


def measured(variant: str, seconds: float, status: Status = Status.OK, *, version: int = kernels.OURS) -> Measurement:
    times = (seconds,) * 9 if status is Status.OK else ()
    reason = "" if status is Status.OK else "out of memory"
    return Measurement(Case("peak", variant, version=version), "FAKE-1", 0, status, reason=reason, samples_s=times)


def names(specs) -> list[str]:
    return [spec.case.variant for spec in specs]


def test_the_peak_of_the_memory_is_the_rate_of_its_two_cases(collect, store, messages):
    peaks = collect(PLAIN)
    assert names(peaks.unknown("FAKE-1")) == ["copy", "read"]
    assert peaks.take(measured("read", 1e-3))
    assert peaks.rates("FAKE-1") == {}
    assert peaks.take(measured("copy", 1e-3))
    assert peaks.rates("FAKE-1") == {"memory": 2 * MIB / 1e-3}
    assert store.devices.peaks(1) == {"FAKE-1": Peak(2 * MIB / 1e-3, MIB / 1e-3)}
    assert (names(peaks.unknown("FAKE-1")), messages) == ([], [])


def test_a_resumed_run_keeps_the_peak_of_its_memory(collect):
    peaks = collect(PLAIN, memory_peaks={"FAKE-1": Peak(2.0, 3.0)})
    assert (peaks.unknown("FAKE-1"), peaks.rates("FAKE-1")) == ([], {"memory": 3.0})


def test_other_peaks_are_measured_once_for_each_driver_power_limit_and_version(collect, monkeypatch):
    peaks = collect(GPU)
    specs = {spec.case.variant: spec for spec in peaks.unknown("FAKE-1")}
    assert list(specs) == ["copy", "read", *OTHERS]
    for variant in ("fp32", "l2"):
        assert peaks.take(measured(variant, 1e-3))
    known = {"fp32": specs["fp32"].work.flops / 1e-3, "l2": specs["l2"].work.bytes / 1e-3}
    assert peaks.rates("FAKE-1") == pytest.approx(known)
    later = collect(GPU)
    assert later.rates("FAKE-1") == pytest.approx(known)
    assert names(later.unknown("FAKE-1")) == ["copy", "read", *(name for name in OTHERS if name not in known)]
    for changed in (replace(GPU, driver="590"), replace(GPU, power_limit_w=350.0)):
        assert names(collect(changed).unknown("FAKE-1")) == ["copy", "read", *OTHERS]
    monkeypatch.setattr(kernels, "VERSION", kernels.VERSION + 1)
    assert names(collect(GPU).unknown("FAKE-1")) == ["copy", "read", *OTHERS]


def test_a_peak_that_is_measured_again_replaces_the_old_one(collect, store):
    peaks = collect(GPU)
    for seconds in (1e-3, 2e-3):
        peaks.take(measured("fp32", seconds))
    flops = next(spec.work.flops for spec in peaks.unknown("FAKE-1") + kernels_of(GPU) if spec.case.variant == "fp32")
    assert store.devices.gpu_peaks(GPU, version=kernels.VERSION) == {"fp32": pytest.approx(flops / 2e-3)}


def test_peaks_of_other_kernels_are_deleted_and_doubted_ones_are_measured_again(collect, store):
    for name, version in (("fp32", kernels.VERSION - 1), ("bf16", kernels.VERSION), ("fp64", kernels.VERSION)):
        store.devices.put_gpu_peak(GPU, name, 1e12, version=version)
    peaks = collect(GPU)
    assert peaks.rates("FAKE-1") == {"bf16": 1e12, "fp64": 1e12}
    assert store.devices.gpu_peaks(GPU, version=kernels.VERSION - 1) == {}
    peaks.doubt("FAKE-1", "fp64")
    assert peaks.rates("FAKE-1") == {"bf16": 1e12, "fp64": 1e12}  # in this run
    assert "fp64" in names(collect(GPU).unknown("FAKE-1"))
    assert "bf16" not in names(collect(GPU).unknown("FAKE-1"))


def test_waiting_for_a_hot_gpu_and_sampling_are_limited():
    for spec in peaks_of(GPU):
        how = sampling(spec, 0.25)
        assert max(how.seconds, how.recovery_s) <= 0.25
        assert sampling(spec, 30.0).recovery_s <= 30.0


def kernels_of(device: DeviceInfo) -> list:
    return list(kernels.specs(device))


def test_cases_of_the_suite_are_not_taken_for_a_peak(collect):
    peaks = collect(PLAIN, CPU)
    assert not peaks.take(measured("copy", 1e-3, version=1))
    assert not peaks.take(replace(measured("copy", 1e-3), device="CPU-1"))


def test_a_peak_that_cannot_be_measured_is_reported_and_unknown(collect, messages):
    peaks = collect(GPU)
    for variant in ("copy", "fp8"):
        assert peaks.take(measured(variant, 1e-3, Status.FAILED))
    assert peaks.take(measured("read", 1e-3))
    assert peaks.rates("FAKE-1") == {}
    assert messages == [
        "the memory of FAKE-1 could not be measured, so no share of it is shown: out of memory",
        "the FP8 peak of FAKE-1 could not be measured, so no share of it is shown: out of memory",
    ]


def test_a_failure_of_both_cases_of_the_memory_is_reported_once_per_device(collect, messages):
    peaks = collect(PLAIN, replace(PLAIN, uuid="FAKE-2"))
    for device in ("FAKE-1", "FAKE-2"):
        for variant in ("copy", "read"):
            assert peaks.take(replace(measured(variant, 1e-3, Status.FAILED), device=device))
    assert [text.split()[3] for text in messages] == ["FAKE-1", "FAKE-2"]
