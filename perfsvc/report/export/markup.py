"""Foreign text, as case names and compilers' words are, in the markup that it is shown in."""

import re
from xml.etree import ElementTree as ET

_MEANT = re.compile(r"[&<>`*~#@\[\]\\]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""The characters that mean something to Markdown or HTML; an underscore does not within a word, as in ``sm_90``."""


def prose(text: str) -> str:
    """A text, as that of a compiler, of which Markdown and HTML take nothing for their own: on one line of the source.

    Entities stand for what they would read, since these mean nothing but the character wherever they stand.
    """
    named = _MEANT.sub(lambda found: f"&#{ord(found[0])};", text)
    return re.sub(r"\r\n|\r|\n", "<br>", named)


def code(text: str) -> str:
    """A name in Markdown's typewriter face."""
    return f"<code>{prose(text)}</code>" if re.search(r"[`\r\n]", text) else f"`{text}`"


def cell(text: str) -> str:
    """What Markdown takes for one cell of a table."""
    return text.replace("|", "\\|")


def printable(text: str) -> str:
    """A text without what XML cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)


def fail(test: ET.Element, kind: str, message: str) -> None:
    """Says in JUnit's XML that a test failed, and why."""
    text = printable(message)
    failure = ET.SubElement(test, "failure", type=kind, message=text.partition("\n")[0])
    failure.text = text
