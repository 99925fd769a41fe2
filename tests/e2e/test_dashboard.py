"""The command ``perfsvc dashboard build``."""

import html
import json
import re

import pytest

from perfsvc.report import peaks
from perfsvc.report.pages.site import benchmark_page


@pytest.fixture
def measured(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)
    return perfsvc


def test_the_command_builds_a_site_in_the_named_folder_or_beside_the_database(measured):
    pages = measured.folder / "pages"
    ended = measured("dashboard", "build", pages, code=0)
    assert ended.out == f"{pages / 'index.html'}: 10 pages\n"
    assert "3</b> new" in (pages / "index.html").read_text()
    measured("dashboard", "build", code=0)
    assert (measured.folder / "site" / "index.html").exists()
    (measured.folder / "perfsvc.toml").write_text('[dashboard]\nfolder = "public"\n')
    measured("dashboard", "build", code=0)
    assert (measured.folder / "public" / "index.html").exists()
    (measured.folder / "mine").mkdir()
    (measured.folder / "mine" / "index.html").write_text("mine")
    ended = measured("dashboard", "build", measured.folder / "mine", code=2)
    assert "did not write: index.html" in ended.err
    assert "cure: name an empty folder" in ended.err


def test_without_a_database_no_folder_is_made(perfsvc):
    ended = perfsvc("dashboard", "build", perfsvc.folder / "pages", code=5)
    assert "there is no database" in ended.err
    assert not (perfsvc.folder / "pages").exists()


def bars_of(page, title):
    """Return the rows of the tables below each heading with this title: the text of each cell."""
    for table in re.findall(rf"<h3 id=\"[^\"]*\">{re.escape(title)}</h3>(.*?)</table>", page, re.DOTALL):
        rows = re.findall(r"<tr.*?</tr>", table.partition("<tbody>")[2], re.DOTALL)
        yield [
            [" ".join(html.unescape(re.sub("<[^>]*>", " ", cell)).split()) for cell in re.split("</t[dh]>", row)[:-1]]
            for row in rows
        ]


def test_the_page_of_a_benchmark_has_the_numbers_of_the_report_for_each_gpu_model(perfsvc):
    times = {"scale/alpha": {"seconds": 2e-4}, "scale/beta": {"seconds": 1e-4}, "scale/gamma": {"fault": "wrong"}}
    gpus = {"A": ("Fake GPU", times), "B": ("Fake GPU", {"*": {"seconds": 3e-4}}), "C": ("Other GPU", times)}
    devices = []
    for uuid, (model, cases) in gpus.items():
        (perfsvc.folder / f"{uuid}.json").write_text(json.dumps({"uuid": uuid, "model": model, "cases": cases}))
        devices += ["--device", f"fake:{uuid}.json"]
    ran = perfsvc("run", "--suite", perfsvc.own("scale"), *devices, "--points", "full", "--format", "json", code=4)
    perfsvc("dashboard", "build", perfsvc.folder / "pages", code=0)
    page = (perfsvc.folder / "pages" / benchmark_page("scale")).read_text()
    assert re.findall(r"<h2 id=\"gpu-\d+\">(.*?) <small>", page) == ["Fake GPU", "Other GPU"]
    pooled, other = bars_of(page, "n=4000")
    shares = {
        (row["device"], row["case"]): peaks.share(row["peak"], row["peak_share"])
        for row in ran.json["results"]
        if row["status"] == "ok"
    }
    assert [row[:1] + row[2:6] for row in other[:2]] == [
        ["beta", "100.0 µs", "±0.0 %", "fastest", shares["C", "scale/beta[n=4000]"]],
        ["alpha", "200.0 µs", "±0.0 %", "2.00×", shares["C", "scale/alpha[n=4000]"]],
    ]
    assert shares["C", "scale/alpha[n=4000]"]
    assert other[2][1] == "wrong"
    assert [(row[0].split(" ")[0], row[2], row[4]) for row in pooled] == [
        ("beta", "200.0 µs", "fastest"),
        ("alpha", "250.0 µs", "1.25× tied"),
        ("gamma", "300.0 µs", "1.50× tied"),
    ]
    assert "1 of 2 GPUs wrong: " in pooled[2][0]
