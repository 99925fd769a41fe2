"""The metrics that are computed for the pages of series."""

from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.model import MEMORY, PRECISIONS, CacheState, Case, DeviceInfo, Environment, Peak, Series, peak_of_case
from perfsvc.report.pages.site import RunPoints, SeriesView
from perfsvc.service.dashboard.series_details import gather_details
from perfsvc.store import CaseQuantities

GPU = DeviceInfo(kind="cuda", spec="cuda:GPU-1", uuid="GPU-1", model="NVIDIA H100", target="sm_90", l2_bytes=50)
ENVIRONMENTS = {1: Environment("575.1", "nvcc 12.9", 700.0), 2: Environment("580.1", "nvcc 13.0", 700.0)}
NAMES = [*PRECISIONS, ""]


@pytest.mark.parametrize("seed", range(12))
def test_shares_of_peaks_are_those_of_each_run_alone(seed):
    noise = np.random.default_rng(seed)
    cache = noise.choice(list(CacheState))
    series = Series(Case("copy", "tiled"), GPU.uuid, GPU.model, cache=CacheState(cache))
    runs = np.arange(1, 31)
    segments = np.where(runs > 20, 2, 1)
    level = np.where(noise.random(30) < 0.2, np.nan, noise.uniform(1e-6, 1e-3, 30))
    measured = np.sort(noise.choice(runs, 20, replace=False))

    def column(*values):
        return np.repeat(noise.choice(values, 4), 5).astype(float)

    quantities = CaseQuantities(
        measured,
        noise.uniform(0, 1e-6, 20),
        column(0, 20, 60, 200),
        column(0, 10, 1000),
        column(-1, 0, 1, 3).astype(np.int64),
        column(0, 0, 70),
        noise.choice([32.0, np.nan], 20),
        noise.choice([0.0, 64.0], 20),
    )
    rates = {"l2": 3e7, "fp64": 1e7, "fp64_tensor": 2e7, "fp32": 1e8, "link": 5e6}
    rates |= {MEMORY: 9e6} if seed % 2 else {}
    peaks = {(GPU.uuid, "575.1", 700.0): rates, (GPU.uuid, "580.1", 700.0): {"fp32": 2e7}}
    memory = {run: Peak(1e6 * run, 1.1e6 * run) for run in noise.choice(runs, 15, replace=False).tolist()}
    unknown = np.full(30, np.nan)
    view = SeriesView(series, RunPoints(runs, segments, level, unknown, unknown, np.full(30, 3)))
    store = SimpleNamespace(
        devices=SimpleNamespace(
            all=lambda: {GPU.uuid: GPU},
            peaks_of=lambda _: {GPU.uuid: memory},
            all_gpu_peaks=lambda: peaks,
            full_environments=lambda _: {},
        ),
        measurements=SimpleNamespace(quantities=lambda _runs, _cases: {series: quantities}),
    )
    found = gather_details(store, [], [view], ENVIRONMENTS, None).quantities(series)
    for place, run in enumerate(runs.tolist()):
        (at,) = np.flatnonzero(measured == run).tolist() or [None]
        expected = None
        if at is not None and not np.isnan(level[place]):
            environment = ENVIRONMENTS[int(segments[place])]
            of_run = dict(peaks[GPU.uuid, environment.driver, 700.0])
            if run in memory:
                of_run[MEMORY] = memory[run].best_bytes_per_s
            expected = peak_of_case(
                level[place],
                quantities.moved_bytes[at],
                quantities.flops[at],
                NAMES[quantities.precision[at]],
                of_run,
                warm=series.cache is CacheState.WARM,
                l2_bytes=GPU.l2_bytes,
                link_bytes=quantities.link_bytes[at],
            )
        assert found.peak[place] == (expected.peak if expected else "")
        assert found.peak_share[place] == pytest.approx(expected.share if expected else np.nan, nan_ok=True)
        assert found.error[place] == pytest.approx(np.nan if at is None else quantities.max_error[at], nan_ok=True)
        assert found.registers[place] == pytest.approx(np.nan if at is None else quantities.registers[at], nan_ok=True)
        moved = 0 if at is None else quantities.moved_bytes[at]
        assert found.bandwidth[place] == pytest.approx(moved / level[place] if moved else np.nan, nan_ok=True)
