"""The pages as text, from the templates in ``dashboards/`` and ``dashboards/site/``."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perfsvc import units
from perfsvc.installation import data_folder
from perfsvc.model import LaunchPicture
from perfsvc.report import wording
from perfsvc.report.environment import difference_lines
from perfsvc.report.explanations import group_lines
from perfsvc.report.pages import launch, views
from perfsvc.report.pages import site as paths
from perfsvc.report.pages.site import FindingView, PicturedCase, Site
from perfsvc.report.tables import profiles
from perfsvc.text import LONGEST_PARAGRAPH, cut, visible

MOST_ROWS = 30
"""How many of the newest runs the table of a series shows; its chart shows all."""

ASSETS = ("site.css", "launch.css", "site.js", "chart.js")
"""Styles and scripts of the site, beside plotly.js."""

INDEX = "index.html"

OF_LAUNCHES: dict[str, Any] = {"launch": launch, "profiles": profiles, "units": units}
"""What the template of the picture of two launches calls."""


def _shortened(value: Any) -> Any:
    """Return a value as a template shows it: a text is cut if it is long, unless it is markup of our own."""
    return cut(value, most=LONGEST_PARAGRAPH) if isinstance(value, str) and not hasattr(value, "__html__") else value


def template(name: str) -> Any:
    """Return a template of ``dashboards/``, for a page that is a single file."""
    environment = Environment(
        loader=FileSystemLoader(data_folder("dashboards")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shortened,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= OF_LAUNCHES
    environment.filters["cut"] = cut
    return environment.get_template(name)


def explanation_page(picture: LaunchPicture) -> str:
    """Return the picture of two launches as one self-contained HTML file."""
    kernels = dict.fromkeys((picture.before.kernel, picture.after.kernel))
    return visible(template("explanation.html.j2").render(picture=picture, heading=cut(" → ".join(kernels), 200)))


def assets() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each style and script."""
    for name in ASSETS:
        yield f"assets/{name}", (data_folder("dashboards") / "site" / name).read_text(encoding="utf-8")


def pages(
    site: Site, plotly: str, explained: Callable[[FindingView], Sequence[PicturedCase]]
) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each page; ``index.html`` comes last, after all pages that it links to.

    Args:
        site: what the pages show.
        plotly: the path of plotly.js.
        explained: returns the explained cases of a finding, the worst first; called only when its page is written,
            because they hold much data.
    """
    environment = Environment(
        loader=FileSystemLoader(data_folder("dashboards") / "site"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shortened,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals |= OF_LAUNCHES | {
        "views": views.Views(site),
        "site": site,
        "plotly": plotly,
        "paths": paths,
        "wording": wording,
        "group_lines": group_lines,
        "difference_lines": difference_lines,
        "commit": views.commit,
        "run_facts": views.run_facts,
        "newest_level": views.newest_level,
        "has_failed": views.has_failed,
        "most_rows": MOST_ROWS,
    }
    environment.filters |= {
        "cut": cut,
        "moment": wording.moment,
        "change": views.change,
        "wall_time": wording.wall_time,
        "name": wording.series_name,
    }

    def page(name: str, title: str, *, root: str = "", **values: Any) -> str:
        return visible(environment.get_template(f"{name}.html.j2").render(title=title, root=root, **values))

    for view in site.series:
        path = paths.series_page(view.series)
        yield path, page("series", wording.series_name(view.series), root="../", view=view)
    for shown in site.findings:
        number = shown.finding.id
        yield (
            paths.finding_page(number),
            page(
                "finding",
                f"Finding {number}",
                root="../",
                shown=shown,
                finding=shown.finding,
                explained=explained(shown),
            ),
        )
    yield "series.html", page("series_list", "Series")
    yield "findings.html", page("findings", "Findings")
    yield INDEX, page("tonight", "Tonight")
