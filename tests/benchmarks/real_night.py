"""Run three unattended nights over the built-in suite: unchanged, with one variant slowed, and repaired again.

    python tests/benchmarks/real_night.py [--device cuda:0] [--slow 3] [--select GLOB] --keep FOLDER

Copies the suite into a git repository of its own with a ``perfsvc.toml`` whose messages go to a receiver on this
machine, and calls ``perfsvc nightly`` three times. Before the second night, a commit makes matmul's ``tiled`` with
32 x 32 tiles run over ``--slow`` per cent more of k than there is, all of it padding: correct results, but later.
Before the third, a commit takes that back. The claims are one finding, of that variant alone, one message about it, and
its resolution in the third night. ``--keep`` receives the database, the site after each night, the nights' files and
the messages.

The CPU device needs about ``--slow 300``, because of its threshold.
"""

import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench import SUITE, Claim, commit, finish, parsed, perfsvc, table, webhook

LOOP = "start < k; start += TILE"
SLOWED = "matmul/tiled-TILE32"
TARGET = "PERFSVC_NOTIFY_NIGHTS"
NIGHTS = (("unchanged", "base", False), ("slowed", "pad k", True), ("repaired", "take the padding back", False))
"""The nights: name, message of the commit, and whether the variant is slow."""

SETTINGS = """\
suite = "kernels"
database = "perfsvc.db"

[run]
devices = [{device}]
select = [{select}]

[notify]
targets = {{ nights = "{target}" }}
"""


@dataclass(frozen=True)
class Night:
    """The result of a night.

    Attributes:
        findings: all findings in the database at its end.
        messages: how many arrived during the night.
    """

    name: str
    code: int
    wall_s: float
    findings: list[dict[str, Any]]
    messages: int


class Place:
    """A folder with a repository, settings and a database, in which nights run.

    Args:
        options: those of the script; ``keep`` is the folder, which must not exist.
        address: where messages go.
        messages: those that arrived there so far.
    """

    def __init__(self, options: Any, address: str, messages: list[dict[str, Any]]) -> None:
        self._folder = folder = options.keep
        self._slow, self._messages = options.slow, messages
        shutil.copytree(SUITE, folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
        quoted = ", ".join(map(json.dumps, options.select))
        text = SETTINGS.format(device=json.dumps(options.device), select=quoted, target=TARGET)
        (folder / "perfsvc.toml").write_text(text)
        self._environment = {TARGET: address}

    def play(self, name: str, message: str, *, slowed: bool) -> Night:
        """Commit the suite, slowed or not, and run a night."""
        source = self._folder / "kernels" / "matmul" / "tiled.cu"
        more = f" + (TILE == 32 ? k * {self._slow:g} / 100 : 0)" if slowed else ""
        source.write_text((SUITE / "matmul" / "tiled.cu").read_text().replace(LOOP, LOOP.replace("k;", f"k{more};")))
        commit(self._folder, message, "kernels")
        before, began = len(self._messages), time.monotonic()
        done = perfsvc(self._folder, "nightly", codes=range(6), **self._environment)
        wall_s = time.monotonic() - began
        print(done.stdout, done.stderr, flush=True)
        shutil.copytree(self._folder / "site", self._folder / "sites" / name.replace(" ", "-"))
        found = json.loads(perfsvc(self._folder, "findings", "list", "--all", "--format", "json").stdout)
        return Night(name, done.returncode, wall_s, found, len(self._messages) - before)


def claims(nights: list[Night]) -> list[Claim]:
    """Return the claims."""
    first, second, third = nights
    own = [finding for finding in second.findings if finding["cause"] == "kernel" and finding["direction"] == "slower"]
    own_ids = {finding["id"] for finding in own}
    others = [finding for finding in third.findings if finding not in own and finding["id"] not in own_ids]
    cases = [moved["series"]["case"] for finding in own for moved in finding["moved"]]
    moved = {f"{case['benchmark']}/{case['variant']}" for case in cases}
    last = {finding["id"]: finding["state"] for finding in third.findings}
    return [
        Claim("the first night ends well (exit code)", first.code, 0),
        Claim("the second night ends with 1 (distance)", abs(second.code - 1), 0),
        Claim("the third night ends well (exit code)", third.code, 0),
        Claim("findings of the slowed variant, other than one", abs(len(own) - 1), 0),
        Claim("variants in it that were not slowed", len(moved - {SLOWED}) + (not moved), 0),
        Claim("other findings of a kernel", sum(finding["cause"] == "kernel" for finding in others), 0),
        Claim("messages of the second night, other than one", abs(second.messages - 1), 0),
        Claim("findings of it not resolved by the third night", sum(last[id_] != "resolved" for id_ in own_ids), 0),
    ]


def main() -> int:
    """Run the nights and print the results."""
    options = parsed(
        __doc__,
        ("--device", "cuda:0"),
        ("--slow", 3.0, "per cent more work"),
        ("--select", {"action": "append", "default": [], "metavar": "GLOB"}, "only these cases"),
        ("--keep", {"type": Path, "required": True, "metavar": "FOLDER"}, "a new folder for all results"),
    )
    with webhook() as (address, messages):
        place = Place(options, address, messages)
        nights = [place.play(name, message, slowed=slowed) for name, message, slowed in NIGHTS]
    (options.keep / "messages.json").write_text(json.dumps(messages, indent=1) + "\n")
    rows = [
        [night.name, str(night.code), f"{night.wall_s:.1f}", str(len(night.findings)), str(night.messages)]
        for night in nights
    ]
    print(table(["night", "exit code", "wall s", "findings so far", "messages"], rows))
    return finish(claims(nights), options.json, nights=[asdict(night) for night in nights])


if __name__ == "__main__":
    sys.exit(main())
