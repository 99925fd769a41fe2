"""Models of the API's answers, made from the definitions of our exports, so that both have the same fields."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from perfsvc.report.export import schema
from perfsvc.report.export.schema import Column
from perfsvc.server.endpoints import Answer

_TYPES: dict[str, Any] = {
    schema.TEXT: str | None,
    schema.INTEGER: int,
    schema.NUMBER_OR_MISSING: int | None,
    schema.FLOAT: float | None,
    schema.FLAG: bool,
    schema.MOMENT: datetime | None,
}


class OpenAnswer(Answer):
    """An object that has further fields: a number or a text for each axis and each named metric."""

    model_config = ConfigDict(extra="allow")


def of_columns(name: str, doc: str, columns: Sequence[Column], *, more: bool = False) -> type[BaseModel]:
    """Return the model of a row with these columns; with ``more`` the row may have further fields."""
    made: dict[str, Any] = {column.name: (_TYPES[column.dtype], ...) for column in columns}
    return create_model(name, __base__=OpenAnswer if more else Answer, __doc__=doc, **made)


def of_dataclass(
    name: str, doc: str, kind: type, *, without: Iterable[str] = (), base: type[BaseModel] = Answer, **more: Any
) -> type[BaseModel]:
    """Return the model of an object with the fields of a dataclass, less ``without``, and with further fields."""
    types = get_type_hints(kind)
    kept = {field.name: types[field.name] for field in fields(kind) if field.name not in without}
    made: dict[str, Any] = {field: (type_, ...) for field, type_ in (kept | more).items()}
    return create_model(name, __base__=base, __doc__=doc, **made)


def page_of(row: type[BaseModel]) -> type[BaseModel]:
    """Return the model of a page of rows."""
    return create_model(
        f"{row.__name__}Page",
        __base__=Answer,
        __doc__="A page of rows; `next_offset` is null on the last page.",
        items=(list[row], ...),  # type: ignore[valid-type]  # a model that was made at run time
        next_offset=(int | None, ...),
    )
