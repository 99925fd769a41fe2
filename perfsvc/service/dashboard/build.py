"""Building the site: read, draw, write."""

from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from perfsvc.errors import MissingPackageError
from perfsvc.installation import install_command
from perfsvc.report.pages import render
from perfsvc.service.dashboard import folder as folders
from perfsvc.service.dashboard.gather import gather
from perfsvc.store import Store

LAST = 400
"""The newest runs that are shown where nobody says how many: somewhat more than a year of nights."""

PLOTLY = "assets/plotly.min.js"


def build(store: Store, folder: Path, *, last: int = LAST, now: datetime | None = None) -> list[Path]:
    """Writes the site and returns its pages, the first page first.

    Pages are replaced one by one, each at once, the first page last: whoever looks on meanwhile sees whole pages. Those
    of an earlier build that are not needed any more are removed; files that perfsvc did not write are left alone.

    Args:
        store: what to show.
        folder: where to, made if it is not there.
        last: how many of the newest runs to show.
        now: when it was built, as the pages say.

    Raises:
        MissingPackageError: plotly is not installed.
        UsageError: the folder is a file, or holds files of the same names that perfsvc did not write.
        InfrastructureError: the folder cannot be written to.
    """
    plotly = _plotly()
    site = gather(store, last, now or datetime.now(UTC))
    files = {PLOTLY: plotly, **{name: text.encode() for name, text in render.assets()}}
    pages = {name: text.encode() for name, text in render.pages(site, PLOTLY)}
    with folders.writing(folder, [*files, *pages]) as opened:
        for name, content in (files | pages).items():
            opened.write(name, content)
    return [folder / name for name in reversed(pages)]


def _plotly() -> bytes:
    """plotly.js as the package brings it, which is found without importing that."""
    package = find_spec("plotly")
    script = Path(package.origin or "").parent / "package_data" / "plotly.min.js" if package else None
    if script is None or not script.is_file():
        raise MissingPackageError(
            "the pages need plotly.js, and the package plotly is not installed", cure=install_command("nightly")
        )
    return script.read_bytes()
