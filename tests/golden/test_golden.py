"""What users see is as it was recorded; tests/golden/record rewrites the record."""

import difflib
import shutil
from pathlib import Path

import pytest

from perfsvc.build.nvcc import find_nvcc
from tests.golden.place import tell
from tests.golden.tales import TALES

RECORDED = Path(__file__).parent / "recorded"
SHOWN = 60
"""The most lines of a difference that are shown."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("tale", TALES)
def test_users_see_what_was_recorded(tale, cache):
    if tale == "check" and (find_nvcc() is None or shutil.which("g++") is None):
        pytest.skip("needs nvcc (pip install 'perfsvc[nvcc]') and g++")
    tell_it, chapters = TALES[tale]
    told = tell(tell_it, cache)
    assert tuple(told) == chapters, "tales.py names other chapters, or in another order"
    seen = {chapter: "\n".join(lines) for chapter, lines in told.items()}
    recorded = {chapter: file.read_text() for chapter in told if (file := RECORDED / f"{chapter}.txt").exists()}
    if different := [chapter for chapter in told if seen[chapter] != recorded.get(chapter)]:
        shown = [differing(chapter, recorded.get(chapter, ""), seen[chapter]) for chapter in different]
        cure = (
            f"If every difference is wanted: .venv/bin/python tests/golden/record {' '.join(different)}; "
            "then read git diff tests/golden/recorded"
        )
        pytest.fail("\n\n".join([*shown, cure]), pytrace=False)


def differing(chapter: str, recorded: str, seen: str) -> str:
    """Return how a chapter differs from its record, step by step."""
    before, after = steps(recorded), steps(seen)
    lines = []
    for title in dict.fromkeys([*before, *after]):
        was, now = before.get(title, []), after.get(title, [])
        if was != now:
            command = next((line for line in [*now, *was] if line.startswith("$ ")), "")
            lines += ["", f"chapter {chapter}, step {title}", *([command] if command else [])]
            lines += list(difflib.unified_diff(was, now, n=2, lineterm=""))[2:]
    if list(before) != list(after):
        lines.append("the steps have another order or other names")
    rest = len(lines) - SHOWN
    return "\n".join(
        lines if rest <= 0 else [*lines[:SHOWN], f"({rest} more lines; record it, and git diff shows all)"]
    )


def steps(text: str) -> dict[str, list[str]]:
    """Return the lines of each step, by its title; of steps with one title, the later ones are numbered."""
    found: dict[str, list[str]] = {}
    for part in f"\n{text}".split("\n=== ")[1:]:
        title, *lines = part.splitlines()
        number = sum(known.partition(" (no. ")[0] == title for known in found)
        found[f"{title} (no. {number + 1})" if number else title] = lines
    return found
