"""Why one launch takes longer than another, from two reports of Nsight Compute."""

from dataclasses import dataclass
from pathlib import Path

from perfsvc.errors import UsageError
from perfsvc.model import Explanation, Profile
from perfsvc.profile.apart import read
from perfsvc.profile.explain import explain
from perfsvc.report.plots import roofline, variants
from perfsvc.report.tables.profiles import explanation_page

PAGE = ".html"


@dataclass(frozen=True, slots=True)
class ExplainedProfiles:
    """Two profiles, and why the second takes longer than the first, or less long."""

    before: Profile
    after: Profile
    explanation: Explanation


def explain_reports(before: Path, after: Path, *, kernel: str | None = None) -> ExplainedProfiles:
    """Reads two reports and compares them.

    Args:
        before: the baseline's ``.ncu-rep`` file.
        after: the candidate's.
        kernel: whose launch both have to be; any where None.

    Raises:
        ReportError: one of them is not there, is damaged, is no report of one launch, or of another kernel.
        MissingPackageError: what reads reports is not installed.
    """
    return explain_profiles(read(before, kernel=kernel), read(after, kernel=kernel))


def explain_profiles(before: Profile, after: Profile) -> ExplainedProfiles:
    """Compares two profiles; raises ``ReportError`` where one does not say how long it took."""
    return ExplainedProfiles(before, after, explain(before, after))


def require_drawable(destination: Path) -> None:
    """Says early what keeps a roofline from being drawn.

    Raises:
        UsageError: the name does not say what to write.
        MissingPackageError: Matplotlib is not installed.
    """
    if destination.suffix.lower() != PAGE:
        variants.require_ending(destination, "roofline.svg")
    variants.require_matplotlib()


def draw(found: ExplainedProfiles, destination: Path) -> None:
    """Draws the roofline of both launches: a picture, or a page that explains them as well.

    Args:
        found: what ``explain_reports`` returned.
        destination: an SVG, PNG, PDF or HTML file, by its ending, which is replaced.

    Raises:
        ReportError: the reports do not say what the device could do.
        UsageError: the file cannot be written.
        MissingPackageError: Matplotlib is not installed.
    """
    lines, title = roofline.roofline(found.before, found.after), found.after.device
    if destination.suffix.lower() != PAGE:
        roofline.write(lines, title, destination)
        return
    page = explanation_page(found.before, found.after, found.explanation, roofline.svg(lines, title))
    try:
        destination.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{destination} cannot be written: {error.strerror or error}",
            cure="name a file in a folder that exists and may be written",
        ) from error
