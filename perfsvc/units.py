"""Numbers with units, durations, shares and paths: formatted for people, parsed from what they write.

Numbers are shown with SI prefixes, a few significant digits and a space before the unit. Parsing errors are
``ValueError`` with a message that shows how to write the value. This module imports nothing of ours.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

_AMOUNT = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_AMOUNT}d)?(?:{_AMOUNT}h)?(?:{_AMOUNT}m)?(?:{_AMOUNT}s)?", re.ASCII)
_SCALES = (86400, 3600, 60, 1)
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def parse_duration(text: str, *, zero: bool = False) -> float:
    """Return the seconds of ``90s``, ``20m``, ``1h30m`` or ``90d``; zero is an error unless ``zero`` is set."""
    match = _DURATION.fullmatch(text.strip())
    if not match or not any(match.groups()):
        raise ValueError(f"{text!r} is no duration; write 90s, 1h30m or 90d")
    seconds = sum(float(amount or 0) * scale for amount, scale in zip(match.groups(), _SCALES, strict=True))
    if not 0 <= seconds < math.inf or (seconds == 0 and not zero):
        raise ValueError(f"{text!r} is no possible duration; write 90s, 1h30m or 90d")
    return seconds


def duration_text(seconds: float) -> str:
    """Return seconds in the form that ``parse_duration`` reads: ``1h30m``; fractions of a second are kept."""
    text, rest = "", seconds
    for scale, unit in _UNITS:
        if rest >= scale:
            text += f"{rest // scale:.0f}{unit}"
            rest %= scale
    return f"{text}{rest:.12g}s" if rest or not text else text


def parse_share(text: str, *, below: float, example: str = "1%") -> float:
    """Return the fraction that ``3%`` or ``0.03`` states; ``ValueError`` unless it lies between 0 and ``below``.

    A number from 1 on needs its ``%``: a user who writes ``1`` more often means 1 % than 100 %.
    """
    advice = f"write {example} or {float(example.removesuffix('%')) / 100:g}"
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"{text!r} is no number; {advice}") from None
    if fraction >= 1 and not text.endswith("%") and fraction < math.inf:
        raise ValueError(f"{text!r} has no unit, and would be {fraction:.0%}; {advice}")
    if not 0 < fraction < below:
        raise ValueError(f"{text!r} is not between 0 and {below:.0%}; {advice}")
    return fraction


def parse_path(text: str) -> Path:
    """Return the path that a text names, with ``~`` and ``~user`` replaced; ``ValueError`` if it can name no path."""
    if not text:
        raise ValueError("it is empty; write a path")
    if "\0" in text:
        raise ValueError(f"{text!r} holds the character NUL; write a path without it")
    try:
        return Path(text).expanduser()
    except RuntimeError:  # there is no such user, or the present user has no home folder
        home = Path(text).parts[0]
        raise ValueError(f"{text!r}: the home folder {home} is unknown; write the whole path") from None


SMALL = {-9: "n", -6: "µ", -3: "m", 0: ""}
LARGE = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
A_PERCENT = 0.01
BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def seconds(value: float) -> str:
    """Return seconds with four digits: ``12.34 µs``."""
    return _scaled(value, 4, SMALL, "s")


def rate(bytes_per_s: float) -> str:
    """Return bytes per second with three digits: ``2.99 TB/s``."""
    return _scaled(bytes_per_s, 3, LARGE, "B/s")


def flop_rate(flops_per_s: float) -> str:
    """Return floating-point operations per second with three digits: ``51.2 TFLOP/s``."""
    return _scaled(flops_per_s, 3, LARGE, "FLOP/s")


def frequency(hertz: float) -> str:
    """Return hertz with four digits: ``1.980 GHz``."""
    return _scaled(hertz, 4, LARGE, "Hz")


def size(nbytes: int) -> str:
    """Return a memory size in binary units with four digits at most: ``228 KiB``, ``79.65 GiB``."""
    amount, step = float(nbytes), 0
    while amount >= 1024 and step < len(BINARY) - 1:  # noqa: PLR2004 - the base of binary units
        amount, step = amount / 1024, step + 1
    return f"{amount:.4g} {BINARY[step]}"


def percent(ratio: float) -> str:
    """Return a ratio as a change: ``+5.0 %`` for 1.05, ``0.0 %`` for 1."""
    text = f"{100 * (ratio - 1):+.1f} %"
    return text if text not in {"+0.0 %", "-0.0 %"} else "0.0 %"


_DOUBLE = 0.995
"""The smallest fraction that rounds to 100 %."""


def change(fraction: float) -> str:
    """Return the size of a change with two digits: ``3.1 %``; ``a factor of 12`` if the value at least doubles."""
    return f"{100 * fraction:.2g} %" if fraction < _DOUBLE else f"a factor of {factor(1 + fraction)}"


def factor(value: float) -> str:
    """Return a factor with two digits: ``1.7``, ``19``, ``480``."""
    return f"{float(f'{value:.2g}'):g}"


def share(fraction: float) -> str:
    """Return a share in per cent: ``93 %``; ``<1 %`` for less than one per cent."""
    return f"{100 * fraction:.0f} %" if fraction >= A_PERCENT else "<1 %"


def error(value: float) -> str:
    """Return a relative error with two digits: ``2.1e-07``; ``0`` if the results are bitwise equal."""
    return f"{value:.1e}" if value else "0"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: ``1 regression``, ``0 regressions``; ``plural`` is for irregular nouns."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


NAMED = 3
"""How many names a list shows before it says how many more there are."""


def some(names: Sequence[str]) -> str:
    """Return the names, or the first three and how many more there are."""
    return ", ".join(names) if len(names) <= NAMED else f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def _scaled(value: float, digits: int, prefixes: dict[int, str], unit: str) -> str:
    """Return a value with this many significant digits and an SI prefix: ``12.34 µs``.

    Args:
        value: the value in the unit.
        digits: the significant digits.
        prefixes: the allowed prefixes, by power of ten.
        unit: the unit without a prefix.
    """
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    if not power or not value:  # nan, inf and zero have no prefix
        return f"{float(value):g} {unit}"
    exponent = int(power)
    prefix = 3 * (exponent // 3)
    if prefix not in prefixes:
        prefix = min(max(prefix, min(prefixes)), max(prefixes))
    whole_digits = exponent - prefix + 1
    # Scale the rounded value as text: a division could change its digits.
    if value > 0 and 0 < whole_digits < digits:
        written = mantissa.replace(".", "")
        return f"{written[:whole_digits]}.{written[whole_digits:]} {prefixes[prefix]}{unit}"
    scaled = float(f"{mantissa}e{exponent - prefix}")
    return f"{scaled:.{max(digits - whole_digits, 0)}f} {prefixes[prefix]}{unit}"
