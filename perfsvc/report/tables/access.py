"""The tokens of the server, and its audit log, as tables."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from perfsvc.report.tables.layout import grid
from perfsvc.report.wording import DASH


def tokens_table(tokens: Iterable[tuple[Mapping[str, Any], str]]) -> RenderableType:
    """Return the tokens, each as its JSON object with why it is invalid (empty if it is valid)."""
    table = grid()
    for name in ("token", "may", "made by", "made (UTC)", "ends (UTC)", "last used (UTC)", "state"):
        table.add_column(name, overflow="fold")
    for token, why in tokens:
        cells = (token["name"], ", ".join(token["scopes"]), token["made_by"])
        times = tuple(_minute(token[key]) for key in ("made", "expires", "used"))
        state = Text(why or "valid", style="dim" if why else "green")
        table.add_row(*map(Text, (*cells, *times)), state)
    return table


def audit_table(entries: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Return entries of the audit log, each as its JSON object."""
    table = grid()
    for name in ("time (UTC)", "who", "action", "on", "from", "answer", "refused because"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        texts = (entry["who"] or DASH, entry["action"], entry["target"], entry["address"])
        table.add_row(*map(Text, (_minute(entry["at"]), *texts, str(entry["status"]), entry["reason"])))
    return table


def _minute(moment: str | None) -> str:
    """Return a time in ISO 8601 without seconds and offset."""
    return moment[:16].replace("T", " ") if moment else DASH
