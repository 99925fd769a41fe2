"""Shared by tests of nights: a workplace whose nights run on the fake device, and the results of nights."""

import json
import shutil
from pathlib import Path

CASE = "scale/beta[n=100]"
USUAL = {"seconds": 1e-4}
SLOW = {"seconds": 1.05e-4}

SETTINGS = """
suite = "scale"

[run]
devices = ["fake:{script}"]
replicas = 2

[dashboard]
enabled = {page}
{more}"""


class Nights:
    """A workplace with a suite of its own and a perfsvc.toml; ``usual`` and ``slower`` say what a night will find.

    A folder that other nights left can be copied, or used again: the script lies beside the database, and so do the
    nights' files.
    """

    def __init__(self, perfsvc, more="", page=False):
        self.perfsvc = perfsvc
        self.suite = perfsvc.folder / "scale"
        if not self.suite.exists():
            perfsvc.own("scale")
        self.settings(more, page=page)
        self.usual()

    def settings(self, more="", page=False):
        text = SETTINGS.format(script=self.perfsvc.script.name, page=str(page).lower(), more=more)
        (self.perfsvc.folder / "perfsvc.toml").write_text(text)

    def usual(self):
        self.perfsvc.play({"*": USUAL})

    def slower(self):
        """Rebuild every case; the new binary of ``CASE`` is slower than the old one."""
        old = [(digest, USUAL) for (digest,) in self.perfsvc.rows("select distinct sha256 from binary_files")]
        self.perfsvc.rebuild(self.suite)
        self.perfsvc.play({"*": USUAL, "scale/beta": SLOW, **dict(old)})

    def __call__(self, *arguments, code=None):
        return self.perfsvc("nightly", *arguments, code=code)

    def stages(self, night):
        """The state of each stage of a night, by its name, in their order."""
        return dict(self.perfsvc.rows("select name, state from stages where night_id = ? order by number", night))

    def result(self, night, stage):
        """Return the message and the cure of a stage."""
        ((message, cure),) = self.perfsvc.rows(
            "select message, cure from stages where night_id = ? and name = ?", night, stage
        )
        return message, cure

    def nights(self):
        return self.perfsvc.rows("select state, exit_code, run_id from nights order by id")

    def log(self, night):
        lines = (self.perfsvc.folder / "nights" / str(night) / "log.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def one_night(perfsvc):
    """Run the usual night in an empty workplace, for tests that begin after it (the fixture ``prepared``)."""
    Nights(perfsvc)(code=0)


def copied(source: Path, target: Path) -> None:
    """A workplace's files as they were between two nights, in another folder."""
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("locks"))
