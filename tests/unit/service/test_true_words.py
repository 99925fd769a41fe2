"""Every sentence that a reader sees names the case that its numbers belong to, whatever the nights were like."""

import contextlib
import json
import platform
import re
from collections import defaultdict
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import product
from math import isfinite
from statistics import median
from xml.etree import ElementTree as ET

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from perfsvc import units
from perfsvc.errors import UsageError
from perfsvc.model import (
    Case,
    CaseExplanation,
    Cause,
    Confirmation,
    DeviceInfo,
    Direction,
    Environment,
    Estimate,
    Kind,
    Measurement,
    Provenance,
    Reason,
    ReasonKind,
    ReplayRecord,
    Status,
    Work,
    digest,
)
from perfsvc.report import wording
from perfsvc.report.export.comparison_formats import comparison_junit, comparison_markdown
from perfsvc.report.export.objects import comparison_json, finding_json, run_json
from perfsvc.report.pages import render
from perfsvc.report.tables.comparison import comparison_table
from perfsvc.report.tables.findings import finding_table, findings_table
from perfsvc.report.tables.run import run_table
from perfsvc.service.compare.compare import compare, judge_run
from perfsvc.service.confirm.confirm import with_causes
from perfsvc.service.dashboard.build import comparison, newest_results
from perfsvc.service.dashboard.details import FindingDetailsReader, FindingPictures
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.findings.update import update_findings
from perfsvc.service.notify import words
from perfsvc.service.notify.news import news_of
from perfsvc.service.results import stored_report
from perfsvc.store import CaseCode, MeasurementEntry, RunState, Store
from tests.site_of_runs import site_of
from tests.unit.report.terminal import show

pytestmark = pytest.mark.slow

GPU = DeviceInfo(kind="cuda", spec="cuda:GPU-1", uuid="GPU-1", model="NVIDIA H100", target="sm_90")
ENVIRONMENT = Environment("580.1", "nvcc 13.0", 700.0)
CASES = [
    Case(benchmark, variant, (("n", n),))
    for benchmark, variant, n in (("dot", "tree", 64), ("dot", "tree", 128), ("dot", "warp", 64), ("scan", "naive", 64))
]
BASE_S = (1.113e-4, 2.371e-5, 5.477e-3, 8.919e-6)
BENCH = b"# bench.py"
SPREADS = ((1.0, 1.0003, 0.9998), (1.0, 1.4, 0.7), (1.0, 3.1, 0.4))
"""Quiet replicas, noisy ones, and wild ones."""

CHANGES = st.sampled_from([1.0] * 6) | st.floats(0.3, 8.0, allow_nan=False).map(lambda factor: round(factor, 3))


@st.composite
def planned(draw):
    """A plan of nights: for each case its factor, its spread and its code, and what a confirmation answers."""
    nights = draw(st.integers(2, 4))
    return [
        [
            {
                "factor": draw(CHANGES),
                "spread": draw(st.sampled_from([0, 0, 0, 0, 1, 2])),
                "edit": draw(st.booleans()),
                "answer": draw(st.sampled_from([Cause.KERNEL, Cause.KERNEL, Cause.NOISE, Cause.UNCONFIRMED])),
                "explained": draw(st.booleans()),
                "measured": draw(st.sampled_from([True] * 9 + [False])),
            }
            for _ in CASES
        ]
        for _ in range(nights)
    ]


class World:
    """A database with nights, and everything that is printed, built and sent about the last of them."""

    def __init__(self, store):
        self.store = store
        self.level = list(BASE_S)
        self.code = [0] * len(CASES)

    def night(self, number, plan):
        store = self.store
        now, host = datetime.now(UTC), platform.node()
        provenance = Provenance(now, "perfsvc run", "kernels", f"{number:040d}", host=host, scope="kernels")
        night = store.nights.begin(host=host, started=now, suite="kernels", command_line="", settings={})
        run = store.runs.begin(provenance, night=night)
        store.devices.put(GPU)
        for place, (case, how) in enumerate(zip(CASES, plan, strict=True)):
            if how["measured"] or not number:
                self._measure(run, place, case, how if number else {**how, "factor": 1.0, "edit": False, "spread": 0})
        store.runs.end(run, RunState.FINISHED)
        store.verdicts.put(run, judge_run(store, run, threshold=None))
        for suspect in suspects_of(store, run):
            self._confirm(suspect, plan[CASES.index(suspect.series.case)])
        confirmations = store.confirmations.of_run(run)
        store.verdicts.put(run, with_causes(store.verdicts.of_run(run), confirmations))
        update_findings(store, run)
        return night, run

    def _measure(self, run, place, case, how):
        self.level[place] *= how["factor"]
        self.code[place] += how["edit"]
        code = f"{place} {self.code[place]}".encode()
        record = ReplayRecord(case, Kind.KERNEL, (), (), (digest(code),), digest(BENCH), seed=7)
        (binary,) = self.store.binaries.put([CaseCode(record, {digest(code): code}, BENCH, {"dot.cu": code})])
        for replica, spread in enumerate(SPREADS[how["spread"]]):
            samples = (self.level[place] * spread,) * 5
            result = Measurement(case, GPU.uuid, replica, Status.OK, samples_s=samples, max_error=1e-7)
            estimate = Estimate(median(samples), min(samples), max(samples), len(samples))
            self.store.measurements.put(
                run, [MeasurementEntry(result, ENVIRONMENT, Work(4000, 2000), estimate, binary)]
            )

    def _confirm(self, suspect, how):
        ratio = (suspect.judgement.ratio or 1.0) * 1.0037
        slower = suspect.direction is Direction.SLOWER
        change = f"{100 * abs(ratio - 1):.1f} % {'slower' if slower else 'faster'}"
        reasons = {
            Cause.KERNEL: f"measured in A/B pairs, its code is {change} than the baseline's",
            Cause.NOISE: "beside the baseline's code it is the same: the difference did not stay",
            Cause.UNCONFIRMED: f"inconclusive: measured in A/B pairs, it seems {change}, and noise could be why",
        }
        measured = {"ratio": ratio, "low": ratio * 0.99, "high": ratio * 1.01, "verdict": suspect.judgement.verdict}
        self.store.confirmations.put(
            Confirmation(suspect, how["answer"], reasons[how["answer"]], 0.01, seed=1, budget_s=20.0, **measured)
        )
        judgement = suspect.judgement
        if how["answer"] is Cause.KERNEL and slower and how["explained"]:
            of_case = (judgement.series.case, GPU.uuid, GPU.model, judgement.baseline_run, judgement.candidate_run)
            sentence = f"{ratio * 1.0071:.3f} times as long: bank conflicts"
            reasons = (Reason(ReasonKind.BANK_CONFLICTS, 1.0, "1-way → 32-way"),)
            self.store.profiles.put_explanation(CaseExplanation(*of_case, sentence, reasons, ratio))


NUMBER = re.compile(r"(?<![±\d.])(?<!threshold of )\d[\d.]*(?: %(?! interval)| [µmn]?s\b| times)")
"""A change, a level or a factor; not the spread of a level, nor a threshold, which cases share, nor "95 % interval"."""


def numbers(text):
    return {number for number in NUMBER.findall(text) if float(number.partition(" ")[0].rstrip(".")) > 0}


class Sentences(HTMLParser):
    """The sentences of a page: each row, item, paragraph and heading, after the heading that it is under."""

    HEADINGS = frozenset({"h1", "h3", "summary"})
    BLOCKS = HEADINGS | {"tr", "li", "p", "h2", "div", "section", "caption", "figcaption"}

    def __init__(self, html, *, has_sizes=False):
        super().__init__()
        self._has_sizes = has_sizes  # a section has a heading for each size
        self.found, self._text, self._silent, self._heading = [], [], False, ""
        self.feed(html)
        self._end()

    def handle_starttag(self, tag, attrs):
        self._silent |= tag in {"script", "style", "svg"}
        if tag in self.BLOCKS:
            self._end()
        if tag == "section" or (self._has_sizes and tag == "h3") or (tag == "details" and ("class", "case") in attrs):
            self._heading = ""

    def handle_endtag(self, tag):
        self._silent &= tag not in {"script", "style", "svg"}
        if tag in self.BLOCKS:
            text = self._end()
            if tag in self.HEADINGS and not self._heading:
                self._heading = text

    def handle_data(self, data):
        if not self._silent:
            self._text.append(data)

    def _end(self):
        if text := " ".join(" ".join(self._text).split()):
            self.found.append(f"{self._heading} {text}".strip())
        self._text = []
        return text


def drawn(renderable):
    return show(renderable, width=1000).splitlines()


def of_json(value, about=""):
    """Yield each text in a JSON value, with the case of the object that it is in."""
    if isinstance(value, dict):
        case = value.get("case") or (value.get("series") or {}).get("case") or about
        case = value["name"] if value.keys() >= {"name", "sentence"} else case  # a case in a group of explanations
        case = case if isinstance(case, str) else f"{case['benchmark']}/{case['variant']}[n={case['point'][0][1]}]"
        for item in value.values():
            yield from of_json(item, case)
    elif isinstance(value, list):
        for item in value:
            yield from of_json(item, about)
    elif isinstance(value, str):
        yield f"{about} {value}"


def sentences(store, night, run):
    """Yield every sentence that perfsvc writes about a night."""
    report = stored_report(store, run)
    yield from drawn(run_table(report))
    yield from of_json(run_json(report))
    findings = store.findings.all()
    yield from drawn(findings_table(findings))
    for finding in findings:
        events = store.findings.events(finding=finding.id)
        yield from drawn(finding_table(finding, events))
        yield from of_json(json.loads(json.dumps(finding_json(finding, events))))
    for each in comparisons(store, run):
        shown = (each.base, each.new, each.judgements)
        yield from drawn(comparison_table(*shown))
        yield from of_json(comparison_json(*shown))
        yield from comparison_markdown(*shown).replace("&#91;", "[").replace("&#93;", "]").splitlines()
        for test in ET.fromstring(comparison_junit(each.judgements)).iter("testcase"):  # noqa: S314 - our own
            yield f"{test.get('name')} {''.join(test.itertext())}"
    site = site_of(store, 100, datetime.now(UTC))
    of_findings = FindingPictures(store, site).cases, FindingDetailsReader(store, site).of
    pages = render.SitePages(
        site,
        "plotly.js",
        *of_findings,
        lambda run: comparison(store, site, run, None),
        results=lambda views: newest_results(store, site, views),
    )
    for path, html in pages.all():
        found = Sentences(html, has_sizes=path.startswith("benchmarks/")).found
        about = found[0] if path.startswith("series/") else ""  # the title of a page about one series
        if path.startswith("benchmarks/"):  # a bar of a variant stands below its size; other tables: elsewhere
            bars = (re.match(r" ?(\w+=\d+) (\w+) (.*)", sentence) for sentence in found)
            found = [f"{found[0].split()[0]}/{bar[2]}[{bar[1]}] {bar[3]}" for bar in bars if bar]
        if path == "benchmarks.html":
            found = [re.sub(rf"(\w+) {GPU.model} (\w+=\d+) (\w+) ", r"\1/\3[\2] ", sentence) for sentence in found]
        yield from (f"{about} {sentence}" for sentence in found)
    if news := news_of(store, night, ("new", "resolved", "failed")):
        yield words.title(news)
        yield from words.body(news, "https://perf.example.org").splitlines()


def comparisons(store, run):
    """Yield the comparisons of a run with the first run and with its baseline, as far as they are possible."""
    for base in ("1", "@baseline"):
        with contextlib.suppress(LookupError, UsageError):  # the first run is not compared with itself
            yield compare(store, base, str(run), folder=None, threshold=None)


def compared(store, run):
    return (judgement for each in comparisons(store, run) for judgement in each.judgements)


def owners(store, runs):
    """Return the case of each number that belongs to only one, by what the database holds about each case.

    A number is left out if it is also the mean of a benchmark with several cases, or of all benchmarks.
    """
    cases = defaultdict(set)

    def own(case, *texts):
        for number in numbers(" ".join(filter(None, texts))):
            cases[number].add(case.id)

    for run in runs:
        for judgement in (*store.verdicts.of_run(run), *compared(store, run)):
            columns = ("baseline", "candidate", "change", "interval", "smallest")
            values = [wording.comparison_value(judgement, column) for column in columns]
            own(judgement.series.case, wording.verdict_sentence(judgement), *values)
        for confirmation in store.confirmations.of_run(run):
            change = wording.change_and_interval(confirmation.ratio, confirmation.low, confirmation.high)
            own(confirmation.suspect.series.case, confirmation.reason, change)
        for explanation in store.profiles.explanations(run):
            own(explanation.case, explanation.sentence)
    for series, history in store.series.histories(runs).items():  # a page shows the change from level to level
        levels = [level for level in history.level.tolist() if isfinite(level)]
        own(series.case, *(units.percent(after / before) for before, after in product(levels, repeat=2)))
    means = set(means_of(store))
    return {number: found for number, found in cases.items() if len(found) == 1 and number not in means}


def means_of(store):
    """Yield the numbers of the means on the pages of comparisons, but not of a benchmark with a single case."""
    site = site_of(store, 100, datetime.now(UTC))
    for run in site.compared:
        for summary in comparison(store, site, run, None).summaries:
            if not has_one_case(summary.benchmark):
                yield from numbers(wording.change_and_interval(summary.ratio, summary.low, summary.high))


def names(sentence, case):
    """Whether a sentence names a case, or is the row of a benchmark that has no other case in a summary."""
    benchmark = case.partition("/")[0]
    is_row = sentence.startswith(f" {benchmark} {GPU.model} 1 ")
    return case in sentence or (has_one_case(benchmark) and is_row)


def has_one_case(benchmark):
    return sum(case.benchmark == benchmark for case in CASES) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("worlds")


QUIET = {"spread": 0, "edit": True, "answer": Cause.KERNEL, "explained": False, "measured": True}
EQUAL_MEAN = [[{"factor": factor, **QUIET} for factor in (1.2, 1.2 * 1.1, 1.2 / 1.1, 1.0)] for _ in range(2)]
"""In the last night, the mean of the benchmark dot is the change of one of its cases."""


@example(plan=EQUAL_MEAN)
@settings(max_examples=12, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
@given(plan=planned())
def test_no_sentence_contains_a_number_of_another_case(folder, plan):
    database = folder / "perfsvc.db"
    for path in folder.glob("perfsvc.db*"):
        path.unlink()
    with Store.open(database) as store:
        world = World(store)
        nights = [world.night(number, how) for number, how in enumerate(plan)]
        own = owners(store, [run for _, run in nights])
        checked = 0
        for sentence in sentences(store, *nights[-1]):
            for number in numbers(sentence) & own.keys():
                checked += 1
                assert any(names(sentence, case) for case in own[number]), (number, own[number], sentence)
        assert checked
