"""A results folder of asv (airspeed velocity): a folder for each machine, and in it a file for each commit.

``benchmarks.json`` beside these folders has the names of parameters and the units. asv adds benchmarks to the file of a
commit, so each benchmark in a file has a digest of its own. asv mixes the samples of its processes, so all samples of a
benchmark are one replica.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfsvc.errors import FormatError
from perfsvc.formats.fields import (
    Record,
    benchmark_name,
    digest_of,
    finite,
    is_time,
    json_of,
    moment_of_ms,
    number_of,
    point_of,
    variant_name,
)
from perfsvc.formats.result import Result
from perfsvc.model import DeviceInfo, Status

VERSION = 2
MACHINE, BENCHMARKS = "machine.json", "benchmarks.json"
TIMES = ("time", "timeraw")
MEMORY = {"memory": "memory_bytes", "peakmemory": "peak_memory_bytes"}
TYPES = {"time": "time", "timeraw": "time", "mem": "memory", "peakmem": "peakmemory", "track": "track"}
"""The type of a benchmark by the beginning of its name, for benchmarks that the suite no longer has."""
MOST_POINTS = 100_000
"""The most combinations of parameters of a benchmark."""


def files_of(folder: Path) -> list[Path]:
    """Return the files with results below a results folder, or in the folder of one machine."""
    files = [*folder.glob("*.json"), *folder.glob("*/*.json")]
    return sorted(file for file in files if (file.parent / MACHINE).is_file() and file.name != MACHINE)


def parse(text: bytes, folder: Path | None) -> Iterator[Result]:
    """Yield a result for each benchmark and combination of parameters in the file of a commit.

    Args:
        text: the content of the file.
        folder: the folder of the machine; without it, parameters have no names, and units follow from names.
    """
    file = json_of(text)
    file.require("commit_hash", "result_columns", "results")
    if file.integer("version", VERSION) != VERSION:
        raise FormatError(
            f"its version is {file.integer('version')}, and perfsvc reads version {VERSION}", cure="asv update"
        )
    parameters = file.record("params")
    columns = [str(name) for name in file.items("result_columns")]
    described = _described(folder)
    machine = parameters.text("machine")
    model = parameters.text("cpu") or "CPU"
    environment = file.text("env_name")
    origin: dict[str, Any] = {
        "device": DeviceInfo("host", "", "0", variant_name(model), parameters.text("arch")),
        "commit": file.text("commit_hash"),
        "host": machine,
        # asv measures old commits later; the history is that of the commits, so the date of the commit counts.
        "started": moment_of_ms(file.number("date")),
    }
    for name, row in file.record("results").fields.items():
        if isinstance(row, list):
            entry = Record(dict(zip(columns, row, strict=False)), f"results.{name}")
        else:
            raise FormatError(f"results.{name} is no list")
        origin["digest"] = digest_of("asv", file.text("commit_hash"), machine, environment, name, row)
        yield from _results(name, entry, described.get(name), environment, origin)


def _described(folder: Path | None) -> Mapping[str, Record]:
    """Return what ``benchmarks.json`` has about each benchmark; empty without that file."""
    path = folder.parent / BENCHMARKS if folder else None
    if path is None or not path.is_file():
        return {}
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from None
    file = json_of(content)
    return {
        name: Record.of(value, f"{BENCHMARKS}: {name}")
        for name, value in file.fields.items()
        if isinstance(value, dict)
    }


def _results(
    name: str, entry: Record, described: Record | None, environment: str, origin: dict[str, Any]
) -> Iterator[Result]:
    """Yield a result for each combination of the parameters of a benchmark."""
    module, _, function = name.rpartition(".")
    lists = _parameters(entry)
    count = 1
    for values in lists:
        count *= len(values)
        if count > MOST_POINTS:
            raise FormatError(f"{entry.where} has more than {MOST_POINTS} combinations of parameters")
    names = [str(axis) for axis in described.items("param_names")] if described else []
    names += [f"param{number}" for number in range(len(names) + 1, len(lists) + 1)]
    numbers = entry.fields.get("result")
    if numbers is not None and (not isinstance(numbers, list) or len(numbers) != count):
        raise entry.wrong("result", f"no list of {count} numbers")
    samples = entry.items("samples")
    kind = described.text("type") if described else ""
    kind = kind or TYPES.get(function.partition("_")[0].lower(), "track")
    is_time_unit = described is not None and kind == "track" and described.text("unit") in {"seconds", "s"}
    for index, point in enumerate(itertools.product(*lists)):
        axes = [*zip(names, map(_plain, point), strict=False), ("env", environment)]
        named = {
            "benchmark": benchmark_name(module or "benchmarks"),
            "variant": variant_name(function),
            "point": point_of(axes if environment else axes[:-1]),
            **origin,
        }
        value = None if numbers is None else numbers[index]
        kept = samples[index] if index < len(samples) else None
        yield _result(named, value, kept, entry, "time" if is_time_unit else kind)


def _parameters(entry: Record) -> list[list[Any]]:
    lists = entry.items("params")
    if not all(isinstance(values, list) and values for values in lists):
        raise entry.wrong("params", "no list of lists")
    return lists


def _plain(value: Any) -> Any:
    """Return the value of a parameter; asv writes a text with its quotes."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value


def _result(named: dict[str, Any], value: Any, samples: Any, entry: Record, kind: str) -> Result:
    """Return the result of one combination of parameters. asv stores NaN if it was skipped, and null if it failed."""
    if value is None:
        return Result(**named, status=Status.FAILED, reason="asv stored no result: the benchmark failed")
    number = number_of(value)
    if number is None or isinstance(value, str):
        raise entry.wrong("result", "no list of numbers")
    if number != number:  # noqa: PLR0124 - NaN
        return Result(**named, status=Status.SKIPPED, reason="asv skipped it for these parameters")
    if kind in TIMES:
        times = [number_of(sample) for sample in samples] if isinstance(samples, list) else []
        usable = tuple(time for time in times if time is not None and is_time(time))
        note = "" if usable else "the file has no samples: one value stands for all of them"
        usable = usable or ((number,) if is_time(number) else ())
        if not usable:
            return Result(**named, status=Status.FAILED, reason="asv stored no time above zero")
        return Result(**named, samples_s=usable, note=note)
    numbers = finite({MEMORY.get(kind, "value"): number})
    if not numbers:
        return Result(**named, status=Status.FAILED, reason="asv stored no finite number")
    return Result(**named, metrics=numbers) if kind in MEMORY else Result(**named, counters=numbers)
