"""Speeds relative to a variant, and the plot of variants."""

import json

import pytest

VARIANTS = ["one_block", "blocks", "absent", "copy", "mistaken"]
TIMES = {"ladder/one_block": 8e-6, "ladder/blocks": 2e-6, "ladder/copy": 1e-6, "ladder/mistaken": 1e-6}


@pytest.fixture(scope="module")
def scripted(new_workplace):
    """Return a workplace with a run of known times at both points."""
    workplace = new_workplace()
    workplace.play({name: {"seconds": seconds} for name, seconds in TIMES.items()}, model="Fake H100")
    workplace.fake("--points", "full", "--replicas", "2", "--label", "night", suite="ladder", code=0)
    return workplace


def test_reports_exports_and_histories_have_the_relative_speed(scripted):
    table = scripted("report", "night", "--summary", "--format", "json", code=0).json
    shares = {(row["variant"], row["n"]): row["relative_speed"] for row in table}
    assert shares["one_block", 1000] == pytest.approx(0.125)
    assert shares["blocks", 2000] == pytest.approx(0.5)
    assert shares["copy", 2000] == 1.0
    assert shares["absent", 2000] is None
    assert {row["variant"]: row["variant_index"] for row in table} == {name: at for at, name in enumerate(VARIANTS)}
    lines = scripted("report", "night", code=0).out.splitlines()
    assert [" 0.12×" in line for line in lines if "ladder/one_block[n=2000]" in line] == [True]
    page = scripted("report", "night", "--format", "html", code=0).out
    assert '<td data-name="vs copy" class="number">0.50×</td>' in page
    assert "vs copy" in scripted("show", "ladder/blocks[n=1000]", code=0).out
    newest = scripted("show", "ladder/one_block[n=2000]", "--format", "json", code=0).json[-1]
    assert newest["details"]["relative_speed"] == pytest.approx(0.125)


# --- the plot --------------------------------------------------------------------------------------------------------


def drawn(workplace, *arguments):
    """Return the texts of a plot; each is in a comment beside its glyphs."""
    path = workplace.folder / "ladders.svg"
    ended = workplace("plot", *arguments, "-o", path, code=0)
    assert (ended.out, ended.err) == ("", "")
    lines = path.read_text().splitlines()
    return [line.strip().removeprefix("<!-- ").removesuffix(" -->") for line in lines if "<!-- " in line]


def test_a_stored_run_is_drawn_variant_by_variant(scripted):
    texts = drawn(scripted, "night")
    assert [text for text in texts if text in VARIANTS] == [
        *VARIANTS,
        "copy",
    ] * 2  # the reference variant's line is named as well
    assert "Fake H100" in texts
    assert any(text.startswith("run 1 · night · 2") for text in texts)
    for text in ("n=1000", "n=2000", "8.00 GB/s", "16.0 GB/s", "vs copy", "0.12×", "skipped"):
        assert text in texts, text


@pytest.mark.quick
def test_only_selected_cases_are_drawn_with_their_reference_variant(scripted):
    texts = drawn(scripted, "night", "--select", "ladder/blocks", "--exclude", "*[n=1000]")
    assert {"blocks", "n=2000", "0.50×", "copy"} <= set(texts)
    assert not {"one_block", "n=1000"} & set(texts)


def test_the_suffix_chooses_the_picture_format(scripted):
    for name in ("ladders.png", "ladders.pdf"):
        scripted("plot", "night", "--output", scripted.folder / name, code=0)
        assert (scripted.folder / name).stat().st_size > 5000


def test_an_impossible_plot_is_refused_and_leaves_no_file(scripted):
    for message, arguments in {
        "'ladders.txt' has no suffix of a picture": ("-o", "ladders.txt"),
        "has no rate of a selected case": ("-o", "x.svg", "--select", "*/absent"),
        "has no rate of a selected case on GPU-1": ("-o", "x.svg", "--device", "GPU-1"),
        "Missing option '--output' / '-o'": (),
    }.items():
        assert message in scripted("plot", "night", *arguments, code=2).err
        assert not (scripted.folder / "x.svg").exists()


def test_a_run_with_several_devices_needs_a_device_option(new_workplace):
    workplace = new_workplace()
    other = workplace.folder / "other.json"
    for path, uuid in ((workplace.script, "FAKE-1"), (other, "FAKE-2")):
        path.write_text(json.dumps({"uuid": uuid, "model": uuid}))
    workplace.fake("--device", f"fake:{other}", "--replicas", "1", "--select", "*/blocks", suite="ladder", code=0)
    ended = workplace("plot", "-o", "x.svg", code=2)
    assert "--device FAKE-1 or --device FAKE-2" in ended.err
    texts = drawn(workplace, "--device", "FAKE-2")
    assert "FAKE-2" in texts
