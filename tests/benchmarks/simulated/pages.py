"""Build the pages of simulated nights, and check that they are complete."""

import time
from dataclasses import dataclass
from pathlib import Path

from perfsvc.model import MAX_ERROR
from perfsvc.report.pages.site import finding_page, series_page
from perfsvc.service.dashboard.build import build as build_site
from perfsvc.store import Store


@dataclass(frozen=True)
class Built:
    """The built pages.

    Attributes:
        findings: how many pages show findings; ``series``: how many show series.
        missing: the pages of findings and series that were not built.
    """

    wall_s: float
    cpu_s: float
    pages: int
    findings: int
    series: int
    missing: tuple[str, ...]
    bytes: int


def build(store: Store, folder: Path, last_night: int) -> Built:
    """Build the pages into a folder, as the last of many nights does."""
    began, used = time.perf_counter(), time.process_time()
    written = {page.relative_to(folder).as_posix(): page for page in build_site(store, folder)}
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - used
    findings = {finding_page(finding.id) for finding in store.findings.all()}
    # A series of errors has a page only if something was reported about it; here nothing is.
    series = {series_page(level) for level in store.series.levels(last_night) if level.metric != MAX_ERROR}
    there = {name for name, page in written.items() if page.stat().st_size}
    size = sum(page.stat().st_size for page in written.values())
    missing = tuple(sorted((findings | series) - there))
    return Built(wall_s, cpu_s, len(written), len(findings & there), len(series & there), missing, size)
