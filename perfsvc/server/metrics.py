"""What Prometheus reads: the state of the nights, and the requests of this server."""

from collections import Counter as Counts
from collections.abc import Iterator
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perfsvc.model import FindingState
from perfsvc.report.pages.site import Site
from perfsvc.server.access import READ, require
from perfsvc.server.serving import Serving, serving
from perfsvc.text import visible


class ServerMetrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self, serving: Serving) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "perfsvc_http_requests", "Requests by method and status code.", ["method", "status"], registry=self.registry
        )
        self.registry.register(StateCollector(serving))


class StateCollector(Collector):
    """Reads the state of the database each time that Prometheus asks."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering this object does not read the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its values."""
        store, site = self._serving.store, self._serving.pages.site()
        night = next(iter(store.nights.list(1)), None)
        now = datetime.now(UTC)
        age = GaugeMetricFamily(
            "perfsvc_newest_night_age_seconds", "Seconds since the newest night began; absent without a night."
        )
        if night:
            age.add_metric([], (now - night.started).total_seconds())
        yield age
        newest = next(iter(store.runs.list(1)), None)
        yield GaugeMetricFamily(
            "perfsvc_newest_run", "The number of the newest run; 0 without a run.", newest.id if newest else 0
        )
        yield GaugeMetricFamily("perfsvc_series", "The series of the newest runs.", len(site.series))
        states = Counts(view.finding.state for view in site.findings)
        findings = GaugeMetricFamily("perfsvc_findings", "Findings by state.", labels=["state"])
        for state in FindingState:
            findings.add_metric([state.value], states[state])
        yield findings
        seen = GaugeMetricFamily(
            "perfsvc_device_last_seen_timestamp_seconds",
            "When the newest run that measured a device began, in seconds since 1970.",
            labels=["device", "device_model"],
        )
        for (device, model), moment in last_seen(site).items():
            seen.add_metric([visible(device), visible(model)], moment.timestamp())
        yield seen


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


def metrics(request: Request) -> Response:
    """Answer with all metrics in the text format of Prometheus."""
    require(request, READ)
    content = generate_latest(request.app.state.metrics.registry)
    return Response(content, headers={"Cache-Control": "no-store"}, media_type=CONTENT_TYPE_LATEST)


def healthz(request: Request) -> Response:
    """Answer with "ok" if the database can be read, else with an error. Anyone may ask."""
    serving(request).store.runs.list(1)
    return Response("ok\n", headers={"Cache-Control": "no-store"}, media_type="text/plain")
