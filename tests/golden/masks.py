"""Replace what differs between machines, days and Python versions; everything else stays as users see it.

The clock, host and commits are fixed in place.py; a tale masks what else it has to (``mask_more``).
"""

import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import distributions

from perfsvc import __version__

DIGITS, TINY_DIGITS, TINY = 9, 4, 1e-6
"""How many digits a longer number keeps, and a tiny one, which is mostly the difference of two others: the last digits
depend on the processor's vector instructions."""

_LONG = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[-+]?\d+)?(?![\w.])")
_ENVIRONMENT = re.compile(
    r'"(?:package|host|software)\.[\w.-]+": ?"[^"]*"(?:,\s*"(?:package|host|software)\.[\w.-]+": ?"[^"]*")*'
)
_PACKAGES = re.compile(r'\{\s*"alembic": ?"[^}]*\}')
_ROWS = re.compile(r"(?:^(?:package|host|software)\.[\w.-]+ \| .*\n)+", re.MULTILINE)
_HOST = re.compile(r'("(?:cpu|perfsvc_version|process_start|semanticVersion)": ?)"[^"]*"')
_SPENT = re.compile(r'("(?:wall_s|check_s|sampling_s|pid)": ?)[\d.e-]+')
_STAGE = re.compile(r"(?m)^([✓✗–]  \w+ +)\d+\.\d s")
_OPTIONAL = re.compile(r"missing: \d+ optional parts")
_KINDS = (
    ("uid", re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")),
    ("uid", re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])")),
    ("cpu", re.compile(r"\bCPU-[0-9a-f]{12}\b")),
    ("digest", re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")),
)


class Masks:
    """Replaces words; the same word becomes the same token for as long as these masks live.

    Args:
        words: the words that differ, each with its token: paths first, the longest first.
    """

    def __init__(self, words: Sequence[tuple[str, str]]) -> None:
        versions = {f"{package.metadata['name']} {package.version}" for package in distributions()}
        self.words = [*words, (sys.version.split()[0], "<python>"), (f"perfsvc {__version__}", "perfsvc <version>")]
        self.words += [(each, f"{each.split()[0]} <version>") for each in sorted(versions)]
        self._numbers: dict[str, dict[str, int]] = {}

    def __call__(self, text: str) -> str:
        """Return a text with tokens instead of what differs."""
        for word, token in self.words:
            text = text.replace(word, token)
        for kind, found in _KINDS:
            text = found.sub(self._token(kind), text)
        text = _ENVIRONMENT.sub('"<environment>": ""', text)
        text = _PACKAGES.sub("{<packages>}", text)
        text = _ROWS.sub("<environment>\n", text)
        text = _HOST.sub(r'\1"<host>"', text)
        text = _SPENT.sub(r"\1<spent>", text)
        text = _OPTIONAL.sub("missing: <some> optional parts", _STAGE.sub(r"\1<s> s", text))
        return _LONG.sub(_rounded, text)

    def _token(self, kind: str) -> Callable[[re.Match[str]], str]:
        known = self._numbers.setdefault(kind, {})
        return lambda match: f"<{kind} {known.setdefault(match[0], len(known) + 1)}>"


def _rounded(match: re.Match[str]) -> str:
    digits = match[0].partition("e")[0].lstrip("-0.").replace(".", "")
    number = float(match[0])
    kept = TINY_DIGITS if abs(number) < TINY else DIGITS
    return match[0] if len(digits) <= max(kept, 7) else f"{number:.{kept}g}"


_TIME = re.compile(
    r"±?(?<![\w.])[+-]?\d+(?:\.\d+)?(?:e[-+]?\d+)? ?(?:ns|µs|ms|s|%|×|[kMGT]?B/s|[kMGT]?FLOP/s)(?![\w/])"
)
_TIMES = re.compile(r"<measured>(?:\s+<measured>)+")
_JSON_TIMES = re.compile(r'("(?:\w+_s|noise_within|peak_share|relative_speed)": )(?:[\d.e-]+|null)')
_JSON_LISTS = re.compile(r'("(?:stopped|notes)": )\[[^\]]*\]')


def without_times(text: str) -> str:
    """Return a text of the CPU device without its measured times, and without the widths of columns."""
    text = _TIMES.sub("<measured>", _TIME.sub("<measured>", text))
    text = _JSON_LISTS.sub(r'\1["<some>"]', _JSON_TIMES.sub(r'\1"<measured>"', text))
    return re.sub(r"(?m)(?<=\S) {2,}", "  ", re.sub(r"─+", "──", text))


_CODE = (
    (re.compile(r"\b(nvcc|nvdisasm) \d[\d.]*"), r"\1 <version>"),
    (re.compile(r'("registers": )\d+'), r'\1"<some>"'),
    (re.compile(r'("instructions": )\{[^}]*\}'), r'\1"<some>"'),
    (re.compile(r"( sm_\d+ +)\d+(  .*?)(?: \d+)?$", re.MULTILINE), r"\1<registers>\2"),
)


def without_code(text: str) -> str:
    """Return a text about compiled kernels without what another version of nvcc changes."""
    for found, token in _CODE:
        text = found.sub(token, text)
    return text
