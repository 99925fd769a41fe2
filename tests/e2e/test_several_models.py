"""One commit on GPUs of two models, whose hosts measure it at different times: people see one finding."""

import json

import pytest

from tests.e2e.history import git

CASE = "scale/beta[n=100]"
USUAL, SLOW = {"seconds": 1e-4}, {"seconds": 1.2e-4}
FIRST, SECOND = "Fake A", "Fake B"


class TwoHosts:
    """A suite in git, and a fake GPU of another model for each of two hosts."""

    def __init__(self, perfsvc):
        self.perfsvc = perfsvc
        self.suite = perfsvc.own("scale")
        self.old = set()  # the digests of the binaries before the first change
        git(self.suite, "init", "-q", "-b", "main")
        git(self.suite, "add", "-A")
        git(self.suite, "commit", "-q", "-m", "begin")

    def commit(self, *, rebuild=False):
        """Commit a change of the kernel, or of nothing that is compiled."""
        if rebuild:
            self.old = {sha256 for (sha256,) in self.perfsvc.rows("select sha256 from binary_files")}
            self.perfsvc.rebuild(self.suite)
        (self.suite / "NOTES").write_text(f"{rebuild} {(self.suite / 'NOTES').exists()}")
        git(self.suite, "add", "-A")
        git(self.suite, "commit", "-q", "--allow-empty", "-m", "change")

    def night(self, model, *, slow=False):
        """Measure on the GPU of a model; with ``slow``, the changed binary of ``CASE`` is slow."""
        cases = {"*": USUAL, "scale/beta": SLOW if slow else USUAL, **dict.fromkeys(self.old, USUAL)}
        script = self.perfsvc.folder / f"{model[-1]}.json"
        script.write_text(json.dumps({"cases": cases, "model": model, "uuid": f"FAKE-{model[-1]}"}))
        return self.perfsvc("run", "--suite", self.suite, "--device", f"fake:{script}", "--confirm")

    def page(self):
        """Return the page of the first finding."""
        self.perfsvc("dashboard", "build", "site", code=0)
        return (self.perfsvc.folder / "site" / "findings" / "1.html").read_text()


@pytest.fixture
def hosts(perfsvc):
    return TwoHosts(perfsvc)


def test_a_commit_that_two_models_measure_in_different_nights_is_one_finding(hosts):
    hosts.night(FIRST)
    hosts.night(SECOND)
    hosts.commit(rebuild=True)
    hosts.night(FIRST, slow=True)
    shown = hosts.perfsvc("findings", code=0).out
    assert f"only on {FIRST}; not measured yet on {SECOND}" in " ".join(shown.split())
    hosts.night(SECOND)
    alone = f"only on {FIRST}; unchanged on {SECOND} in run 4"
    assert hosts.perfsvc("findings", "show", "1", "--format", "json", code=0).json["other_models"] == alone
    assert f"<p>{alone}</p>" in hosts.page()
    hosts.commit()
    hosts.night(SECOND, slow=True)
    (found,) = hosts.perfsvc("findings", "--format", "json", code=0).json
    assert (found["devices"], found["cause"]) == ({"FAKE-A": FIRST, "FAKE-B": SECOND}, "kernel")
    shown = hosts.perfsvc("findings", "show", "1", code=0).out
    assert "only on" not in shown
    assert f"on {FIRST}  FAKE-A" in shown
    assert f"on {SECOND}  FAKE-B" in shown
    assert f"<li>{SECOND} <small>FAKE-B</small></li>" in hosts.page()
    assert not (hosts.perfsvc.folder / "site" / "findings" / "2.html").exists()
