"""Damage of JSON and bytes that the hostile scripts share."""

import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any

VALUES: tuple[str, ...] = (
    *("null", "true", "-1", "0", "1e308", "-1e308", "1e-320", "NaN", "Infinity", "-Infinity", str(1 << 70), "1e999"),
    *('""', '"\\u0000"', '"\\u001b[31m"', '"\\ud800"', '"\\u202e"', '"NaN"', '"other"', '"inf"', '"1e-50"', "[[]]"),
    *("[" * 5000 + "]" * 5000, '"' + "x" * 100_000 + '"', "9" * 5000, "not json", '{"time": 1.0}', "[1.0, null]"),
    *('"../../../../etc/passwd"', '"/dev/zero"', '"a/b[c=d],e"', '"=1+1"', "18446744073709551616", '"12"', '{"": 1}'),
    *("[]", "{}"),
)
"""What replaces a value, as JSON or nearly."""
NAMES = ("", "name", "time", "message", "\0", "x\ny", "é" * 300)
"""What replaces the name of a value."""


def other_values(chance: random.Random, content: bytes) -> bytes:
    """Replace, remove, rename, swap or double values anywhere in JSON."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return content
    places = list(_places(document))
    for _ in range(chance.choice((1, 1, 1, 2, 5)) if places else 0):
        holder, key = chance.choice(places)
        action = chance.randrange(6)
        with contextlib.suppress(KeyError, IndexError, TypeError):
            if action == 0:
                del holder[key]
            elif action == 1:
                other, other_key = chance.choice(places)
                holder[key], other[other_key] = other[other_key], holder[key]
            elif action == 2 and isinstance(holder, dict):
                holder[chance.choice(NAMES)] = holder.pop(key)
            elif action == 3 and isinstance(holder, list):
                holder.append(holder[key])
            else:
                holder[key] = f"@{chance.randrange(len(VALUES))}@"
    try:
        text = json.dumps(document)
    except (ValueError, RecursionError):  # a value holds itself now
        text = "{}"
    for number, value in enumerate(VALUES):
        text = text.replace(f'"@{number}@"', value)
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value: its dict or list, and its key or index."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def changed_bytes(chance: random.Random, content: bytes, header: int = 0) -> bytes:
    """Change, insert, remove or repeat bytes; half of the changes are in the first ``header`` bytes."""
    changed = bytearray(content or b" ")
    for _ in range(chance.choice((1, 1, 2, 8))):
        most = chance.choice((header, len(changed))) or len(changed)
        at = chance.randrange(min(len(changed), most) or 1)
        match chance.randrange(4):
            case 0 if changed:
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                changed[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 2:
                del changed[at : at + chance.randrange(1, 9)]
            case _:
                changed[at:at] = changed[at : at + chance.randrange(1, 200)]
    return bytes(changed)


def cut(chance: random.Random, content: bytes) -> bytes:
    """Return the beginning of the content."""
    return content[: chance.randrange(len(content) or 1)]
