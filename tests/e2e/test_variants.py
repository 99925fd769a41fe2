"""Variants from the benchmark file to the plot: a variant with its own reference, metrics, variants in order."""

import json

import pytest

VARIANTS = ["one_block", "blocks", "absent", "copy", "mistaken"]
TIMES = {"ladder/one_block": 8e-6, "ladder/blocks": 2e-6, "ladder/copy": 1e-6, "ladder/mistaken": 1e-6}


@pytest.fixture(scope="module")
def on_the_cpu(new_workplace):
    """Return a workplace, and how its run on the CPU device ended."""
    workplace = new_workplace()
    return workplace, workplace.cpu("--replicas", "2", "--samples", "5", "--format", "json", suite="ladder", code=4)


@pytest.fixture(scope="module")
def scripted(new_workplace):
    """Return a workplace with a run of known times at both points."""
    workplace = new_workplace()
    workplace.play({name: {"seconds": seconds} for name, seconds in TIMES.items()}, model="Fake H100")
    workplace.fake("--points", "full", "--replicas", "2", "--label", "night", suite="ladder", code=0)
    return workplace


def variants(lines):
    """Return the variants at the first point, in the order of their lines."""
    cases = [line.split()[1] for line in lines if line[:3] in {"✓  ", "–  ", "✗  "}]
    return [case.removeprefix("ladder/").partition("[")[0] for case in cases if case.endswith("[n=1000]")]


def test_each_variant_is_compared_with_its_own_reference(on_the_cpu):
    rows = {row["variant"]: row for row in on_the_cpu[1].json["results"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "one_block": "ok",
        "blocks": "ok",
        "absent": "skipped",
        "copy": "ok",
        "mistaken": "wrong",
    }
    assert rows["copy"]["max_error"] == 0
    assert "the reference says" in rows["mistaken"]["reason"]


def test_a_variant_with_a_missing_package_is_skipped_with_the_reason(on_the_cpu):
    (absent,) = [row for row in on_the_cpu[1].json["results"] if row["variant"] == "absent"]
    package = "perfsvc_has_no_such_part"
    assert absent["reason"] == f"requires import {package}: the package {package} is not installed"


def test_metrics_are_read_from_buffers_and_stored(on_the_cpu):
    workplace, ended = on_the_cpu
    most = {"one_block": 1000, "blocks": 64, "copy": 64}
    rows = {row["variant"]: {one["metric"]: one["value"] for one in row["metrics"]} for row in ended.json["results"]}
    assert {name: rows[name] for name in most} == {
        name: {"most_of_a_block": value, "written": 1000} for name, value in most.items()
    }
    stored = workplace.rows(
        "SELECT variant, metrics.name, value FROM metrics JOIN measurements ON measurements.id = measurement_id "
        "JOIN cases ON cases.id = case_id WHERE replica = 1"
    )
    assert {(name, "most_of_a_block", value) for name, value in most.items()} <= set(stored)


def test_a_run_and_its_report_show_the_variants_in_order_with_relative_speeds(scripted):
    ended = scripted.fake("--points", "full", "--replicas", "1", suite="ladder", code=0)
    report = scripted("report", "latest", code=0)
    for text in (ended.out, report.out):
        lines = text.splitlines()
        assert variants(lines) == VARIANTS
        (line,) = [line for line in lines if "ladder/one_block[n=2000]" in line]
        assert " 0.12×" in line
        assert "vs copy" in text


def test_exports_have_the_relative_speed_and_the_variant_index(scripted):
    table = json.loads(scripted("report", "night", "--summary", "--format", "json", code=0).out)
    shares = {(row["variant"], row["n"]): row["relative_speed"] for row in table}
    assert shares["one_block", 1000] == pytest.approx(0.125)
    assert shares["blocks", 2000] == pytest.approx(0.5)
    assert shares["copy", 2000] == 1.0
    assert shares["absent", 2000] is None
    assert {row["variant"]: row["variant_index"] for row in table} == {
        name: variant_index for variant_index, name in enumerate(VARIANTS)
    }
    assert {row["relative_to"] for row in table} == {"copy"}
    page = scripted("report", "night", "--format", "html", code=0).out
    assert '<td data-name="vs copy" class="number">0.50×</td>' in page
    assert "vs copy" in scripted("show", "ladder/blocks[n=1000]", code=0).out


def test_the_history_of_a_case_has_its_relative_speed(scripted):
    newest = json.loads(scripted("show", "ladder/one_block[n=2000]", "--format", "json", code=0).out)[-1]
    assert newest["details"]["relative_to"] == "copy"
    assert newest["details"]["relative_speed"] == pytest.approx(0.125, rel=0.1)


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
