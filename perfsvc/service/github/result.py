"""Read the review in a result file, which may come from the pull request of a stranger."""

import json
import os
import stat
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from perfsvc.errors import FormatError
from perfsvc.report.review import Remark, Review, Severity

MOST_BYTES = 16 * 1024 * 1024
"""A result has some KiB for each case."""
MOST_REMARKS = 20_000

_Name = Annotated[str, StringConstraints(max_length=20_000)]
_Text = Annotated[str, StringConstraints(max_length=1_000_000)]


class ReadRemark(BaseModel):
    """A remark in a result file; the fields are those of ``Remark``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    rule: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,40}$")]
    level: Severity
    title: _Name
    subject: _Name
    text: _Text
    path: _Name
    line: Annotated[int, Field(ge=0, le=100_000_000)]
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")]


class ReadReview(BaseModel):
    """The review in a result file; the fields are those of ``Review``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    command: Literal["check", "compare"]
    passed: bool
    counts: _Name
    about: _Name
    remarks: Annotated[list[ReadRemark], Field(max_length=MOST_REMARKS)]
    notes: Annotated[list[_Text], Field(max_length=MOST_REMARKS)]


class ReadResult(BaseModel):
    """A result file of ``perfsvc check`` or ``perfsvc compare``; only its review is used."""

    model_config = ConfigDict(extra="ignore", strict=True)

    review: ReadReview


def read_review(path: Path) -> Review:
    """Return the review in the JSON of ``perfsvc check`` or ``perfsvc compare``.

    Every text in it may be hostile.

    Raises:
        FormatError: the file cannot be read, is too large, or is no such JSON.
    """
    content = _content(path)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FormatError(f"{path} is no JSON: {why}", cure=_cure()) from error
    try:
        review = ReadResult.model_validate(value).review
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise FormatError(f"{path} is no result of this perfsvc: {where}: {first['msg']}", cure=_cure()) from None
    return Review(
        review.command,
        review.passed,
        review.counts,
        review.about,
        tuple(Remark(**remark.model_dump()) for remark in review.remarks),
        tuple(review.notes),
    )


def _content(path: Path) -> bytes:
    """Return the content of a regular file of at most ``MOST_BYTES``; raise ``FormatError`` for all else."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FormatError(f"{path} is no file", cure=_cure())
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}", cure=_cure()) from error
    if len(content) > MOST_BYTES:
        raise FormatError(f"{path} has more than {MOST_BYTES // 1024**2} MiB", cure="compare fewer cases: --select")
    return content


def _cure() -> str:
    return "write the file with: perfsvc check --output FILE.json, or perfsvc compare … --output FILE.json"
