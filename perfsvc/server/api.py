"""The endpoints of the API: ``ENDPOINTS`` is the one list of them."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from perfsvc.errors import NotMeasuredError
from perfsvc.model import (
    CaseExplanation,
    ChangeKind,
    Direction,
    Finding,
    FindingEvent,
    FindingState,
    Judgement,
    MovedSeries,
    RunRow,
)
from perfsvc.report import wording
from perfsvc.report.explanations import ExplanationGroup
from perfsvc.report.export import frames, row_frames, schema
from perfsvc.report.export.files import records
from perfsvc.report.export.objects import comparison_json, finding_json, plain, series_json
from perfsvc.report.pages.site import LevelRange, RunPoint, SeriesView, series_page
from perfsvc.report.rows import ComparedRun, EnvironmentDifferences
from perfsvc.server.answers import named_runs
from perfsvc.server.changing import actions, receiving
from perfsvc.server.endpoints import Answer, ApiCall, Endpoint, NoParameters, Number, PagedParameters, Text, paged
from perfsvc.server.rows import of_columns, of_dataclass, page_of
from perfsvc.service.compare.compare import compare
from perfsvc.service.compare.confirmations import how_to_confirm
from perfsvc.service.environment import of_findings, since_baseline
from perfsvc.service.findings.actions import on_other_models

# --- parameters ------------------------------------------------------------------------------------------------------


class RunParameters(NoParameters):
    """A run."""

    run: Number
    """The number of the run."""


class RunRowsParameters(PagedParameters):
    """Rows of a run."""

    run: Number
    """The number of the run."""


class SeriesParameters(PagedParameters):
    """Which series."""

    text: Text = ""
    """Only series that have each of these words in their name, device or device model, in any case of letters."""
    benchmark: Text = ""
    """Only series of this benchmark."""
    device: Text = ""
    """Only series of this device, by its UUID or its model."""
    metric: Text = ""
    """Only series of this metric: time, energy_j, or a number that a variant returns."""


class SeriesKeyParameters(NoParameters):
    """A series."""

    key: Text
    """The key of the series, as in the list of series; the page of the series is `series/KEY.html`."""


class FindingsParameters(PagedParameters):
    """Which findings."""

    state: FindingState | None = None
    """Only findings in this state."""
    owner: Text = ""
    """Only findings that are assigned to this person."""


class FindingParameters(NoParameters):
    """A finding."""

    finding: Number
    """The number of the finding."""


class ComparisonParameters(PagedParameters):
    """Two runs to compare."""

    base: Annotated[Text, Field(min_length=1)]
    """The run to compare with: a number, a label, latest, latest~1, a git revision, or @baseline."""
    new: Annotated[Text, Field(min_length=1)] = "latest"
    """The run to judge."""


# --- answers ---------------------------------------------------------------------------------------------------------


class SeriesObject(Answer):
    """A series: the history of a case on one device, for one metric and one cache state."""

    case: str
    benchmark: str
    variant: str
    point: dict[str, int | float | bool | str]
    device: str
    device_model: str
    metric: str
    cache: str


class SeriesRow(SeriesObject):
    """A series with its newest level. Times are seconds, other metrics have their own unit."""

    key: str
    """Identifies the series in addresses."""
    last_run: int | None
    """The newest run that measured the series."""
    level: float | None
    """The level in this run; null if the case failed."""
    status: str | None
    verdict: str | None
    """The verdict of tonight's run; null without one."""


HISTORY_POINT = of_dataclass(
    "HistoryPoint", "A series in one run.", RunPoint, started_at=datetime, label=str, commit=str, dirty=bool
)


class SeriesHistoryObject(SeriesObject):
    """A series with its history, oldest run first."""

    key: str
    """Identifies the series in addresses."""
    history: list[HISTORY_POINT]  # type: ignore[valid-type]  # a model that was made at run time
    levels: list[LevelRange]
    """The levels between two changes."""


RUN = of_columns("Run", "A run.", schema.RUNS)
RESULT = of_columns(
    "Result",
    "A case of a run on a device, all replicas together. Axes and metrics follow.",
    schema.SUMMARY,
    more=True,
)
VERDICT = of_columns("Verdict", "A verdict of a run on a series. Axes follow.", schema.VERDICTS, more=True)
FINDING = of_columns("Finding", "A finding in a list.", schema.FINDINGS)
MOVED = of_dataclass(
    "MovedSeriesObject",
    "A step of a series of a finding.",
    MovedSeries,
    without={"explanation"},
    why=str,
    not_explained=str,
    sentence=str,
)
GROUP = of_dataclass("ExplanationGroupObject", "Cases with the same explanation.", ExplanationGroup, text=str)
FINDING_OBJECT = of_dataclass(
    "FindingObject",
    "A finding with its series and its history.",
    Finding,
    without={"moved"},
    direction=Direction | None,
    changes=list[ChangeKind],
    devices=dict[str, str],
    why=str,
    explanations=list[GROUP],  # type: ignore[valid-type]  # a model that was made at run time
    moved=list[MOVED],  # type: ignore[valid-type]  # likewise
    other_models=str,
    events=list[FindingEvent],
    environment=EnvironmentDifferences | None,
)
JUDGEMENT = of_dataclass(
    "JudgementObject", "A verdict on a series.", Judgement, without={"series"}, base=SeriesObject, sentence=str
)
EXPLANATION = of_dataclass(
    "ExplanationObject",
    "Why a case became slower, from the profiles of both launches.",
    CaseExplanation,
    case=str,
    without={"case"},
    benchmark=str,
    variant=str,
    point=dict[str, int | float | bool | str],
)


class ComparisonObject(Answer):
    """A comparison of two runs; `base` is null if each series is compared with its own baseline."""

    base: int | None
    new: int | None
    base_run: ComparedRun | None
    new_run: ComparedRun
    counts: dict[str, int]
    """How many series have each verdict."""
    verdicts: list[JUDGEMENT]  # type: ignore[valid-type]  # a model that was made at run time
    """The verdicts, the most urgent first; at most `limit`."""
    next_offset: int | None
    """The offset of the next verdicts; null if there are no more."""
    over_budget: list[SeriesObject]
    """The series that the new run lacks because its time was used up."""
    confirm: list[str]
    """The commands that measure unconfirmed changes again."""
    environment: EnvironmentDifferences | None


# --- handlers --------------------------------------------------------------------------------------------------------


def runs(call: ApiCall[PagedParameters]) -> dict[str, Any]:
    """Return the runs, newest first."""
    given = call.given
    rows = call.serving.store.runs.list(given.offset + given.limit + 1)[given.offset :]
    page = records(row_frames.runs_frame(rows[: given.limit]))
    return paged(page, given, more=len(rows) > given.limit)


def run(call: ApiCall[RunParameters]) -> dict[str, Any]:
    """Return a run."""
    return records(row_frames.runs_frame([_run(call)]))[0]


def results(call: ApiCall[RunRowsParameters]) -> dict[str, Any]:
    """Return what a run measured."""
    measured = frames.summary(frames.frame(call.serving.store.measurements.columns([_run(call).id])))
    return paged(records(measured), call.given)


def verdicts(call: ApiCall[RunRowsParameters]) -> dict[str, Any]:
    """Return the verdicts of a run."""
    judged = call.serving.store.verdicts.of_run(_run(call).id)
    return paged(records(row_frames.verdicts_frame(judged)), call.given)


def all_series(call: ApiCall[SeriesParameters]) -> dict[str, Any]:
    """Return the series that the newest runs measured."""
    given = call.given
    words = given.text.lower().split()
    chosen = [
        view
        for view in call.serving.pages.listed().series
        if given.benchmark in {"", view.series.case.benchmark}
        and given.device in {"", view.series.device, view.series.device_model}
        and given.metric in {"", view.series.metric}
        and all(word in _searched(view) for word in words)
    ]
    page = paged(chosen, given)
    return page | {"items": [_in_list(view) for view in page["items"]]}


def series(call: ApiCall[SeriesKeyParameters]) -> dict[str, Any]:
    """Return a series with its history."""
    found = call.serving.pages.series(page_of_key(call.given.key))
    if found is None:
        raise NotMeasuredError("the newest runs have no series of this key", cure="take a key from the list of series")
    site, view = found
    history = []
    for point in view.points:
        origin = site.runs[point.run].provenance
        facts = {"label": origin.label, "commit": origin.commit, "dirty": origin.dirty}
        history.append(plain(point) | {"started_at": plain(origin.started), **facts})
    return series_json(view.series) | {"key": call.given.key, "history": history, "levels": view.levels}


def findings(call: ApiCall[FindingsParameters]) -> dict[str, Any]:
    """Return the findings, newest first."""
    given = call.given
    chosen = [
        finding
        for finding in call.serving.store.findings.all()
        if given.state in {None, finding.state} and given.owner in {"", finding.owner}
    ]
    page = paged(chosen, given)
    return page | {"items": records(row_frames.findings_frame(page["items"]))}


def finding(call: ApiCall[FindingParameters]) -> dict[str, Any]:
    """Return a finding."""
    store = call.serving.store
    known = store.findings.get(call.given.finding)
    events = store.findings.events(finding=known.id)
    other_models = on_other_models(store, [known]).get(known.id, "")
    return finding_json(known, events, of_findings(store, [known]).get(known.id), other_models)


def explanations(call: ApiCall[FindingParameters]) -> dict[str, Any]:
    """Return the explanations of a finding, each once."""
    known = call.serving.store.findings.get(call.given.finding)
    return {"items": list(dict.fromkeys(moved.explanation for moved in known.shown if moved.explanation))}


def comparison(call: ApiCall[ComparisonParameters]) -> dict[str, Any]:
    """Judge a run against another run."""
    serving, given = call.serving, call.given
    with named_runs():
        compared = compare(
            serving.store,
            given.base,
            given.new,
            folder=serving.suite,
            threshold=serving.threshold,
            against=serving.settings.baseline.against,
        )
    base = compared.base.run if compared.base else None
    page = paged(compared.judgements, given)
    made = comparison_json(
        compared.base,
        compared.new,
        compared.judgements,
        compared.over_budget,
        how_to_confirm(serving.store, compared.judgements),
        environment=since_baseline(serving.store, base, compared.new.run, compared.judgements),
    )
    shown = made["verdicts"][given.offset : given.offset + given.limit]
    return made | {"verdicts": shown, "next_offset": page["next_offset"]}


def page_of_key(key: str) -> str:
    """Return the path of the page of the series with a key."""
    return f"series/{key}.html"


def _key_of(view: SeriesView) -> str:
    """Return the key of a series: the name of its page."""
    return series_page(view.series).removeprefix("series/").removesuffix(".html")


def _run(call: ApiCall[RunParameters] | ApiCall[RunRowsParameters]) -> RunRow:
    return call.serving.store.runs.get(call.given.run)


def _searched(view: SeriesView) -> str:
    """Return the text in which words are looked for."""
    series = view.series
    return f"{wording.series_name(series)} {series.device} {series.device_model}".lower()


def _in_list(view: SeriesView) -> dict[str, Any]:
    last = view.points[-1] if view.points else None
    return series_json(view.series) | {
        "key": _key_of(view),
        "last_run": last and last.run,
        "level": last and last.level,
        "status": last and plain(last.status),
        "verdict": view.tonight and plain(view.tonight.verdict),
    }


class ExplanationsAnswer(Answer):
    """The explanations of a finding."""

    items: list[EXPLANATION]  # type: ignore[valid-type]  # a model that was made at run time


ENDPOINTS: tuple[Endpoint[Any], ...] = (
    Endpoint("runs", "runs", "The runs, newest first.", PagedParameters, page_of(RUN), runs),
    Endpoint("runs/{run}", "run", "A run.", RunParameters, RUN, run),
    Endpoint("runs/{run}/results", "results", "What a run measured.", RunRowsParameters, page_of(RESULT), results),
    Endpoint(
        "runs/{run}/verdicts", "verdicts", "The verdicts of a run.", RunRowsParameters, page_of(VERDICT), verdicts
    ),
    Endpoint(
        "series",
        "all_series",
        "The series of the newest runs.",
        SeriesParameters,
        page_of(SeriesRow),
        all_series,
    ),
    Endpoint("series/{key}", "series", "A series and its history.", SeriesKeyParameters, SeriesHistoryObject, series),
    Endpoint("findings", "findings", "The findings, newest first.", FindingsParameters, page_of(FINDING), findings),
    Endpoint("findings/{finding}", "finding", "A finding.", FindingParameters, FINDING_OBJECT, finding),
    Endpoint("explanations", "explanations", "Why it is slower.", FindingParameters, ExplanationsAnswer, explanations),
    Endpoint(
        "compare",
        "compare",
        "Judge a run against another.",
        ComparisonParameters,
        ComparisonObject,
        comparison,
        by_git=True,
    ),
    receiving.ENDPOINT,
    actions.ENDPOINT,
)
"""Every endpoint; the document and the routes are made from this list."""
