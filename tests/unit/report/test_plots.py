"""Ladders and their picture."""

import re
import sys
from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from perfsvc.errors import InfrastructureError, MissingPackageError, UsageError
from perfsvc.installation import install_command
from perfsvc.model import Status
from perfsvc.report.export.frames import frame, summary
from perfsvc.report.plots import variants
from perfsvc.report.plots.figure import TITLE
from perfsvc.report.plots.variants import PlotPanel, VariantRate, panels
from tests.unit.report import stored

COPIED, READ = 2.9e12, 3.0e12


def row(variant, variant_index, median_s, **changed):
    """Return a measurement of a benchmark that moves 6 MB."""
    times = dict.fromkeys(("median_s", "low_s", "high_s"), median_s)
    own = {"benchmark": "transpose", "case": f"transpose/{variant}", "variant": variant, "point": "n=2", "version": 1}
    own |= {"variant_index": variant_index, "relative_to": "copy", "status": "ok" if median_s else "skipped"}
    own |= {"bandwidth_bytes_per_s": 6e6 / median_s if median_s else None, "peak": "memory" if median_s else None}
    own |= {"peak_share": 6e6 / median_s / READ if median_s else None, "read_bytes_per_s": READ}
    return stored.ONE | times | own | {"copy_bytes_per_s": COPIED} | changed


def panels_of(*rows):
    columns = {name: [one[name] for one in rows] for name in rows[0]}
    return panels(summary(frame(columns)))


def test_a_panel_has_its_variants_in_order_with_rates_and_shares():
    (panel,) = panels_of(row("copy", 2, 2.5e-6), row("tiled", 1, 5e-6), row("naive", 0, 2e-5), row("cupy", 3, None))
    assert (panel.benchmark, panel.point, panel.cache, panel.unit) == ("transpose", "n=2", "", "B/s")
    assert panel.variants == (
        VariantRate("naive", Status.OK, pytest.approx(3e11), pytest.approx(0.125), "memory", pytest.approx(0.1)),
        VariantRate("tiled", Status.OK, pytest.approx(1.2e12), pytest.approx(0.5), "memory", pytest.approx(0.4)),
        VariantRate("copy", Status.OK, pytest.approx(2.4e12), pytest.approx(1.0), "memory", pytest.approx(0.8)),
        VariantRate("cupy", Status.SKIPPED, None, None, "", None),
    )
    assert (panel.relative_to, panel.relative_rate) == ("copy", pytest.approx(2.4e12))
    assert (panel.peak, panel.peak_name) == (pytest.approx(READ), "memory")
    assert panel.top == panel.peak


def test_an_unselected_reference_variant_still_has_its_line():
    table = [row("tiled", 1, 5e-6), row("copy", 2, 2.5e-6)]
    columns = {name: [one[name] for one in table] for name in table[0]}
    whole = summary(frame(columns))
    (panel,) = panels(whole[whole["variant"] == "tiled"])
    assert [variant_index.variant for variant_index in panel.variants] == ["tiled"]
    assert (panel.relative_to, panel.relative_rate) == ("copy", pytest.approx(2.4e12))


def test_without_reference_and_peak_there_are_no_lines():
    (panel,) = panels_of(
        row("naive", 0, 2e-5, relative_to="", peak=None, peak_share=None, copy_bytes_per_s=None, read_bytes_per_s=None)
    )
    assert (panel.relative_to, panel.relative_rate, panel.peak) == ("", None, None)
    assert panel.variants[0].relative_speed is None
    assert panel.top == pytest.approx(3e11)
    (panel,) = panels_of(row("naive", 0, 8e-6))
    assert panel.peak is None  # it is far above all bars
    assert panel.variants[0].peak_share == 0.25
    assert panels_of(row("a", 0, None)) == panels_of(row("a", 0, 1e-5, bandwidth_bytes_per_s=None)) == []


def test_arithmetic_cases_are_drawn_in_flops_with_the_peak_of_their_precision():
    of_fp32 = {"flops_per_s": 1e14, "peak": "fp32", "peak_share": 0.5}
    (panel,) = panels_of(row("naive", 0, 2.5e-6, **of_fp32), row("copy", 1, None, flops_per_s=None))
    assert (panel.unit, panel.variants[0].rate, panel.peak, panel.peak_name) == (
        *("FLOP/s", pytest.approx(1e14), pytest.approx(2e14), "fp32"),
    )
    assert (panel.variants[0].peak, panel.variants[0].peak_share) == ("fp32", 0.5)
    (panel,) = panels_of(row("naive", 0, 2.5e-6, flops_per_s=1e14))  # it is limited by memory, in another unit
    assert (panel.unit, panel.peak, panel.variants[0].peak) == ("FLOP/s", None, "memory")
    (panel,) = panels_of(row("naive", 0, 2.5e-6, flops_per_s=2e13))
    assert panel.unit == "B/s"


def test_each_point_and_cache_state_has_a_panel_and_both_cache_states_are_named():
    found = panels_of(
        row("a", 0, 1e-5), row("a", 0, 1e-5, case="transpose/a[n=3]", point="n=3"), row("a", 0, 1e-5, cache="warm")
    )
    assert [(panel.point, panel.cache) for panel in found] == [("n=2", "cold"), ("n=2", "warm"), ("n=3", "cold")]


# --- the picture -----------------------------------------------------------------------------------------------------

PRODUCTS = (
    VariantRate("naive", Status.OK, 6.54e12, 0.13, "fp32", 0.1),
    VariantRate("global_accumulation-ITEMS16", Status.WRONG, None, None, "", None),
    VariantRate("cublas", Status.OK, 51.1e12, 1.0, "fp32", 0.77),
)
COPIES = (
    VariantRate("one_thread", Status.OK, 4.4e7, 0.0001, "memory", 0.0001),
    VariantRate("$x_1$", Status.OK, 2.75e12, 0.97, "memory", 0.93),
    VariantRate("cupy", Status.SKIPPED, None, None, "", None),
    VariantRate("copy", Status.OK, 2.83e12, 1.0, "memory", 0.95),
)
MATMUL = PlotPanel("matmul", "m=4096,n=4096,k=4096", "", "FLOP/s", PRODUCTS, "cublas", 51.1e12, 66.4e12, "fp32")
AT = "n=67108864,index=divergent"
COPY = PlotPanel("constant_memory", AT, "warm", "B/s", COPIES, "copy", 2.83e12, 2.97e12, "memory")
TINY = PlotPanel("v", "", "", "B/s", (VariantRate("v", Status.OK, 12.0, None, "", None),))
TITLES = ("NVIDIA H100 80GB HBM3", "run 7  ·  nightly  ·  2026-11-21")


def texts_of(*drawn):
    figure = variants._draw(drawn, *TITLES)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return figure, {text: text.get_window_extent(renderer) for text in shown}


def test_every_variant_has_its_numbers_and_long_and_odd_names_are_whole():
    _, places = texts_of(MATMUL, COPY, TINY)
    written = [text.get_text() for text in places]
    of_matmul = ("matmul", "m=4096, n=4096, k=4096", "naive", "6.54 TFLOP/s", "0.13×", "wrong", "51.1 TFLOP/s")
    cublas = ("TFLOP/s", "vs cublas", "FP32 peak, 66.4 TFLOP/s", "77 % FP32", "cublas")
    of_copy = ("constant_memory", "n=67108864, index=divergent warm", "44.0 MB/s", "<1 %", "2.75 TB/s", "0.97×", "93 %")
    copy = ("% of peak", "vs copy", "peak, 2.97 TB/s", "copy", "skipped", "$x_1$", "12.0 B/s")
    assert {*TITLES, *of_matmul, *cublas, *of_copy, *copy} <= set(written)
    # Matplotlib leaves labels that begin so out of a legend that it makes itself, and before 3.10 out of every legend.
    _, places = texts_of(replace(COPY, relative_to="_copy"))
    assert [text.get_text() for text in places].count("_copy") == 1
    figure = variants._draw([TINY], "A" * 200, "run 1")
    assert figure.get_figwidth() > variants._text_width("A" * 200, TITLE)


def test_no_text_is_cut_off_and_no_texts_overlap():
    for drawn in ((TINY,), (COPY, MATMUL, TINY)):
        figure, places = texts_of(*drawn)
        whole = figure.bbox
        for text, place in places.items():
            assert whole.x0 <= place.x0 <= place.x1 <= whole.x1, text.get_text()
            assert whole.y0 <= place.y0 <= place.y1 <= whole.y1, text.get_text()
        for (one, first), (other, second) in combinations(places.items(), 2):
            assert not first.overlaps(second), (one.get_text(), other.get_text())


def test_bars_are_as_long_as_their_rates_and_the_reference_has_its_colour():
    (axes,) = variants._draw([COPY], *TITLES).axes
    assert [bar.get_width() for bar in axes.patches] == [variant.rate or 0 for variant in COPY.variants]
    colours = {bar.get_facecolor() for bar in axes.patches[:3]}
    assert len(colours) == 1
    assert axes.patches[3].get_facecolor() not in colours
    assert axes.yaxis_inverted()
    assert [line.get_xdata()[0] for line in axes.lines] == [COPY.relative_rate, COPY.peak]


@pytest.mark.slow
def test_the_same_panels_give_the_same_file_whatever_the_users_settings(tmp_path, monkeypatch):
    import matplotlib as mpl

    for suffix, begins in {"svg": b"<?xml", "PNG": b"\x89PNG", "pdf": b"%PDF"}.items():
        first, second = tmp_path / f"1.{suffix}", tmp_path / f"2.{suffix}"
        drawn = [COPY if suffix == "svg" else TINY]
        variants.write(drawn, *TITLES, first)
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")  # what is not left to us would say another time now
        with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "none"}):
            variants.write(drawn, *TITLES, second)
            assert mpl.rcParams["font.size"] == 30
        assert first.read_bytes() == second.read_bytes(), suffix
        assert first.read_bytes().startswith(begins)
    text = (tmp_path / "1.svg").read_text()
    assert "<dc:date>" not in text
    assert "font-family" not in text  # it contains its glyphs
    assert re.search("<!-- one_thread -->", text)


def test_a_file_name_without_a_known_suffix_and_a_file_that_cannot_be_written_are_refused(tmp_path):
    for name in ("x", "x.jpg", "x.svg.gz"):
        with pytest.raises(UsageError, match="has no suffix of a picture") as refused:
            variants.write([TINY], *TITLES, tmp_path / name)
        assert ".svg, .pdf, .png" in refused.value.cure
    with pytest.raises(UsageError, match=r"no_folder/x\.svg cannot be written"):
        variants.write([TINY], *TITLES, tmp_path / "no_folder" / "x.svg")


def test_a_full_disk_keeps_the_earlier_picture(tmp_path, full_disk):
    for kind in ("svg", "pdf", "png"):
        picture = tmp_path / f"x.{kind}"
        picture.write_text("old")
        with pytest.raises(InfrastructureError, match=f"x.{kind} cannot be written: No space left on device"):
            variants.write([TINY], *TITLES, picture)
        assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(picture.name, "old")]
        picture.unlink()


def test_without_matplotlib_the_error_has_a_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match="matplotlib") as refused:
        variants.write([MATMUL], *TITLES, tmp_path / "x.svg")
    assert refused.value.cure == install_command("plot")
    assert not (tmp_path / "x.svg").exists()
