"""The metrics of the pages of series, the differences of sources, and the folder of a site after faults."""

from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.errors import InfrastructureError
from perfsvc.model import MEMORY, PRECISIONS, CacheState, Case, DeviceInfo, Environment, Peak, Series, peak_of_case
from perfsvc.report.pages.finding import ADDED, GAP, REMOVED, SAME
from perfsvc.report.pages.site import RunPoints, SeriesView
from perfsvc.service.dashboard.folder import writing
from perfsvc.service.dashboard.series_details import gather_details
from perfsvc.service.dashboard.sources import LONGEST_LINE, MOST_LINES, file_diff
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


# --- differences of two sources --------------------------------------------------------------------------------------


LINES = [f"line {number}" for number in range(1, 21)]


def diff(before, after):
    return file_diff("k/k.cu", (1, 2), "\n".join(before).encode(), "\n".join(after).encode())


def signs(found):
    return "".join({SAME: " ", ADDED: "+", REMOVED: "-", GAP: "~"}[line.sign] for line in found.lines)


def test_a_change_has_three_equal_lines_around_it_and_a_gap_for_the_others():
    found = diff(LINES, [*LINES[:9], "new", *LINES[10:]])
    assert signs(found) == "~   -+   ~"
    assert [line.text for line in found.lines if line.sign in {ADDED, REMOVED}] == ["line 10", "new"]
    assert [(line.before, line.after) for line in found.lines[1:-1]] == [
        (7, 7), (8, 8), (9, 9), (10, None), (None, 10), (11, 11), (12, 12), (13, 13),
    ]  # fmt: skip
    assert (found.added, found.removed, found.hidden) == (1, 1, 0)


def test_the_numbers_of_equal_lines_are_those_of_their_own_side():
    found = diff(LINES, ["a", "b", *LINES[:9], *LINES[10:]])
    equal = [(line.before, line.after) for line in found.lines if line.sign == SAME]
    assert equal[:3] == [(1, 3), (2, 4), (3, 5)]
    assert equal[-3:] == [(11, 12), (12, 13), (13, 14)]
    for line in found.lines:
        if line.sign == SAME:
            assert line.text == LINES[line.before - 1]


def test_changes_that_are_near_share_their_equal_lines():
    for apart in range(1, 12):
        changed = LINES.copy()
        changed[4], changed[4 + apart] = "x", "y"
        found = diff(LINES, changed)
        shown = [line.after for line in found.lines if line.after is not None]
        assert shown == sorted(set(shown))  # no line twice, none out of order
        between = [line.sign for line in found.lines].count(GAP) - 1 - (16 - apart > 4)
        assert between == (apart > 7)


def test_a_file_that_only_one_side_has_is_added_or_removed_as_a_whole():
    assert signs(diff([], ["a", "b"])) == "++"
    assert signs(diff(["a", "b"], [])) == "--"


def test_a_long_difference_is_cut_and_its_changed_lines_are_counted():
    found = diff([], [str(number) for number in range(1000)])
    assert len(found.lines) == MOST_LINES
    assert (found.added, found.hidden) == (1000, 1000 - MOST_LINES)


def test_a_long_line_loses_its_middle():
    (line,) = diff([], ["x" * 10_000]).lines
    assert len(line.text) == LONGEST_LINE
    assert "…" in line.text


def test_bytes_that_are_no_text_become_signs():
    found = file_diff("k/k.cu", (1, 2), b"", b"\xff\xfe\n")
    assert [line.text for line in found.lines] == ["\ufffd\ufffd"]


# --- the folder of a site --------------------------------------------------------------------------------------------


PAGES = [f"series/{number}.html" for number in range(16)]


def hidden(folder):
    """The temporary files in a folder."""
    return list(folder.rglob(".perfsvc-new-*"))


def test_a_failed_build_leaves_no_temporary_file(tmp_path):
    def fail():
        with writing(tmp_path, PAGES) as site:
            site.write(PAGES[0], b"page")
            (tmp_path / "series" / f".perfsvc-new-{32 * '0'}").touch()  # of a process that was killed
            raise OSError("the disk is full")

    with pytest.raises(InfrastructureError, match="cannot be written"):
        fail()
    assert hidden(tmp_path) == []
