"""The table that the programs of nccl-tests print, such as ``all_reduce_perf``; all other lines are skipped.

The names of the columns say which version of the table it is. Lower times are better; the bus bandwidth is shown.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from perfsvc.errors import FormatError
from perfsvc.formats.fields import benchmark_name, finite, is_time, number_of, point_of, variant_name
from perfsvc.formats.result import Result
from perfsvc.model import DeviceInfo, Status

TIMES = ("time", "cputime")
SIDES = ("out-of-place", "in-place")
_STARTING = re.compile(r"#?\s*Collective test starting: (?P<program>\S+)")
_RANK = re.compile(r"#?\s*Rank\s+\d+\s.*?\bon\s+(?P<host>\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(?P<model>.*)")
_CELL = re.compile(r"\S+")
_SIZE = re.compile(r"[0-9]{1,18}", re.ASCII)

Key = tuple[str, tuple[tuple[str, object], ...]]


def parse(text: bytes, _folder: Path | None) -> Iterator[Result]:
    """Yield a result for each row and side of the table, out of place and in place."""
    program, hosts, models = "", list[str](), list[str]()
    columns: list[str] = []
    rows: dict[Key, list[dict[str, str]]] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), start=1):
        if starting := _STARTING.match(line):
            program = PurePosixPath(starting["program"]).name
        elif rank := _RANK.match(line):
            hosts.append(rank["host"])
            models.append(rank["model"].strip())
        cells = _CELL.findall(line.lstrip("# \t"))
        if "size" in cells[:1] and any(name in TIMES for name in cells):
            columns = cells
        elif cells and all(map(_SIZE.fullmatch, cells[:2])) and not line.startswith("#"):
            if not columns:
                raise FormatError(f"line {number} has numbers, and no line before it has the names of the columns")
            for key, row in _sides(columns, cells, number):
                rows.setdefault(key, []).append(row)
    if not rows:
        raise FormatError("it has no table of nccl-tests", cure="give the whole output of a program of nccl-tests")
    origin = {"device": _device(models), "program": program, "host": hosts[0] if hosts else ""}
    for (side, axes), measured in rows.items():
        yield _result(side, axes, measured, origin)


def _sides(columns: Sequence[str], cells: Sequence[str], number: int) -> Iterator[tuple[Key, dict[str, str]]]:
    """Yield the two sides of a row of the table, each with the columns from its time on."""
    shared = list(takewhile(lambda name: name not in TIMES, columns))
    group = [columns[len(shared)], *takewhile(lambda name: name not in TIMES, columns[len(shared) + 1 :])]
    wanted = len(shared) + len(SIDES) * len(group)
    if len(cells) < wanted:
        raise FormatError(f"line {number} has {len(cells)} cells, and the table has {wanted} columns")
    named = dict(zip(shared, cells, strict=False))
    axes = tuple((name, named[name]) for name in ("size", "type", "redop", "root") if name in named)
    for position, side in enumerate(SIDES):
        first = len(shared) + position * len(group)
        yield (side, axes), dict(zip(group, cells[first : first + len(group)], strict=True))


def _device(models: Sequence[str]) -> DeviceInfo:
    """Return the GPUs as one device: its times belong to all of them."""
    names = ", ".join(f"{models.count(name)} × {name}" for name in dict.fromkeys(models)) or "GPUs"
    return DeviceInfo("cuda", "", "all", variant_name(names), "")


def _result(
    side: str, axes: Sequence[tuple[str, object]], rows: Sequence[dict[str, str]], origin: dict[str, Any]
) -> Result:
    """Return the result of a case; ``rows`` has several rows if the program repeated the table (``-N``)."""
    named: dict[str, Any] = {
        "benchmark": benchmark_name(origin["program"] or "nccl-tests"),
        "variant": side,
        "point": point_of(axes),
        **origin,
    }
    wrong = [count for row in rows for name in ("#wrong", "error") if (count := number_of(row.get(name, "0")))]
    times = [number_of(next(row[name] for name in TIMES if name in row)) for row in rows]
    usable = tuple(time * 1e-6 for time in times if time is not None and is_time(time * 1e-6))
    if any("#wrong" in row for row in rows) and wrong:
        return Result(**named, status=Status.WRONG, reason=f"{wrong[0]:g} elements of the result are wrong")
    if not usable:
        return Result(**named, status=Status.FAILED, reason="nccl-tests printed no time above zero")
    bus = [number_of(row.get("busbw", "")) for row in rows]
    metrics = finite({"bus_bytes_per_s": None if bus[-1] is None else bus[-1] * 1e9})
    return Result(**named, samples_s=usable, metrics=metrics, moved_bytes=int(str(dict(axes)["size"])))
