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

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from workbench import SUITE, Claim, finish, table

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


@dataclass
class Receiver:
    """Receives messages on a loopback port and keeps them."""

    messages: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.append({"headers": dict(self.headers), "body": json.loads(body)})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The address for messages, in Apprise's form."""
        return f"json://127.0.0.1:{self._server.server_port}/"


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
        folder: is created; must not exist.
    """

    def __init__(self, folder: Path, device: str, select: list[str], slow: float) -> None:
        self._folder = folder
        self._slow = slow
        self._receiver = Receiver()
        shutil.copytree(SUITE, folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / ".gitignore").write_text("__pycache__/\n/perfsvc.db*\n/site/\n/sites/\n/nights/\n")
        quoted = ", ".join(map(json.dumps, select))
        text = SETTINGS.format(device=json.dumps(device), select=quoted, target=TARGET)
        (folder / "perfsvc.toml").write_text(text)
        self._git("init", "-q", "-b", "main")

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that arrived so far."""
        return self._receiver.messages

    def play(self, name: str, commit: str, *, slowed: bool) -> Night:
        """Commit the suite, slowed or not, and run a night."""
        source = self._folder / "kernels" / "matmul" / "tiled.cu"
        more = f" + (TILE == 32 ? k * {self._slow:g} / 100 : 0)" if slowed else ""
        source.write_text((SUITE / "matmul" / "tiled.cu").read_text().replace(LOOP, LOOP.replace("k;", f"k{more};")))
        self._git("add", "-A")
        self._git("commit", "-q", "--allow-empty", "-m", commit)
        before, began = len(self.messages), time.monotonic()
        code = self._perfsvc("nightly").returncode
        wall_s = time.monotonic() - began
        shutil.copytree(self._folder / "site", self._folder / "sites" / name.replace(" ", "-"))
        found = json.loads(self._perfsvc("findings", "list", "--all", "--format", "json", capture=True).stdout)
        return Night(name, code, wall_s, found, len(self.messages) - before)

    def _perfsvc(self, *arguments: str, capture: bool = False) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "perfsvc", *arguments],
            cwd=self._folder,
            env=os.environ | {TARGET: self._receiver.url},
            stdout=subprocess.PIPE if capture else None,
            text=True,
            check=False,
        )

    def _git(self, *arguments: str) -> None:
        who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
        subprocess.run(["git", *who, *arguments], cwd=self._folder, check=True)


def claims(nights: list[Night]) -> list[Claim]:
    """Return the claims."""
    first, second, third = nights
    own = [finding for finding in second.findings if finding["cause"] == "kernel" and finding["direction"] == "slower"]
    own_ids = {finding["id"] for finding in own}
    others = [finding for finding in third.findings if finding not in own and finding["id"] not in own_ids]
    moved = {f"{case['benchmark']}/{case['variant']}" for finding in own for case in map(_case, finding["moved"])}
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


def _case(moved: dict[str, Any]) -> dict[str, Any]:
    case: dict[str, Any] = moved["series"]["case"]
    return case


def main() -> int:
    """Run the nights and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--slow", type=float, default=3.0, help="per cent more work (default 3)")
    parser.add_argument("--select", action="append", default=[], metavar="GLOB", help="only these cases")
    parser.add_argument("--keep", type=Path, required=True, metavar="FOLDER", help="a new folder for all results")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    place = Place(options.keep, options.device, options.select, options.slow)
    nights = [place.play(name, commit, slowed=slowed) for name, commit, slowed in NIGHTS]
    (options.keep / "messages.json").write_text(json.dumps(place.messages, indent=1) + "\n")
    rows = [
        [night.name, str(night.code), f"{night.wall_s:.1f}", str(len(night.findings)), str(night.messages)]
        for night in nights
    ]
    print(table(["night", "exit code", "wall s", "findings so far", "messages"], rows))
    return finish(claims(nights), options.json, nights=[asdict(night) for night in nights])


if __name__ == "__main__":
    sys.exit(main())
