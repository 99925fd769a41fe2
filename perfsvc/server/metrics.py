"""What Prometheus reads: the state of the nights, and the requests of this server."""

from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perfsvc.model import FindingState
from perfsvc.report.pages.site import Site
from perfsvc.server.answers import content
from perfsvc.server.kept import Content
from perfsvc.server.serving import Serving, serving
from perfsvc.text import visible


class ServerMetrics:
    """The metrics of one server."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "perfsvc_http_requests",
            "Requests by method and status code.",
            ["method", "status"],
            registry=self._registry,
        )

    def now(self) -> bytes:
        """Return the metrics that every request reads anew, in the text format of Prometheus."""
        store, read = self._serving.store, CollectorRegistry()
        night, newest = next(iter(store.nights.list(1)), None), next(iter(store.runs.list(1)), None)
        age = GaugeMetricFamily(
            "perfsvc_newest_night_age_seconds", "Seconds since the newest night began; absent without a night."
        )
        if night:
            age.add_metric([], (datetime.now(UTC) - night.started).total_seconds())
        run = GaugeMetricFamily(
            "perfsvc_newest_run", "The number of the newest run; 0 without a run.", newest.id if newest else 0
        )
        read.register(_Collected([age, run]))
        return generate_latest(read) + generate_latest(self._registry)

    def of_site(self) -> Content:
        """Return the metrics for which all series are read, in the text format of Prometheus."""
        site = self._serving.pages.listed()
        series = GaugeMetricFamily("perfsvc_series", "The series of the newest runs.", len(site.series))
        states = Counts(view.finding.state for view in site.findings)
        findings = GaugeMetricFamily("perfsvc_findings", "Findings by state.", labels=["state"])
        for state in FindingState:
            findings.add_metric([state.value], states[state])
        seen = GaugeMetricFamily(
            "perfsvc_device_last_seen_timestamp_seconds",
            "When the newest run that measured a device began, in seconds since 1970.",
            labels=["device", "device_model"],
        )
        for (device, model), moment in last_seen(site).items():
            seen.add_metric([visible(device), visible(model)], moment.timestamp())
        read = CollectorRegistry()
        read.register(_Collected([series, findings, seen]))
        return Content(generate_latest(read), CONTENT_TYPE_LATEST)


class _Collected(Collector):
    """Metrics that were read already."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its values."""
        yield from self._metrics


def last_seen(site: Site) -> dict[tuple[str, str], datetime]:
    """Return when the newest run that measured a device began, by the UUID and the model of the device."""
    models = {view.series.device: view.series.device_model for view in site.series}
    return {
        (device, models[device]): run.provenance.started
        for run in site.runs.values()  # the oldest first
        for device in run.devices
        if device in models
    }


def routes() -> list[Route]:
    """Return the routes of monitoring."""
    return [Route("/metrics", metrics), Route("/healthz", healthz)]


async def metrics(request: Request) -> Response:
    """Answer with all metrics in the text format of Prometheus."""
    ours: ServerMetrics = request.app.state.metrics
    of_site = await content(request, "metrics", ours.of_site)
    body = await run_in_threadpool(ours.now) + of_site.body
    return Response(body, headers={"Cache-Control": "no-store"}, media_type=of_site.kind)


def healthz(request: Request) -> Response:
    """Answer with "ok" if the database can be read, else with an error. Anyone may ask."""
    serving(request).store.runs.list(1)
    return Response("ok\n", headers={"Cache-Control": "no-store"}, media_type="text/plain")
