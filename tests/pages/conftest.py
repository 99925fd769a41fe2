"""Nights in a database, the site that is built of them, and a browser to open it with.

The browser is Debian's chromium. Without it, or without playwright, tests that need it skip on a developer's machine
and fail in CI.
"""

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_plus, urlsplit

import pytest

from perfsvc.model import (
    Batch,
    Case,
    CaseExplanation,
    Cause,
    ChangeKind,
    Conditions,
    DeviceInfo,
    Direction,
    Environment,
    Estimate,
    Explanation,
    Judgement,
    Measurement,
    Peak,
    Profile,
    ProfileResult,
    Provenance,
    RootCause,
    Series,
    SourceLine,
    Status,
    Suspect,
    Verdict,
    Work,
)
from perfsvc.profile.explain import explain
from perfsvc.profile.picture import picture
from perfsvc.profile.reports import read
from perfsvc.profile.source_changes import with_source_text
from perfsvc.report.pages.render import explanation_page
from perfsvc.report.pages.site import series_page
from perfsvc.service.dashboard.build import build
from perfsvc.store import MeasurementEntry, RunState, Store
from tests.pages import fleets

BOARD = DeviceInfo(kind="cuda", spec="cuda:GPU-1", uuid="GPU-1", model="NVIDIA H100", target="sm_90")
TILED = Case("transpose", "tiled", (("n", 4096),))
NAIVE = Case("transpose", "naive", (("n", 4096),))
HOSTILE = Case("<img src=x onerror=boom()>", "\"tiled'</script><script>boom()</script>", (("n", "<b>4</b>"),))
"""A case name with markup, which no suite accepts; pages must show it as text."""
REASON = "an illegal access <script>boom()</script> \"quoted\" & </script> \u2028 'done'"
OLD, NEW = Environment("575.1", "nvcc 12.9", 700.0), Environment("580.1", "nvcc 13.0", 700.0)


@dataclass
class Nights:
    """Stores nights, one a day.

    Attributes:
        nightly: whether each run belongs to a night, as after ``perfsvc nightly``.
    """

    store: Store
    count: int = 0
    started: datetime = field(default=datetime(2026, 3, 1, 2, tzinfo=UTC))
    nightly: bool = False

    def night(
        self, times: dict[Case, float | str], *, environment: Environment = NEW, dirty: bool = False, replicas: int = 3
    ) -> int:
        """Store a night of cases with their times in seconds or why they failed, and return its run."""
        at = self.started + timedelta(days=self.count)
        self.count += 1
        night = None
        if self.nightly:
            night = self.store.nights.begin(
                host=platform.node(), started=at, suite="kernels", command_line="perfsvc nightly", settings={"run": {}}
            )
        about = {"host": platform.node(), "label": "nightly", "replicas": replicas}
        provenance = Provenance(at, "perfsvc run", "kernels", "3fa0b1c2d4", dirty, **about)
        run = self.store.runs.begin(provenance, night=night)
        self.store.devices.put(BOARD)
        for case, time in times.items():
            for replica in range(replicas):
                self._put(run, case, time, replica, environment)
        self.store.devices.put_peaks(run, {BOARD.uuid: Peak(2.9e12 + 1e9 * self.count, 3.0e12)})
        self.store.runs.end(run, RunState.FINISHED)
        if night is not None:
            self.store.nights.end(night, RunState.FINISHED, 0)
        return run

    def _put(self, run: int, case: Case, time: float | str, replica: int, environment: Environment) -> None:
        reason, samples = (time, ()) if isinstance(time, str) else ("", samples_of(time, replica))
        measurement = Measurement(
            case,
            BOARD.uuid,
            replica,
            Status.FAILED if reason else Status.OK,
            reason=reason,
            samples_s=samples,
            max_error=1e-7,
            batches=(Batch(samples, conditions=Conditions(1.7e9, temperature_c=61.0, power_w=400.0)),),
        )
        estimate = Estimate(median(samples), min(samples), max(samples), len(samples)) if samples else None
        self.store.measurements.put(run, [MeasurementEntry(measurement, environment, Work(4000, 2000), estimate)])

    def judge(self, run: int, verdicts: dict[Case, Verdict], **given: Any) -> list[Judgement]:
        """Store verdicts of a run."""
        found = [
            Judgement(series_of(case), verdict, candidate_run=run, **(given if verdict is Verdict.REGRESSION else {}))
            for case, verdict in verdicts.items()
        ]
        self.store.verdicts.put(run, found)
        return found

    def find(self, run: int, cases: Sequence[Case], evidence: str = "+20.0 % in 8 pairs") -> int:
        """Raise a finding of slower cases, and return its number."""
        suspects = tuple(slower(run, case) for case in cases)
        (number,) = self.store.findings.update(run, [], [RootCause("", evidence, suspects)]).raised
        return number


def samples_of(time: float, replica: int) -> tuple[float, ...]:
    return tuple(time * (1 + 0.001 * ((7 * k) % 5) + 0.0004 * replica) for k in range(20))


def series_of(case: Case) -> Series:
    return Series(case, BOARD.uuid, BOARD.model)


def slower(run: int, case: Case, series: Series | None = None) -> Suspect:
    """Return a case that became 20 % slower since the first run."""
    change = {"ratio": 1.2, "low": 1.19, "high": 1.21, "baseline_s": 1e-4, "candidate_s": 1.2e-4, "cause": Cause.KERNEL}
    runs = {"baseline_run": 1, "candidate_run": run}
    judgement = Judgement(series or series_of(case), Verdict.REGRESSION, **change, **runs)
    return Suspect(judgement, ChangeKind.REGRESSION, Direction.SLOWER)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty database, migrated once, which every test copies."""
    path = tmp_path_factory.mktemp("template") / "perfsvc.db"
    Store.open(path).close()
    return path


@pytest.fixture(scope="session")
def filled(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Store], object]], Path]:
    """Return a function that fills a copy of the empty database, and returns it."""

    def filled(fill: Callable[[Store], object]) -> Path:
        path = tmp_path_factory.mktemp("filled") / "perfsvc.db"
        shutil.copy(template, path)
        with Store.open(path) as store:
            fill(store)
        return path

    return filled


def site_beside(database: Path) -> Path:
    """Build the site of a database beside it, and return its folder."""
    with Store.open(database) as store:
        build(store, database.parent / "site")
    return database.parent / "site"


@pytest.fixture(scope="session")
def built(filled: Callable[..., Path]) -> Callable[[Callable[[Store], object]], Path]:
    """Return a function that fills a database, and returns the site that is built of it."""
    return lambda fill: site_beside(filled(fill))


@pytest.fixture
def nights(template: Path, tmp_path: Path) -> Iterator[Nights]:
    shutil.copy(template, tmp_path / "perfsvc.db")
    with Store.open(tmp_path / "perfsvc.db") as store:
        yield Nights(store)


def planted(nights: Nights) -> None:
    """Store twelve nights: a new driver in the fourth, then a slower case, and a failing case in the last."""
    for night in range(1, 13):
        slow = night == 12
        cases = {
            TILED: 1.2e-4 if slow else 1e-4 * (1 + 0.001 * (night % 3)),
            NAIVE: 3e-4 * (1 + 0.001 * (night % 2)),
            HOSTILE: REASON if slow else 2e-4,
        }
        run = nights.night(cases, environment=OLD if night < 4 else NEW)
    moved = {"ratio": 1.2, "low": 1.19, "high": 1.21, "baseline_run": 1, "cause": Cause.KERNEL}
    nights.judge(run, {TILED: Verdict.REGRESSION, NAIVE: Verdict.UNCHANGED, HOSTILE: Verdict.BROKEN}, **moved)
    nights.find(run, [TILED, HOSTILE], evidence=f"measured in A/B pairs: {REASON}")


@pytest.fixture(scope="session")
def site(built: Callable[..., Path]) -> Path:
    """Build the site of the planted nights, for tests that only read it."""
    return built(lambda store: planted(Nights(store)))


# --- explained cases -------------------------------------------------------------------------------------------------

EXPLAINED = tuple(Case("transpose", f"case_{number}", (("n", 4096),)) for number in range(8))
"""The cases of a finding of which each has a profile of both launches."""
HOT = 9003
"""The line of the hostile source that carries the reason."""
SOURCE = [f"int line_{number};" for number in range(1, 10_001)]
SOURCE[HOT - 2] = "// <script>boom()</script> \x1b[2J \u202e" + "x" * 10_000
SOURCE[HOT - 1] = "        b[x * n + y] = a[y * n + x]; // </code><img src=x onerror=boom()>"
OLD_SOURCE = [*SOURCE[: HOT - 1], "        b[y * n + x] = a[y * n + x];", *SOURCE[HOT:]]
OLD_SOURCE[100] = "int elsewhere;"


@dataclass(frozen=True)
class Sides:
    """Two launches and their sources."""

    before: Profile
    after: Profile
    sources: tuple[dict[str, bytes], dict[str, bytes]]

    @property
    def explanation(self) -> Explanation:
        return with_source_text(explain(self.before, self.after), *self.sources)


@pytest.fixture(scope="session")
def sides(ncu_report: Callable[[str], Path], elsewhere) -> Sides:
    """Two real launches with a long and hostile source: the stores of the second have a stride."""
    profiles = []
    for name in ("padded", "naive"):
        profile = elsewhere(read, ncu_report(f"pairs/transpose-{name}"))
        located = (
            replace(instruction, source=SourceLine("t.cu", HOT if instruction.opcode.startswith("STG") else HOT - 1))
            for instruction in profile.instructions
        )
        profiles.append(replace(profile, instructions=tuple(located)))
    old, new = ({"t.cu": "\n".join(lines).encode()} for lines in (OLD_SOURCE, SOURCE))
    return Sides(*profiles, (old, new))


def explained(nights: Nights, sides: Sides) -> None:
    """Store a finding of eight cases that were profiled, and of one that could not be."""
    cases = (*EXPLAINED, HOSTILE)
    first = nights.night(dict.fromkeys(cases, 1e-4))
    run = nights.night({case: 1e-4 * (8 - number) for number, case in enumerate(cases)} | {HOSTILE: 1.2e-4})
    nights.find(run, cases)
    binaries = [fleets.binary_of(nights.store, f"cubin {n}", sources) for n, sources in enumerate(sides.sources)]
    explanation = sides.explanation
    for case in EXPLAINED:
        results = [
            ProfileResult(case, of_run, binary, BOARD.uuid, BOARD.model, "ncu", "perfsvc", profile, 0)
            for of_run, binary, profile in zip((first, run), binaries, (sides.before, sides.after), strict=True)
        ]
        numbers = [nights.store.profiles.put([result])[0] for result in results]
        nights.store.profiles.put_explanation(
            CaseExplanation(
                *(case, BOARD.uuid, BOARD.model, first, run),
                *(explanation.sentence, explanation.reasons, explanation.factor),
                profiles=(numbers[0], numbers[1]),
            )
        )
    nights.store.profiles.put_explanation(
        CaseExplanation(HOSTILE, BOARD.uuid, BOARD.model, first, run, reason=f"the launch failed: {REASON}")
    )


@pytest.fixture(scope="session")
def explained_site(built: Callable[..., Path], sides: Sides) -> Path:
    """Build the site of a finding whose cases are explained, for tests that only read it."""
    return built(lambda store: explained(Nights(store), sides))


@pytest.fixture(scope="session")
def why(sides: Sides, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of an explanation."""
    path = tmp_path_factory.mktemp("why") / "why.html"
    path.write_text(explanation_page(picture(sides.before, sides.after, sides.explanation, sides.sources)))
    return path


# --- the browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start headless Chromium."""

    def missing(what: str) -> None:
        required = os.environ.get("PERFSVC_REQUIRE_CHROMIUM") == "1"
        pytest.fail(what) if required else pytest.skip(what)

    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no playwright: pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--in-process-gpu", "--renderer-process-limit=1"],
        )
        yield opened
        opened.close()


def require_fragment(page: Any, words: str) -> None:
    """Wait until the address ends in these: the browser tells of a new address some time after the key or click."""
    page.wait_for_url(lambda address: unquote_plus(urlsplit(address).fragment) == words)


def serious(page: Any) -> list[tuple[str, list[str]]]:
    """Return what axe finds serious in a page, such as too little contrast, with some of its places."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    places = [(each["id"], [node["html"][:200] for node in each["nodes"]][:3], each["impact"]) for each in found]
    return [(name, nodes) for name, nodes, impact in places if impact in {"serious", "critical"}]


@dataclass
class Visit:
    """An opened page, with its messages and its requests."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def require_sound(self, folder: Path) -> None:
        """Require of a page, all of it opened, that it is quiet, asks only its folder, fits, and is accessible."""
        page = self.page
        page.evaluate("for (const closed of document.querySelectorAll('details')) closed.open = true")
        assert self.messages == []
        assert [url for url in self.requests if not url.startswith((folder.as_uri(), "data:"))] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert (
            page.locator("main img, [onerror], main script:not([type='application/json']), a[href^=javascript]").count()
            == 0
        )
        assert serious(page) == []

    def listen(self) -> "Visit":
        self.page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        return self


Visitor = Callable[..., Visit]


@pytest.fixture
def visit(browser: Any) -> Iterator[Visitor]:
    """Return a function that opens a file in a window of some width and theme."""
    contexts = []

    def opened(path: Path, *, width: int = 1600, theme: str = "light", **options: Any) -> Visit:
        known = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
        contexts.append(browser.new_context(**known, **options))
        contexts[-1].set_default_timeout(30_000)
        visited = Visit(contexts[-1].new_page()).listen()
        visited.page.goto(path.as_uri())
        return visited

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def names() -> SimpleNamespace:
    """Return the names in the planted nights, and the path of the page of a case's times."""
    return SimpleNamespace(
        explained=EXPLAINED,
        tiled=TILED,
        naive=NAIVE,
        hostile=HOSTILE,
        reason=REASON,
        page=lambda case: series_page(series_of(case)),
    )
