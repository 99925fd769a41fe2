"""Whole nights on the CPU device, unattended: from perfsvc.toml to finding, message, report and page."""

import pytest

CASE = "scale/beta[n=100]"
SETTINGS = """
suite = "scale"

[run]
devices = ["cpu"]
select = ["scale/beta"]
replicas = 4

[notify]
targets = { team = "TEAM_URL" }
page = "https://perf.example.org/"
"""
WRITTEN = '"REPEAT": 1}'
ORIGINAL, SLOWER = '"REPEAT": 500}', '"REPEAT": 60000}'
"""Both take long compared with a launch; the slower takes so much longer that a busy host does not hide it."""


@pytest.fixture
def night(perfsvc, receiver):
    """Return a function that runs a night, planted or not, and returns the titles of its messages."""
    bench = perfsvc.own("scale") / "scale" / "bench.py"
    (perfsvc.folder / "perfsvc.toml").write_text(SETTINGS)
    perfsvc.environment["TEAM_URL"] = receiver.address()

    def run(*, planted, code):
        wanted, other = (SLOWER, ORIGINAL) if planted else (ORIGINAL, SLOWER)
        bench.write_text(bench.read_text().replace(WRITTEN, wanted).replace(other, wanted))
        before = len(receiver.received)
        perfsvc("nightly", code=code)
        return [request.json["title"] for request in receiver.received[before:]]

    return run


def test_a_planted_regression_and_its_end_are_found_and_reported_once(perfsvc, night):
    assert night(planted=False, code=0) == []
    (title,) = night(planted=True, code=1)
    assert CASE in title
    assert perfsvc.rows("select cause, state from findings") == [("kernel", "open")]
    assert CASE in (perfsvc.folder / "site" / "index.html").read_text()

    (title,) = night(planted=False, code=0)
    assert title == "scale/beta at the old level again"
    assert perfsvc.rows("select state from findings") == [("resolved",)]
    assert night(planted=False, code=0) == []
    states = perfsvc.rows("select distinct state from stages where state not in ('done', 'skipped')")
    assert states == []
