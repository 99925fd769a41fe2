"""What is told about a unit that a compiler did not compile."""

import re

from perfsvc.errors import CompileError
from perfsvc.model import Unit

LINES_SHOWN = 30
"""A template's error may fill thousands of lines; a reader needs the first few."""

_CONTEXT = 3  # lines before the first error: which file included this one, which function it is in
_ERROR = re.compile(r"\b(?:error|fatal|undefined)\b", re.IGNORECASE)


def does_not_compile(unit: Unit, message: str) -> CompileError:
    """A compiler refused the unit: its message from the first error on, ``LINES_SHOWN`` lines of it."""
    return CompileError(
        f"{unit.source.name} does not compile:\n{_shortened(message.strip())}", cure="correct the source"
    )


def still_compiling(unit: Unit, limit_s: float) -> CompileError:
    """A compiler was killed because it found no end."""
    return CompileError(
        f"{unit.source.name}: still compiling after {limit_s:g} s; the compiler was killed",
        cure="unroll less, or split the source",
    )


def _shortened(message: str) -> str:
    lines = message.splitlines()
    if len(lines) <= LINES_SHOWN:
        return message
    first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), 0)
    start = max(0, first - _CONTEXT)
    shown = lines[start : start + LINES_SHOWN]
    return "\n".join([*shown, f"({len(lines) - len(shown)} more lines left out)"])
