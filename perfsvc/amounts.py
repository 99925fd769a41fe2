"""Durations and shares as people write them; this module imports nothing of ours.

Errors are ``ValueError``s whose message says what is wrong and how to write it.
"""

import math
import re

_AMOUNT = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_AMOUNT}d)?(?:{_AMOUNT}h)?(?:{_AMOUNT}m)?(?:{_AMOUNT}s)?", re.ASCII)
_SCALES = (86400, 3600, 60, 1)
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def duration(text: str, *, zero: bool = False) -> float:
    """``90s``, ``20m``, ``1h30m`` or ``90d`` as seconds: above zero, or from zero on."""
    found = _DURATION.fullmatch(text.strip())
    if not found or not any(found.groups()):
        raise ValueError(f"{text!r} is no duration; write 90s, 20m or 1h30m")
    seconds = sum(float(amount or 0) * scale for amount, scale in zip(found.groups(), _SCALES, strict=True))
    if not 0 <= seconds < math.inf or (seconds == 0 and not zero):
        raise ValueError(f"{text!r} is no time that can be spent; write 90s, 20m or 1h30m")
    return seconds


def duration_text(seconds: float) -> str:
    """Seconds as ``duration`` reads them: ``1h30m``; what is no whole number of seconds keeps its fraction."""
    text, left = "", seconds
    for scale, unit in _UNITS:
        if left >= scale:
            text += f"{left // scale:.0f}{unit}"
            left %= scale
    return f"{text}{left:.12g}s" if left or not text else text


def share(text: str, *, below: float, example: str = "1%") -> float:
    """``3%`` or ``0.03`` as a fraction above zero and under ``below``."""
    written = f"write {example} or {float(example.removesuffix('%')) / 100:g}"
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"{text!r} is no number; {written}") from None
    if not 0 < fraction < below:
        raise ValueError(f"{text!r} is not between 0 and {below:.0%}; {written}")
    return fraction
