"""Shared by the walks of the pages: a database with every kind of page, a reader that follows links, and a window."""

import posixpath
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from perfsvc.model import FindingState, Judgement, Provenance, RootCause, Series, Verdict
from perfsvc.store import RunState, Store
from tests.pages import fleets
from tests.pages.conftest import EXPLAINED, HOSTILE, NAIVE, TILED, Nights, Sides, explained, series_of, serious, slower
from tests.pages.test_finding import bisected, measured_again

OTHER_GPU = replace(fleets.GPU, uuid="GPU-9", spec="cuda:GPU-9", model="NVIDIA H200")
"""A GPU of another model than those of the fleet, on a host of its own."""
NEXT = fleets.BEGUN + timedelta(days=21)
"""When the nights after those of the fleet begin."""
PAGES_OF_A_KIND = 2
"""How many pages of one kind a walk opens: the first that a page links to, and the one with the most text."""


def fill(store: Store, sides: Sides) -> None:
    """Store nights of three hosts with GPUs of two models, findings in several states, and verdicts of all kinds.

    The newest night has an open finding with profiles, A/B pairs and a bisection. An older one is acknowledged.
    """
    *_, last = fleets.fill(store)
    _nights_of_another_model(store)
    suspect = slower(last, TILED, Series(TILED, fleets.GPU.uuid, fleets.GPU.model))
    slow = replace(suspect.judgement, cause=None)
    suspect = replace(suspect, judgement=slow)
    store.verdicts.put(last, [slow, replace(slow, series=replace(slow.series, case=NAIVE), verdict=Verdict.UNCHANGED)])
    (older,) = store.findings.update(last, [], [RootCause("a180000000..b190000000", "slower", (suspect,))]).raised
    store.findings.set_state(older, FindingState.ACKNOWLEDGED, reason="", by="Ada")
    nights = Nights(store, started=NEXT, nightly=True)
    explained(nights, sides)
    run = store.runs.list(1)[0].id
    _judge(nights, run)
    newest = store.findings.active()[-1].id
    store.confirmations.put(measured_again(run, EXPLAINED[0]))
    store.findings.put_bisection(newest, bisected(EXPLAINED[0]))


def _nights_of_another_model(store: Store) -> None:
    store.devices.put(OTHER_GPU)
    for number in range(6):
        at = fleets.BEGUN + timedelta(days=10 + number)
        night = store.nights.begin(
            host="gamma", started=at, suite="kernels", command_line="perfsvc nightly", settings={"run": {}}
        )
        provenance = Provenance(at, "perfsvc nightly", "kernels", f"c{number}" + "0" * 8, host="gamma", scope="kernels")
        run = store.runs.begin(provenance, night=night)
        cases = {TILED: 0.7e-4, NAIVE: 2e-4}
        fleets.measure(store, run, OTHER_GPU.uuid, cases, slower=1.0, environment=fleets.NEW, binary=None, hot=False)
        store.runs.end(run, RunState.FINISHED)
        store.nights.end(night, RunState.FINISHED, 0)


def _judge(nights: Nights, run: int) -> None:
    """Store a verdict of each kind for the newest run, so that the filters of its comparison have rows to choose."""
    kinds = ["regression", "regression", "improvement", "unchanged", "inconclusive", "new", "missing", "unchanged"]
    verdicts = map(Verdict, [*kinds, "broken"])
    changes = [1.2, 1.05, 0.8, 1.001, 1.02, None, None, 0.999, None]
    judged = []
    for case, verdict, ratio in zip((*EXPLAINED, HOSTILE), verdicts, changes, strict=True):
        numbers = {"candidate_run": run, "smallest": 0.01}
        if ratio:
            numbers |= {"ratio": ratio, "low": ratio * 0.99, "high": ratio * 1.01, "baseline_run": run - 1}
            numbers |= {"baseline_s": 1e-4, "candidate_s": 1e-4 * ratio}
        judged.append(Judgement(series_of(case), verdict, **numbers))
    nights.store.verdicts.put(run, judged)


@contextmanager
def served(database: Path) -> Iterator[str]:
    """Serve a database with the settings in its folder, in a process of its own, and yield the address."""
    command = [sys.executable, "-m", "perfsvc", "serve", "--port", "0", "--db", str(database)]
    with subprocess.Popen(command, cwd=database.parent, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
    assert process.returncode == 0


class Links(HTMLParser):
    """Collects the addresses that a page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if name == "href" and value and tag == "a"]


def links(path: str, text: str) -> Iterator[str]:
    """Yield the paths of the site that a page links to."""
    read = Links()
    read.feed(text)
    for address in read.found:
        parts = urlsplit(address)
        assert not parts.scheme, f"{path} leads to {address}"
        if parts.path:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(parts.path)))


def kind(path: str) -> str:
    """Return the kind of a page: its folder, or its name without numbers."""
    folder = posixpath.dirname(path)
    return f"{folder}/" + re.sub(r"\d+", "N", posixpath.basename(path)) if folder in {"", "compare"} else f"{folder}/"


def pages_by_kind(read: Callable[[str], str]) -> dict[str, list[str]]:
    """Return two pages of each kind that can be reached from the first page: the first and the longest.

    Args:
        read: returns the text of the page at a path; raises an error if there is none.
    """
    texts: dict[str, str] = {}
    waiting = ["index.html"]
    while waiting:
        path = waiting.pop(0)
        if path not in texts:
            texts[path] = read(path)
            waiting += links(path, texts[path])
    kinds: dict[str, list[str]] = {}
    for path in texts:
        kinds.setdefault(kind(path), []).append(path)
    return {
        of_kind: list(dict.fromkeys([paths[0], max(paths, key=lambda path: len(texts[path]))]))
        for of_kind, paths in kinds.items()
    }


@dataclass
class Window:
    """A window of the browser at a site.

    Attributes:
        base: the address of the site, with a slash at the end.
        read: returns the text of the page at a path.
        troubles: messages, errors, dialogs, failed requests and requests to other machines, in the order they came.
    """

    page: Any
    base: str
    read: Callable[[str], str]
    troubles: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", lambda message: self.troubles.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        self.page.on("requestfailed", lambda request: self.troubles.append(f"failed: {request.url}"))
        self.page.on("response", lambda answer: answer.status >= 400 and self.troubles.append(f"{answer.status}"))
        self.page.on("request", lambda request: self._is_own(request.url) or self.troubles.append(request.url))
        self.page.route(lambda url: not self._is_own(url), lambda route: route.abort())

    def _is_own(self, url: str) -> bool:
        return url.startswith((self.base, "data:", "blob:"))

    @property
    def path(self) -> str:
        return self.page.url.removeprefix(self.base).partition("#")[0]

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)
        self.settle()

    def settle(self) -> None:
        """Wait until the page is complete, with its charts."""
        self.page.wait_for_load_state("load")
        if self.page.locator("#history.chart").count():
            self.page.wait_for_selector("#history.chart .main-svg")

    def require_quiet(self) -> None:
        assert self.troubles == [], self.page.url

    def require_fits(self) -> None:
        """Require that the page need not be scrolled sideways, once its charts have followed the window."""
        for _ in range(50):
            width, window = self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            if width <= window:
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"{self.page.url} is {width} px wide in a window of {window} px")

    def require_accessible(self) -> None:
        assert serious(self.page) == [], self.page.url
