"""hyperfine's JSON (``--export-json FILE``). Each run of a command is a process of its own, so it is a replica."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsvc.errors import FormatError
from perfsvc.formats.fields import Record, finite, is_time, json_of, number_of, point_of, variant_name
from perfsvc.formats.result import Result
from perfsvc.model import DeviceInfo, Status

BENCHMARK = "hyperfine"
MOST_RUNS = 100_000
"""The most runs of a command: each is stored as a measurement."""


def parse(text: bytes, _folder: Path | None) -> Iterator[Result]:
    """Yield a result for each run of each command; the command, or its name, is the variant."""
    file = json_of(text)
    file.require("results")
    for command in file.records("results"):
        command.require("command")
        yield from _results(command)


def _results(command: Record) -> Iterator[Result]:
    named: dict[str, Any] = {
        "benchmark": BENCHMARK,
        "variant": variant_name(command.text("command")),
        "point": point_of(command.record("parameters").fields.items()),
        "device": DeviceInfo("host", "", "0", "CPU", ""),
    }
    codes = [code for code in command.items("exit_codes") if code != 0]
    note = f"{len(codes)} of its runs did not exit with 0" if codes else ""
    times = [number_of(value) for value in command.items("times")]
    if len(times) > MOST_RUNS:
        raise FormatError(f"{command.where} has {len(times)} runs, and may have {MOST_RUNS}")
    if not times:
        times = [command.number("median") or command.number("mean")]
        note = "; ".join(filter(None, ["the file has no runs: one value stands for all of them", note]))
    memory = [number_of(value) for value in command.items("memory_usage_byte")]
    for replica, time in enumerate(times):
        if time is None or not is_time(time):
            yield Result(**named, replica=replica, status=Status.FAILED, reason="hyperfine stored no time above zero")
            continue
        counters = {"memory_bytes": memory[replica] if replica < len(memory) else None}
        yield Result(**named, replica=replica, samples_s=(time,), counters=finite(counters), note=note)
