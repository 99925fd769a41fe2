"""The look of all pictures, and how they are written.

The same data gives the same file, byte for byte: the layout is computed from the font that Matplotlib brings, and no
file contains the date.
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsvc.errors import MissingPackageError, UsageError
from perfsvc.installation import install_command

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": "perfsvc"},
    ".pdf": {"CreationDate": None, "Creator": "perfsvc"},
    ".png": {"Software": "perfsvc"},
}
"""The metadata of each kind of file, by the suffix of its name."""

BLUE, ORANGE, RED = "#0072B2", "#E69F00", "#B3402A"
"""Results, reference and failures. Blue and orange by Okabe and Ito: colour-blind readers can tell them apart."""
INK, FAINT, GRID = "#1b1f24", "#6a737d", "#e1e4e8"

TITLE, HEADING, FONT, SMALL = 13.0, 11.0, 9.5, 8.5
"""Font sizes in points."""


def require_matplotlib() -> None:
    """Raise ``MissingPackageError`` if Matplotlib is not installed."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise MissingPackageError(
            "a plot needs the package matplotlib, which is missing", cure=install_command("plot")
        ) from error


def require_suffix(destination: Path, example: str) -> None:
    """Raise ``UsageError`` unless the file's name ends with ``.svg``, ``.pdf`` or ``.png``.

    Args:
        destination: the file.
        example: a correct name for the error's cure.
    """
    if destination.suffix.lower() not in METADATA:
        raise UsageError(
            f"{destination.name!r} has no suffix of a picture",
            cure=f"write to a file such as {example} ({', '.join(METADATA)})",
        )


def picture(draw: Callable[[], "Figure"], suffix: str) -> bytes:
    """Return a figure as the content of a file.

    Args:
        draw: returns the figure; it is called with the fonts and colours of all pictures.
        suffix: the kind of picture, such as ``.svg``.

    Raises:
        MissingPackageError: Matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib import style

    kind, file = suffix.lower(), BytesIO()
    # Names are no mathematics ($x$), and a character that the font lacks is drawn as a box.
    look = mpl.rc_context({"svg.hashsalt": "perfsvc", "font.size": FONT, "text.color": INK, "text.parse_math": False})
    with style.context("default"), look, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        draw().savefig(file, dpi=200, metadata=METADATA[kind], format=kind[1:])
    return file.getvalue()
