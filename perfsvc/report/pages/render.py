"""The pages as text, from the templates in ``dashboards/site/``."""

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perfsvc import units
from perfsvc.installation import data_folder
from perfsvc.report.pages import views, words
from perfsvc.report.pages.site import Chronicle, FindingShown, Site
from perfsvc.report.tables.layout import moment

NIGHTS = 30
"""The newest nights that stand in the table of a series; all are in its chart."""

ASSETS = ("site.css", "site.js", "chart.js")
"""What pages need beside themselves and plotly.js."""

INDEX = "index.html"


def assets() -> Iterator[tuple[str, str]]:
    """The path and the text of each style and script of ours."""
    for name in ASSETS:
        yield f"assets/{name}", (data_folder("dashboards") / "site" / name).read_text(encoding="utf-8")


def pages(site: Site, plotly: str) -> Iterator[tuple[str, str]]:
    """The path and the text of each page, the first page last: what it links to is there before it.

    Args:
        site: what they show.
        plotly: the path of plotly.js.
    """
    made = _Renderer(views.Views(site), plotly)
    for chronicle in site.chronicles:
        yield words.page_of(chronicle.series), made.series(chronicle)
    for shown in site.findings:
        yield words.finding_page(shown.finding.id), made.finding(shown)
    yield "series.html", made.page("series_list", "Series")
    yield "findings.html", made.page("findings", "Findings")
    yield INDEX, made.page("tonight", "Tonight")


class _Renderer:
    """The templates with all that they share."""

    def __init__(self, of: views.Views, plotly: str) -> None:
        loader = FileSystemLoader(data_folder("dashboards") / "site")
        self._templates = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
        self._templates.globals |= {"views": of, "site": of.site, "plotly": plotly, "words": words, "units": units}
        self._templates.globals |= {
            "run_facts": views.run_facts,
            "tonight_of": views.tonight_of,
            "has_failed": views.has_failed,
            "nights": NIGHTS,
        }
        self._templates.filters |= {"moment": moment, "change": words.change, "took": words.took, "named": words.named}

    def page(self, template: str, title: str, *, root: str = "", **given: Any) -> str:
        return self._templates.get_template(f"{template}.html.j2").render(title=title, root=root, **given)

    def series(self, chronicle: Chronicle) -> str:
        return self.page("series", words.named(chronicle.series), root="../", one=chronicle)

    def finding(self, shown: FindingShown) -> str:
        return self.page("finding", f"Finding {shown.finding.id}", root="../", shown=shown, finding=shown.finding)
