"""Stop expecting what is gone on purpose."""

import contextlib
from collections.abc import Collection, Sequence

from perfsvc import units
from perfsvc.errors import UsageError
from perfsvc.model import (
    Absence,
    Expected,
    ExpectedKind,
)
from perfsvc.selection import parse
from perfsvc.service.expect.cases import case_evidence, case_of, subject_of
from perfsvc.service.expect.gpus import gpus_gone
from perfsvc.store import Store


def forget(
    store: Store, names: Sequence[str], *, by: str, reason: str, finding: int | None = None
) -> tuple[list[Expected], list[int]]:
    """Stop expecting hosts, GPUs or cases; return what is no longer expected, and the findings that this accepts.

    Args:
        store: the database.
        names: names of hosts, beginnings of GPU UUIDs, globs of cases. The name of a host also stands for its GPUs and
            cases.
        by: the person who forgets them.
        reason: why they are gone.
        finding: also forget everything that this finding reports as missing; None for no finding.

    Raises:
        UsageError: a name or the finding matches nothing that is expected, or the beginning of a UUID matches several
            GPUs.
    """
    expected = store.expectations.of_host(None)
    forgotten = {row.key: row for name in names for row in _named(expected, name)}
    if finding is not None:
        reported = [row for row in expected if row.finding == finding]
        if not reported:
            what = f"finding {finding} reports nothing that is expected and missing"
            raise UsageError(what, cure=f"perfsvc findings show {finding}; list what is missing: perfsvc expect")
        hosts = {row.name for row in reported if row.kind is ExpectedKind.HOST}
        forgotten |= {row.key: row for row in expected if row.finding == finding or row.host in hosts}
    left = [row for row in expected if row.finding is not None and row.key not in forgotten]
    concerned = {row.finding for row in forgotten.values()}
    absences = [
        _left(
            [row for row in left if row.finding == number], {row.name for row in expected if row.key not in forgotten}
        )
        for number in dict.fromkeys(row.finding for row in left)
        if number in concerned
    ]
    return list(forgotten.values()), store.expectations.forget(forgotten.values(), by=by, reason=reason, left=absences)


def _left(rows: Sequence[Expected], expected: Collection[str]) -> Absence:
    """Return the absence of ``rows``: the rows that a finding still reports after a person forgot its other rows."""
    if rows[0].kind is not ExpectedKind.CASE:
        return gpus_gone(rows, rows[0].devices)
    evidence = "; ".join(case_evidence(rows, None, {}, name_suite=False))
    return Absence(subject_of(rows, expected, ()), evidence, tuple(rows))


def _named(expected: Sequence[Expected], name: str) -> list[Expected]:
    """Return the expected rows that a name means: all rows of a host, the rows of a GPU, or cases that match a glob.

    Raises ``UsageError`` if the name means nothing or several GPUs.
    """
    of_host = [row for row in expected if row.host == name]
    of_gpu = [row for row in expected if row.kind is ExpectedKind.GPU and row.name.lower().startswith(name.lower())]
    of_gpu = [row for row in of_gpu if row.name == name] or of_gpu
    if not name.strip() or not (rows := of_host or of_gpu or [row for row in expected if _is_case(row, name)]):
        raise UsageError(f"nothing that is expected is named {name!r}", cure="list the names: perfsvc expect")
    gpus = list(dict.fromkeys(row.name for row in of_gpu))
    if not of_host and len(gpus) > 1:
        raise UsageError(f"{len(gpus)} GPUs begin with {name!r}: {units.some(gpus)}", cure="write more of the UUID")
    return rows


def _is_case(row: Expected, name: str) -> bool:
    """Return whether a row is a case whose id is ``name``, or whose id matches the glob ``name``."""
    if row.kind is not ExpectedKind.CASE:
        return False
    with contextlib.suppress(UsageError):
        return row.name == name or parse(name).matches(case_of(row.name))
    return False
