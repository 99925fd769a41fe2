"""The pages as text, from the templates in ``dashboards/`` and ``dashboards/site/``."""

import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import Any

import jinja2
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket, BytecodeCache
from markupsafe import Markup

from perfsvc import __version__, units
from perfsvc.errors import InfrastructureError
from perfsvc.installation import data_folder
from perfsvc.model import LaunchPicture, digest
from perfsvc.report import finding_words, peaks, wording
from perfsvc.report.explanations import group_lines
from perfsvc.report.pages import benchmarks, charts, compared, fleet, launch, pairs, spark, views
from perfsvc.report.pages import site as paths
from perfsvc.report.pages.benchmarks import BenchmarkView
from perfsvc.report.pages.compared import ComparedSides
from perfsvc.report.pages.fastest import Results, benchmark_view, times_by_benchmark
from perfsvc.report.pages.finding import FindingDetails
from perfsvc.report.pages.site import FindingView, PicturedCase, SeriesView, Site
from perfsvc.report.pages.tabs import SeriesTabs
from perfsvc.report.rows import difference_lines
from perfsvc.report.tables import profiles
from perfsvc.text import LONGEST_PARAGRAPH, cut, json_of_numbers, visible


class TemplateCode(BytecodeCache):
    """Reads and writes the code of templates.

    Code is used only if the template, the options of its environment and the versions are the same. Without a cache
    that this user can write, templates are compiled.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read the code of a template, if the cache has it."""
        from perfsvc.build.cache import Cache  # the package of compilers takes long to import

        with contextlib.suppress(InfrastructureError):
            code = Cache().get(self._key(bucket))
            if code is not None:
                try:
                    bucket.bytecode_from_string(code)
                except Exception:  # noqa: BLE001 - whatever Jinja finds in a damaged entry
                    bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the code of a template, unless the cache cannot be written."""
        from perfsvc.build.cache import Cache

        with contextlib.suppress(InfrastructureError):
            Cache().put(self._key(bucket), bucket.bytecode_to_string())

    @staticmethod
    def _key(bucket: Bucket) -> str:
        of = bucket.environment
        options = f"{of.autoescape} {of.trim_blocks} {of.lstrip_blocks}"  # they are part of the code
        return digest(f"template {bucket.key} {__version__} {jinja2.__version__} {options}".encode())


MOST_ROWS = 30
"""How many of the newest runs the table of a series shows; its chart shows all."""

ASSETS = (
    "site.css",
    "launch.css",
    "finding.css",
    "comparison.css",
    "history.css",
    "fleet.css",
    "forms.css",
    "benchmark.css",
    "site.js",
    "tabs.js",
    "nights.js",
    "chart.js",
    "comparison.js",
    "benchmark.js",
)
"""Styles and scripts of the site, beside plotly.js."""

POLICY = (
    "default-src 'none'; script-src 'self'; "
    "style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'"
)
"""The content security policy of the site. The only inline style it allows is the empty one: plotly.js creates it and
adds rules by script."""

FORM_POLICY = POLICY.replace("form-action 'none'", "form-action 'self'")
"""The content security policy of pages with forms, which only a server has."""
FORM_HERE = "<!-- form -->"
"""Where the server puts a form on a page. A text of a user cannot hold it, because its < is escaped."""

INDEX = "index.html"
FLEET = "fleet.html"
BENCHMARKS = "benchmarks.html"
SERIES = "series.html"
FINDINGS = "findings.html"

LISTS = {
    FLEET: ("fleet", "Fleet"),
    BENCHMARKS: ("benchmark_list", "Benchmarks"),
    SERIES: ("series_list", "Series"),
    FINDINGS: ("findings", "Findings"),
    INDEX: ("tonight", "Tonight"),
}
"""The template and the title of each page in the site's root, in the order in which they are written."""

OF_LAUNCHES: dict[str, Any] = {"launch": launch, "profiles": profiles, "units": units}
"""What the template of the picture of two launches calls."""

OF_COMPARISONS: dict[str, Any] = {
    "compared": compared,
    "difference_lines": difference_lines,
    "units": units,
    "finding_words": finding_words,
    "wording": wording,
}
"""What the template of a comparison calls."""

OF_BENCHMARKS: dict[str, Any] = {"benchmarks": benchmarks, "charts": charts, "peaks": peaks, "spark": spark.spark}
"""What the templates of benchmarks call."""


def _shortened(value: Any) -> Any:
    """Return a value as a template shows it: a text is cut if it is long, unless it is markup of our own."""
    return cut(value, most=LONGEST_PARAGRAPH) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _script_data(value: Any) -> Markup:
    """Return a value as JSON for a ``script`` element, as Jinja's ``tojson`` does in ten times as long."""
    written = json_of_numbers(value)
    for sign in "<>&'":
        if sign in written:  # looking is much faster than replacing nothing
            written = written.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(written)  # noqa: S704 - escaped above


def template(name: str) -> Any:
    """Return a template of ``dashboards/``, for a page that is a single file."""
    return _single_pages().get_template(name)


@cache
def _single_pages() -> Environment:
    """Return the environment of the templates of single pages."""
    environment = _environment_of("")
    environment.globals |= OF_LAUNCHES | OF_COMPARISONS
    environment.filters |= {"cut": cut, "change": views.change}
    return environment


def _environment_of(folder: str) -> Environment:
    """Return an environment for the templates in a folder of ``dashboards/``.

    It escapes and shortens the texts of users, and compiles each template once.
    """
    return Environment(
        loader=FileSystemLoader(data_folder("dashboards") / folder),
        auto_reload=False,
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shortened,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=TemplateCode(),
    )


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


def error_page(status: int, error: str, cure: str, root: str) -> str:
    """Return the page of an error on a server; ``root`` is the relative address of the site's root."""
    return visible(template("error.html.j2").render(status=status, error=error, cure=cure, root=root))


def assets() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each style and script."""
    for name in ASSETS:
        yield f"assets/{name}", (data_folder("dashboards") / "site" / name).read_text(encoding="utf-8")


@cache
def _site_pages() -> Environment:
    """Return the environment of the site's templates."""
    environment = _environment_of("site")
    environment.globals |= (
        OF_LAUNCHES
        | OF_COMPARISONS
        | OF_BENCHMARKS
        | {
            "policy": POLICY,
            "referrer": "no-referrer",
            "form_here": "",
            "fleet": fleet,
            "paths": paths,
            "group_lines": group_lines,
            "pairs": pairs,
            "commit": views.commit,
            "run_facts": views.run_facts,
            "newest_level": views.newest_level,
            "has_failed": views.has_failed,
            "most_rows": MOST_ROWS,
        }
    )
    environment.filters |= {
        "cut": cut,
        "script_data": _script_data,
        "moment": wording.moment,
        "change": views.change,
        "wall_time": wording.wall_time,
        "name": lambda series: views.short(wording.series_name(series)),
        "short": views.short,
    }
    return environment


class SitePages:
    """Renders the pages of a site, each alone.

    Args:
        site: what the pages show.
        plotly: the path of plotly.js.
        explained: returns the explained cases of a finding, the worst first; called only when the page of the finding
            is rendered, because they hold much data.
        details: returns what was measured, committed and changed around a finding; called likewise.
        compared: returns the comparison of a run in ``site.compared`` with its baseline.
        results: returns the results of the newest run of each series; called when the pages of benchmarks are rendered.
        forms: whether the page of a finding has the place ``FORM_HERE``, where a server puts the form of its actions.
    """

    def __init__(
        self,
        site: Site,
        plotly: str,
        explained: Callable[[FindingView], Sequence[PicturedCase]],
        details: Callable[[FindingView], FindingDetails],
        compared: Callable[[int], ComparedSides],
        *,
        results: Callable[[Sequence[SeriesView]], Results],
        forms: bool = False,
    ) -> None:
        self.site = site
        self._compared = compared
        self._views = views.Views(site)
        self._tabs = SeriesTabs(self._views)
        self._plotly = plotly
        self._explained = explained
        self._details = details
        self._results = results
        self._forms: dict[str, Any] = {}
        if forms:
            form_here = Markup(FORM_HERE)  # noqa: S704 - our own
            self._forms = {"form_here": form_here, "policy": FORM_POLICY, "referrer": "same-origin"}

    def page(self, path: str) -> str | None:
        """Return a page that is not that of a series; None if there is no such page."""
        if path in LISTS:
            return self.list(path)
        for shown in self.site.findings:
            if paths.finding_page(shown.finding.id) == path:
                return self.finding(shown)
        for run in self.site.compared:
            if paths.comparison_page(run) == path:
                return self._comparison_of(run)
        return None

    def all(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each page; ``index.html`` is last."""
        for view in self.site.series:
            yield paths.series_page(view.series), self.series(view)
        for benchmark in self._benchmarks:
            yield paths.benchmark_page(benchmark.name), self._benchmark(benchmark)
        for shown in self.site.findings:
            yield paths.finding_page(shown.finding.id), self.finding(shown)
        for run in self.site.compared:
            yield paths.comparison_page(run), self._comparison_of(run)
        for path in LISTS:
            yield path, self.list(path)

    def _comparison_of(self, run: int) -> str:
        return self.comparison(self._compared(run))

    def series(self, view: SeriesView) -> str:
        """Return the page of a series."""
        return self._page("series", wording.series_name(view.series), root="../", view=view)

    def finding(self, shown: FindingView) -> str:
        """Return the page of a finding."""
        return self._page(
            "finding",
            f"Finding {shown.finding.id}",
            root="../",
            shown=shown,
            finding=shown.finding,
            explained=self._explained(shown),
            details=self._details(shown),
            **self._forms,
        )

    def comparison(self, sides: ComparedSides) -> str:
        """Return the page of a comparison."""
        links = self._views.links(sides.judgements, "../")
        return self._page("comparison", sides.heading, root="../", sides=sides, links=links, on_site=True)

    def benchmark(self, views_of_benchmark: Sequence[SeriesView]) -> str:
        """Return the page of a benchmark from the views of its series, at least a time among them."""
        ((name, times),) = times_by_benchmark(views_of_benchmark).items()
        return self._benchmark(benchmark_view(name, times, self.site.runs, self._results(times)))

    def _benchmark(self, shown: BenchmarkView) -> str:
        return self._page("benchmark", shown.name, root="../", shown=shown)

    @cached_property
    def _benchmarks(self) -> tuple[BenchmarkView, ...]:
        results = self._results(self.site.series)
        times = times_by_benchmark(self.site.series)
        return tuple(benchmark_view(name, times[name], self.site.runs, results) for name in times)

    def list(self, path: str) -> str:
        """Return a page of ``LISTS``."""
        values: dict[str, Any] = {}
        if path == BENCHMARKS:
            values["rows"] = [row for shown in self._benchmarks for row in benchmarks.rows_of_list(shown)]
        return self._page(*LISTS[path], **values)

    @cached_property
    def _navigation(self) -> Callable[[str, str], Markup]:
        """Returns the links to the lists, from the address of the site's root and the title of the page if a list."""
        template = _site_pages().get_template("navigation.html.j2")
        site = {"views": self._views, "site": self.site}
        return cache(lambda root, title: Markup(template.render(title=title, root=root, **site)))  # noqa: S704 - ours

    def _page(self, name: str, title: str, *, root: str = "", **values: Any) -> str:
        template = _site_pages().get_template(f"{name}.html.j2")
        site = {"views": self._views, "site": self.site, "tabs": self._tabs, "plotly": self._plotly}
        navigation = self._navigation(root, "" if root else title)
        return visible(template.render(title=title, root=root, navigation=navigation, **site, **values))
