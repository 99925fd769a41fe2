"""Escape foreign text, such as case names and compiler messages, for Markdown and XML."""

import re
import unicodedata
from xml.etree import ElementTree as ET

_SPECIAL = re.compile(r"[&<>`*~#@\[\]\\]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Characters with a meaning in Markdown or HTML; an underscore has none within a word, as in ``sm_90``."""


def prose(text: str) -> str:
    """Return a text on one line that Markdown and HTML show literally.

    Special characters become HTML entities such as ``&#42;`` for ``*``; line ends become ``<br>``.
    """
    escaped = _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", text)
    return re.sub(r"\r\n|\r|\n", "<br>", escaped)


def code(text: str) -> str:
    """Return a name as code in Markdown."""
    return f"<code>{prose(text)}</code>" if re.search(r"[`\r\n]", text) else f"`{text}`"


def cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def inert(text: str) -> str:
    """Return a text in which a chat program sees no mention, tag or link, and without invisible characters.

    A zero-width space after each ``@``, ``<`` and ``]`` breaks them: ``@everyone`` in a commit must not ring every
    phone.
    """
    visible = "".join(letter for letter in text if unicodedata.category(letter)[0] != "C" or letter.isspace())
    return re.sub(r"([@<\]])", "\\1\u200b", visible)


def printable(text: str) -> str:
    """Return a text without the characters that XML forbids."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)


def fail(test: ET.Element, kind: str, message: str) -> None:
    """Mark a test of JUnit's XML as failed, with the message; the message's first line becomes the summary."""
    text = printable(message)
    failure = ET.SubElement(test, "failure", type=kind, message=text.partition("\n")[0])
    failure.text = text


def junit_xml(root: ET.Element) -> str:
    """Return suites of tests as JUnit's XML, each suite with the numbers of its tests, failures and skipped tests."""
    for suite in root:
        suite.attrib |= {
            "tests": str(len(suite)),
            "failures": str(len(suite.findall("testcase/failure"))),
            "skipped": str(len(suite.findall("testcase/skipped"))),
        }
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
