"""The JSON of pytest-benchmark (``--benchmark-json=FILE``, or a file below ``.benchmarks``).

All rounds of a test ran in one process, so they are the samples of one replica. ``--benchmark-save`` stores no rounds
without ``--benchmark-save-data``; the median then stands for them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsvc.formats.fields import (
    Record,
    benchmark_name,
    finite,
    is_time,
    json_of,
    moment,
    number_of,
    point_of,
    variant_name,
)
from perfsvc.formats.result import Result
from perfsvc.model import DeviceInfo, Status


def parse(text: bytes, _folder: Path | None) -> Iterator[Result]:
    """Yield a result for each test; the file of a test is its benchmark, and its function is the variant."""
    file = json_of(text)
    file.require("machine_info", "benchmarks")
    machine, commit = file.record("machine_info"), file.record("commit_info")
    model = machine.record("cpu").text("brand_raw") or machine.text("processor") or machine.text("machine") or "CPU"
    origin = {
        "device": DeviceInfo("host", "", "0", variant_name(model), machine.text("machine")),
        "commit": commit.text("id"),
        "dirty": commit.flag("dirty"),
        "host": machine.text("node"),
        "started": moment(file.text("datetime"), "datetime"),
    }
    for benchmark in file.records("benchmarks"):
        benchmark.require("name", "stats")
        yield _result(benchmark, origin)


def _result(benchmark: Record, origin: dict[str, Any]) -> Result:
    path, _, test = (benchmark.text("fullname") or benchmark.text("name")).partition("::")
    if not test:
        path, test = "tests", path
    function = test.replace("::", ".")
    axes: list[tuple[str, Any]] = []
    if benchmark.fields.get("params") is not None:
        axes = list(benchmark.record("params").fields.items())
    elif parameters := benchmark.text("param"):
        axes = [("param", parameters)]
    if axes and function.endswith("]"):
        function = function.partition("[")[0]
    named: dict[str, Any] = {
        "benchmark": benchmark_name(path.removesuffix(".py")),
        "variant": variant_name(function),
        "point": point_of(axes),
        **origin,
    }
    stats = benchmark.record("stats")
    rounds = [number_of(value) for value in stats.items("data")]
    times = rounds or [stats.number("median") or stats.number("mean")]
    usable = tuple(time for time in times if time is not None and is_time(time))
    if not usable:
        return Result(**named, status=Status.FAILED, reason="pytest-benchmark stored no time above zero")
    left_out = len(times) - len(usable)
    note = "" if rounds else "the file has no rounds: one value stands for all of them"
    note = (
        f"{left_out} of {len(times)} rounds were left out, because they have no time above zero" if left_out else note
    )
    extra = benchmark.record("extra_info").fields
    counters = {key: number_of(value) for key, value in extra.items() if not isinstance(value, str)}
    return Result(**named, samples_s=usable, counters=finite(counters), note=note)
