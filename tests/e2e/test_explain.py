"""``perfsvc explain`` on reports of Nsight Compute."""

from pathlib import Path

import pytest

CAUSES = Path(__file__).parents[1] / "gpu" / "suites" / "causes"


@pytest.fixture
def explain(perfsvc):
    """Types ``perfsvc explain`` in an empty folder."""
    return lambda *arguments, code=0: perfsvc("explain", *arguments, code=code)


@pytest.fixture
def reports(ncu_report):
    return ncu_report("transpose-padded"), ncu_report("transpose-tiled")


def test_a_transpose_is_slower_without_padding_and_faster_with_it_for_its_bank_conflicts(explain, reports, tmp_path):
    done = explain(*reports, "--output", "why.html")
    assert done.err == ""
    assert "2.0 × slower: shared-memory bank conflicts (loads 1-way → 32-way) can account for all of it." in done.out
    assert "shared_bank_conflicts" in done.out
    page = (tmp_path / "why.html").read_text()
    assert page.startswith("<!doctype html>")
    assert done.out.splitlines()[4] in page
    assert "LDS R11, [R14]" in page
    for ending, head in {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}.items():
        explain(*reports, "--output", f"roofline.{ending}")
        assert (tmp_path / f"roofline.{ending}").read_bytes().startswith(head)
    explanation = explain(*reversed(reports), "--format", "json").json
    assert explanation["factor"] == pytest.approx(0.507, abs=1e-3)
    assert explanation["sentence"].startswith("2.0 × faster: fewer shared-memory bank conflicts")
    assert explanation["reasons"][0]["kind"] == "bank conflicts"


def test_another_kernel_an_invalid_report_and_another_kind_of_picture_are_refused(explain, reports, tmp_path):
    done = explain("none.ncu-rep", "none.ncu-rep", "--output", "roofline.gif", code=2)
    assert "write to a file such as why.html, or roofline.svg" in done.err
    broken = tmp_path / "broken.ncu-rep"
    broken.write_bytes(reports[1].read_bytes()[:1000])
    done = explain(broken, reports[0], code=2)
    assert done.out == ""
    assert "is not a whole report" in done.err
    assert "cure: profile the launch again" in done.err
    done = explain(*reports, "--kernel", "transpose_pad", code=2)
    assert "is a report of the kernel transpose_tiled, not of transpose_pad" in done.err


def test_kernels_that_differ_on_purpose_compute_the_same(perfsvc):
    shown = perfsvc(
        "run", "--device", "cpu", "--suite", CAUSES, "--replicas", 1, "--samples", 1, "--format", "json", code=0
    )
    results = shown.json["results"]
    others = {row["case"].partition("[")[0]: row["status"] for row in results if row["status"] != "ok"}
    assert others == dict.fromkeys(("product/tensor", "panel/loaded_ahead", "panel/loaded_at_once"), "skipped")
    assert len(results) == 44
