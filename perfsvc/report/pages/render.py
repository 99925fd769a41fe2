"""The pages as text, from the templates in ``dashboards/`` and ``dashboards/site/``."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from perfsvc import units
from perfsvc.installation import data_folder
from perfsvc.model import LaunchPicture
from perfsvc.report import peaks, wording
from perfsvc.report.environment import difference_lines
from perfsvc.report.explanations import group_lines
from perfsvc.report.pages import benchmarks, charts, compared, launch, spark, views
from perfsvc.report.pages import site as paths
from perfsvc.report.pages.compared import ComparedSides
from perfsvc.report.pages.site import FindingView, PicturedCase, Site
from perfsvc.report.tables import profiles
from perfsvc.text import LONGEST_PARAGRAPH, cut, visible

MOST_ROWS = 30
"""How many of the newest runs the table of a series shows; its chart shows all."""

ASSETS = (
    "site.css",
    "launch.css",
    "comparison.css",
    "benchmark.css",
    "site.js",
    "chart.js",
    "comparison.js",
    "benchmark.js",
)
"""Styles and scripts of the site, beside plotly.js."""

INDEX = "index.html"

OF_LAUNCHES: dict[str, Any] = {"launch": launch, "profiles": profiles, "units": units}
"""What the template of the picture of two launches calls."""

OF_COMPARISONS: dict[str, Any] = {
    "compared": compared,
    "difference_lines": difference_lines,
    "units": units,
    "wording": wording,
}
"""What the template of a comparison calls."""

OF_BENCHMARKS: dict[str, Any] = {"benchmarks": benchmarks, "charts": charts, "peaks": peaks, "spark": spark.spark}
"""What the templates of benchmarks call."""


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
    environment.globals |= OF_LAUNCHES | OF_COMPARISONS
    environment.filters |= {"cut": cut, "change": views.change}
    return environment.get_template(name)


def explanation_page(picture: LaunchPicture) -> str:
    """Return the picture of two launches as one self-contained HTML file."""
    kernels = dict.fromkeys((picture.before.kernel, picture.after.kernel))
    return visible(template("explanation.html.j2").render(picture=picture, heading=cut(" → ".join(kernels), 200)))


def comparison_page(sides: ComparedSides, made: datetime) -> str:
    """Return a comparison as one self-contained HTML file.

    Its content security policy names the digests of its own style and script. So the browser runs no other script, and
    loads nothing.
    """
    folder = data_folder("dashboards") / "site"
    style, script = (
        "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
        for names in (("site.css", "comparison.css"), ("comparison.js",))
    )
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    rendered: str = template("comparison.html.j2").render(
        sides=sides,
        style=Markup(style),  # noqa: S704 - our own
        script=Markup(script),  # noqa: S704 - our own
        digests=["sha256-" + digest for digest in digests],
        made=wording.moment(made),
        links={},
        on_site=False,
    )
    return visible(rendered)


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
    views_of_site = views.Views(site)
    environment = Environment(
        loader=FileSystemLoader(data_folder("dashboards") / "site"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shortened,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals |= (
        OF_LAUNCHES
        | OF_COMPARISONS
        | OF_BENCHMARKS
        | {
            "views": views_of_site,
            "site": site,
            "plotly": plotly,
            "paths": paths,
            "group_lines": group_lines,
            "commit": views.commit,
            "run_facts": views.run_facts,
            "newest_level": views.newest_level,
            "has_failed": views.has_failed,
            "most_rows": MOST_ROWS,
        }
    )
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
    for sides in site.comparisons:
        yield (
            paths.comparison_page(sides.new.run),
            page(
                "comparison",
                sides.heading,
                root="../",
                sides=sides,
                links=views_of_site.links(sides.judgements, "../"),
                on_site=True,
            ),
        )
    rows: list[benchmarks.BenchmarkOnModel] = []
    for name, times in views_of_site.times.items():
        view_of_benchmark = benchmarks.benchmark_view(name, times, site)
        yield paths.benchmark_page(name), page("benchmark", name, root="../", shown=view_of_benchmark)
        rows += benchmarks.rows_of_list(view_of_benchmark)
    yield "benchmarks.html", page("benchmark_list", "Benchmarks", rows=rows)
    yield "series.html", page("series_list", "Series")
    yield "findings.html", page("findings", "Findings")
    yield INDEX, page("tonight", "Tonight")
