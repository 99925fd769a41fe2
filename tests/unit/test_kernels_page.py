"""The pages that tests/benchmarks/kernels_page.py writes, from a stored run of the CPU device."""

import importlib
import json
import re
from pathlib import Path

import pytest

from perfsvc import installation

ROOT = Path(__file__).parents[2]
STORED = ROOT / "tests" / "data" / "kernels_page" / "run.json"
PAGE = """\
# Kernels

<!-- measured: transpose -->
old
<!-- end -->

The story.

<!-- measured: dot -->
kept
<!-- end -->
"""


@pytest.fixture
def script(monkeypatch):
    """Return the script, imported with its own folder on the path."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "benchmarks")
    return importlib.import_module("kernels_page")


@pytest.fixture
def docs(tmp_path):
    """Return a folder with the page of explanations before the script ran."""
    (tmp_path / "measured").mkdir()
    (tmp_path / "explanation").mkdir()
    (tmp_path / "explanation" / "kernels.md").write_text(PAGE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def pages(script, docs):
    """Return a function that lets the script write the pages of rows, by default the stored rows."""

    def written(*rows):
        run = docs / "run.json"
        run.write_text(json.dumps(rows) if rows else STORED.read_text(encoding="utf-8"), encoding="utf-8")
        assert script.main([str(run), "--docs", str(docs), "--command", "perfsvc run --device cpu"]) == 0
        return [(docs / folder / "kernels.md").read_text(encoding="utf-8") for folder in ("explanation", "measured")]

    return written


@pytest.fixture
def rows():
    return json.loads(STORED.read_text(encoding="utf-8"))


def test_a_benchmark_has_a_row_for_each_correct_variant_at_its_largest_point(pages):
    page, _ = pages()
    assert (
        pages()[0]
        == page
        == (
            "# Kernels\n\n"
            "<!-- measured: transpose -->\n\n"
            "| variant | at | median | rate | of reference variant | max error |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: |\n"
            "| `naive` | n=4096 | 149.8 ms | 896 MB/s | 5 % | 0 |\n"
            "| `copy` | n=4096 | 6.914 ms | 19.4 GB/s | 100 % | 0 |\n\n"
            "<!-- end -->\n\n"
            "The story.\n\n"
            "<!-- measured: dot -->\nkept\n<!-- end -->\n"
        )
    )


def test_every_case_has_its_measurements_or_a_reason(pages, rows):
    _, measured = pages()
    toolkit, commit = rows[0]["toolkit"], rows[0]["commit"][:9]
    assert f"\n\n2026-11-21 · AMD EPYC · {toolkit} · commit {commit}+\n\n" in measured
    assert "`perfsvc run --device cpu`" in measured
    assert "| `naive` | n=256 | 956.5 µs | ±181.0 % | 548 MB/s | 6 % | 0 | 0 |" in measured
    assert "- `transpose/cupy[n=8192]` skipped: requires cuda: this is the CPU device" in measured
    assert len(re.findall(r"^(?:\| `|- `)", measured, re.MULTILINE)) == len(rows)


def test_a_benchmark_without_a_correct_result_keeps_its_table(pages, rows):
    page, measured = pages(*(row | {"status": "failed", "reason": "no"} for row in rows))
    assert page == PAGE
    assert "## transpose\n\n- `transpose/naive[n=256]` failed: no\n" in measured


def test_a_benchmark_without_a_marker_on_the_page_and_several_runs_are_refused_before_anything_is_written(
    pages, rows, docs, capsys
):
    with pytest.raises(SystemExit):
        pages(*(row | {"benchmark": "scan"} for row in rows))
    assert "has no place for scan: write <!-- measured: scan -->" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        pages(*rows, rows[0] | {"run": 2})
    assert "holds 2 runs and devices" in capsys.readouterr().err
    assert not (docs / "measured" / "kernels.md").exists()


def test_the_page_has_a_marker_for_every_benchmark_of_the_suite():
    page = (ROOT / "docs" / "explanation" / "kernels.md").read_text("utf-8")
    places = re.findall(r"^<!-- measured: (\w+) -->$", page, re.MULTILINE)
    assert sorted(places) == sorted(file.parent.name for file in installation.data_folder("kernels").glob("*/bench.py"))
