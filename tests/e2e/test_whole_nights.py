"""Whole nights on the CPU device, unattended: from perfsvc.toml to finding, message, report and page."""

import pytest

pytestmark = pytest.mark.slow  # whole nights

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
AS_IT_WAS, SLOWER = '"REPEAT": 500}', '"REPEAT": 60000}'
"""Both take long beside a launch itself, and one so much longer that no noise of a busy host hides it."""


@pytest.fixture
def night(perfsvc, receiver):
    """Holds a night with a regression planted or not; gives how it ended, and the titles that the team was told."""
    bench = perfsvc.own("scale") / "scale" / "bench.py"
    (perfsvc.folder / "perfsvc.toml").write_text(SETTINGS)
    perfsvc.environment["TEAM_URL"] = receiver.address()

    def hold(*, planted, code):
        wanted, other = (SLOWER, AS_IT_WAS) if planted else (AS_IT_WAS, SLOWER)
        bench.write_text(bench.read_text().replace(WRITTEN, wanted).replace(other, wanted))
        told = len(receiver.received)
        perfsvc("nightly", code=code)
        return [one.json["title"] for one in receiver.received[told:]]

    return hold


def test_a_planted_regression_is_found_told_and_shown_once_and_so_is_its_end(perfsvc, night):
    assert night(planted=False, code=0) == []
    (told,) = night(planted=True, code=1)
    assert CASE in told
    ((finding, cause, state),) = perfsvc.rows("select id, cause, state from findings")
    assert (cause, state) == ("kernel", "open")
    assert "beta" in (perfsvc.folder / "nights" / "2" / "report.html").read_text()
    site = perfsvc.folder / "site"
    assert CASE in (site / "index.html").read_text()
    assert perfsvc("findings", code=0).out.startswith(f"{finding} open")

    (told,) = night(planted=False, code=0)
    assert told == "scale/beta is back"
    assert perfsvc.rows("select state from findings") == [("resolved",)]
    assert night(planted=False, code=0) == []
    states = perfsvc.rows("select distinct state from stages where state not in ('done', 'skipped')")
    assert states == []
