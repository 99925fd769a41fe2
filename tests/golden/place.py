"""Where the story is told: a workplace with a fixed clock, host and commits, which writes down its steps."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import time_machine

from perfsvc.store import Store

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # pytest adds only the folders of its conftest.py files
    sys.path.append(str(ROOT))

from tests.e2e.conftest import Ended, Workplace  # noqa: E402
from tests.golden.masks import Masks  # noqa: E402
from tests.golden.shown import json_text  # noqa: E402

BEGAN = datetime(2026, 3, 2, 2, tzinfo=UTC)
WIDTHS = (100, 160)
KEY = "5e" * 32
HOST = "gpu-box"
GIT_DATE = "2026-03-01T12:00:00+00:00"
FIXED = {
    "GIT_AUTHOR_DATE": GIT_DATE,
    "GIT_COMMITTER_DATE": GIT_DATE,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "LOGNAME": "ada",
    "USER": "ada",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
}
SEED_BYTES = 4
PATH_LENGTH = 64
"""A folder's path has this length, so that lines break at the same words everywhere."""

Chapters = dict[str, list[str]]
Tale = Callable[["Place"], None]


class Place(Workplace):
    """A workplace that writes down what its steps show.

    Attributes:
        chapters: what was written, by chapter.
        mask_more: what else this tale masks.
        shared_cache: the build cache of all tests, for what takes long to compile; else the cache is empty at first.
    """

    def __init__(self, folder: Path, cache: Path, clock: time_machine.Traveller) -> None:
        super().__init__(folder, folder / "cache")
        self.shared_cache = cache
        self.environment["PERFSVC_DB"] = self.database.name
        self.chapters: Chapters = {}
        self.mask_more: Callable[[str], str] = str
        self._clock = clock
        self._now = BEGAN
        words = [(str(folder), "<folder>"), (str(cache), "<cache>"), (str(ROOT), "<repository>")]
        self.masks = Masks([*words, (sys.executable, "<python>"), (processor(), "<processor>")])

    def chapter(self, name: str) -> None:
        """Begin a chapter."""
        self._lines = self.chapters[name] = []

    def next_day(self) -> None:
        """Move the clock to the same time of the next day."""
        self._now += timedelta(days=1)
        self._clock.move_to(self._now)

    def write(self, title: str, text: str) -> None:
        """Write down a text that users see."""
        text = self.masks(text)
        self._lines.append(f"=== {title}\n{text.rstrip()}\n")

    def step(self, title: str, *command: object, stores: bool = False, widths: Sequence[int] = WIDTHS) -> Ended:
        """Run a command at each width, and write down what it shows; return how it ended at the first width.

        Args:
            title: what the step is about.
            command: the arguments of perfsvc.
            stores: whether the command changes the database: it is then set back before the command runs again.
            widths: how wide the terminal is; only the first counts for other formats than tables.
        """
        if "--format" in command and command[command.index("--format") + 1] != "table":
            widths = widths[:1]
        shown = {width: self._at(width, command, last=not stores or width == widths[0]) for width in widths[::-1]}
        first = shown[widths[0]]
        text = f"$ perfsvc {' '.join(map(str, command))}\n{self._text(first)}"
        for width in widths[1:]:
            same = self._text(shown[width]) == self._text(first)
            text += (
                f"\n--- same at {width} columns" if same else f"\n--- at {width} columns\n{self._text(shown[width])}"
            )
        self.write(title, text)
        return first

    def _text(self, ended: Ended) -> str:
        out = self.mask_more(ended.out)
        out = json_text(out) if out[:1] in {"{", "["} else out
        parts = [f"exit code {ended.code}", "\n".join(line.rstrip() for line in out.rstrip().splitlines())]
        if ended.err:
            parts += ["--- standard error", "\n".join(line.rstrip() for line in ended.err.rstrip().splitlines())]
        return "\n".join(part for part in parts if part)

    def _at(self, width: int, command: Sequence[object], *, last: bool) -> Ended:
        """Run a command at a width; unless it is the last time, set the database back afterwards."""
        kept = self.folder.with_name("kept")
        files = list(self.folder.glob(f"{self.database.name}*"))
        if not last:
            kept.mkdir()
            for file in files:
                shutil.copy2(file, kept)
        with mock.patch.dict(self.environment, COLUMNS=str(width)):
            ended = self(*command)
        if not last:
            for file in self.folder.glob(f"{self.database.name}*"):
                file.unlink()
            shutil.copytree(kept, self.folder, dirs_exist_ok=True)
            shutil.rmtree(kept)
        return ended

    def git(self, *arguments: str, at: str = "scale") -> str:
        """Run git in a folder."""
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        ended = subprocess.run(
            ["git", "-C", self.folder / at, *who, *arguments], check=True, capture_output=True, text=True
        )
        return ended.stdout.strip()

    def change(self, name: str, old: str, new: str) -> None:
        """Replace a text of a file."""
        path = self.folder / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}"
        path.write_text(text.replace(old, new))


def tell(tale: Tale, cache: Path) -> Chapters:
    """Tell a tale in a temporary folder, and return what was written in each chapter."""
    with _fixed() as (home, clock):
        folder = home / ("w" * max(1, PATH_LENGTH - len(str(home)) - 1))
        folder.mkdir()
        place = Place(folder, cache, clock)
        tale(place)
        for file in folder.rglob("*.db"):
            with Store.open(file) as store:
                assert store.series.rebuild() == [], f"the levels in {file.name} are not those of its measurements"
        return place.chapters


@contextlib.contextmanager
def _fixed() -> Iterator[tuple[Path, time_machine.Traveller]]:
    """Fix the clock, the host, the user, git's dates and the key of perfsvc; yield a temporary folder and the clock."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name, contextlib.ExitStack() as fixed:
        home = Path(name).resolve()
        keys = home / "keys"
        keys.touch(mode=0o600)
        keys.write_text(f"{KEY}\n")
        fixed.enter_context(
            mock.patch.dict(os.environ, {**FIXED, "PERFSVC_KEYS": str(keys), "XDG_DATA_HOME": str(home / "data")})
        )
        fixed.enter_context(mock.patch("platform.node", return_value=HOST))
        fixed.enter_context(mock.patch.object(socket, "gethostname", return_value=HOST))
        fixed.enter_context(mock.patch("os.urandom", _seeds_are_zero(os.urandom)))
        yield home, fixed.enter_context(time_machine.travel(BEGAN, tick=False))


def _seeds_are_zero(urandom: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return a source of random bytes whose four bytes, of which perfsvc makes seeds, are zeros."""
    return lambda size: bytes(size) if size == SEED_BYTES else urandom(size)


def processor() -> str:
    """Return the name of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "no name"
