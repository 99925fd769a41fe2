"""Values as TOML writes them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsvc.config.types import Unit
from perfsvc.units import duration_text


def toml(value: Any, unit: Unit | None = None) -> str:
    """A value of a setting as it stands in a file; what nobody set is ``""``, ``[]`` or ``{}``."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number(value, unit)
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            pairs = ", ".join(f"{_name(str(key))} = {toml(one)}" for key, one in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case None:
            return '""'
        case _:
            return f"[{', '.join(map(toml, value))}]"


def _number(value: float, unit: Unit | None) -> str:
    if unit is Unit.DURATION:
        return f'"{duration_text(value)}"'
    if unit is Unit.SHARE:
        return f'"{value * 100:.12g}%"'
    return f"{value:d}" if isinstance(value, int) else f"{value:.12g}"


def _name(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)
