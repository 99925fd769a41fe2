"""Write one run of the built-in suite into docs/measured/kernels.md and docs/explanation/kernels.md.

    perfsvc run --db kernels.db
    perfsvc report --summary --db kernels.db --output kernels.json
    perfsvc plot --select transpose --output docs/measured/kernels/transpose.svg --db kernels.db  # and so on
    python tests/benchmarks/kernels_page.py kernels.json

The first page has every case. The tables of the second have a row per variant, at the largest point at which it was
measured, and one for each value of an axis that is not numeric. Each table stands between
``<!-- measured: transpose -->`` and ``<!-- end -->``; the rest of that page stays as it is. If there is a picture
docs/measured/kernels/transpose.svg, it is shown above its table.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from perfsvc import units
from perfsvc.model import UNJUDGED
from perfsvc.report import peaks
from perfsvc.report.export.frames import parse_point
from perfsvc.report.peaks import RIDGE
from perfsvc.report.wording import DASH, metric_value, or_dash, spread

DOCS = Path(__file__).parents[2] / "docs"
RIGHT = "ok"
WRITTEN_BY = """\
This page shows the times of all kernels that come with perfsvc, from one run of `{command}`.
[The built-in suite](../explanation/kernels.md) explains the kernels and their variants.

The columns mean:

| column | meaning |
| --- | --- |
| variant | one implementation of the benchmark. The L2 cache is emptied before each launch, except in rows with \
`warm`. |
| point | the values of the benchmark's parameters, such as the size n |
| median | the time of one launch. Several processes measure the variant, and each process gives the median of its \
times. The column shows the geometric mean of these medians. |
| spread | half the width of the 95 % confidence interval of the median, as a percentage of the median |
| bandwidth | the bytes that the problem requires, divided by the median |
| FLOP/s | the floating-point operations that the problem requires, divided by the median |
| of measured peak | the bandwidth as a percentage of the fastest rate at which perfsvc could copy or read the GPU's \
memory. Measurements are not exact, so the percentage can be 101 %. |
| of reference variant | the speed as a percentage of the speed of the reference variant. The benchmark chooses this \
variant; its row has 100 %. |
| max error | the largest error of an element of the result, relative to the correct result |
| mean error | the mean error of the elements of the result, relative to the correct result |
| load_s | only in the benchmark `jit`, which measures no launches: the time in which the driver loads the kernel |
| block_cycles | the mean number of clock cycles that one block of threads takes. Only the variant `flat_index` counts\
 them. |

The script `tests/benchmarks/kernels_page.py` wrote this page."""

Row = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the run and write both pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the JSON file that perfsvc report --summary wrote")
    parser.add_argument("--command", default="perfsvc run", help="the command of the run (default: %(default)s)")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    chosen = parser.parse_args(arguments)
    rows = json.loads(chosen.run.read_text(encoding="utf-8"))
    runs = {(row["run"], row["device"]) for row in rows}
    if len(runs) != 1:
        parser.error(f"{chosen.run} holds {len(runs)} runs and devices, and the pages show only one")
    explanation = chosen.docs / "explanation" / "kernels.md"
    page = explanation.read_text(encoding="utf-8")
    if homeless := [name for name, _ in by_benchmark(rows) if begin(name) not in page]:
        parser.error(
            f"{explanation} has no place for {', '.join(homeless)}: write {begin(homeless[0])} and {END} there"
        )
    (chosen.docs / "measured" / "kernels.md").write_text(measured_page(rows, chosen.command), encoding="utf-8")
    explanation.write_text(with_tables(page, rows, chosen.docs), encoding="utf-8")
    return 0


def by_benchmark(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows by benchmark, in their order: by point, and variant by variant."""
    return [(name, list(of)) for name, of in itertools.groupby(rows, key=itemgetter("benchmark"))]


# --- docs/measured/kernels.md ----------------------------------------------------------------------------------------


def measured_page(rows: Sequence[Row], command: str) -> str:
    """Return the page with every case of the run, by benchmark."""
    first = rows[0]
    toolkit = [name for name in (first["driver"] and f"driver {first['driver']}", first["toolkit"]) if name]
    power = [f"power limit {first['power_limit_w']:.0f} W"] if first["power_limit_w"] else []
    peak = [f"measured peak {units.rate(first['copy_bytes_per_s'])} (copy)"] if first["copy_bytes_per_s"] else []
    facts = [
        first["started_at"][:10],
        ", ".join([first["device_model"], *power, *peak]),
        *toolkit,
        f"commit {first['commit'][:9]}{'+' if first['dirty'] else ''}",
    ]
    parts = ["# Measured: the built-in suite", " · ".join(facts), WRITTEN_BY.format(command=command)]
    for name, of in by_benchmark(rows):
        parts += [f"## {name}", table(every_column(row) for row in of if row["status"] == RIGHT)]
        if reasons := [f"- `{row['case']}` {row['status']}: {row['reason']}" for row in of if row["status"] != RIGHT]:
            parts.append("\n".join(reasons))
    return "\n\n".join(part for part in parts if part) + "\n"


def every_column(row: Row) -> dict[str, str]:
    """Return the cells of a case on the page of measurements."""
    return {
        "variant": named(row),
        "point": row["point"].replace(",", ", "),
        "median": or_dash(row["median_s"], units.seconds),
        "spread": spread(row["median_s"], row["low_s"], row["high_s"]),
        "bandwidth": or_dash(row["bandwidth_bytes_per_s"], units.rate),
        "FLOP/s": or_dash(row["flops_per_s"], units.flop_rate),
        "of measured peak": peaks.share(row.get("peak") or "", row.get("peak_share")),
        "of reference variant": or_dash(row.get("relative_speed"), units.share),
        "max error": or_dash(row["max_error"], units.error),
        "mean error": or_dash(row["mean_error"], units.error),
        **metrics(row),
    }


# --- docs/explanation/kernels.md -------------------------------------------------------------------------------------

END = "<!-- end -->"


def begin(benchmark: str) -> str:
    """Return the marker before a benchmark's table."""
    return f"<!-- measured: {benchmark} -->"


def with_tables(page: str, rows: Sequence[Row], docs: Path) -> str:
    """Return the page with a new table for each benchmark that has a correct result."""
    for name, of in by_benchmark(rows):
        if variants := largest_points(of):
            picture = f"measured/kernels/{name}.svg"
            shown = f"![{name}](../{picture})\n\n" if (docs / picture).is_file() else ""
            before, _, rest = page.partition(begin(name))
            _, _, after = rest.partition(END)
            page = f"{before}{begin(name)}\n\n{shown}{table(map(few_columns, variants))}\n\n{END}{after}"
    return page


def largest_points(rows: Iterable[Row]) -> list[Row]:
    """Return the largest correct point of each variant, for each value of the axes that are not numeric."""
    largest = {}  # rows come point by point, and the last one is kept
    for row in rows:
        if row["status"] == RIGHT:
            words = tuple(value for value in parse_point(row["point"]).values() if isinstance(value, str))
            largest[row["variant"], row["cache"], words] = row
    return sorted(largest.values(), key=itemgetter("variant_index"))


def few_columns(row: Row) -> dict[str, str]:
    """Return the cells of a variant on the page of explanations."""
    nbytes = row["read_bytes"] + row["written_bytes"]
    computes = row["flops"] > RIDGE * nbytes
    rate = (
        or_dash(row["flops_per_s"], units.flop_rate) if computes else or_dash(row["bandwidth_bytes_per_s"], units.rate)
    )
    return {
        "variant": named(row),
        "at": row["point"].replace(",", ", "),
        "median": or_dash(row["median_s"], units.seconds),
        "rate": rate,
        "of measured peak": peaks.share(row.get("peak") or "", row.get("peak_share")),
        "of reference variant": or_dash(row.get("relative_speed"), units.share),
        "max error": or_dash(row["max_error"], units.error),
        **metrics(row),
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def named(row: Row) -> str:
    """Return the variant, and its cache state if that is not the usual one."""
    return f"`{row['variant']}`" + (f" {row['cache']}" if row["cache"] != "cold" else "")


def metrics(row: Row) -> dict[str, str]:
    """Return the metrics of a case other than its time."""
    own = {name.removeprefix("metric_"): value for name, value in row.items() if name.startswith("metric_")}
    return {name: or_dash(value, partial(metric_value, name)) for name, value in own.items() if name not in UNJUDGED}


def table(rows: Iterable[Mapping[str, str]]) -> str:
    """Return rows as a Markdown table without empty columns; an empty text without rows."""
    every = list(rows)
    filled = {name for row in every for name, cell in row.items() if cell not in {"", DASH}}
    names = [name for name in dict.fromkeys(itertools.chain(*every)) if name in filled]
    lines = [
        names,
        ["---", *["---:"] * (len(names) - 1)],
        *([row.get(name) or DASH for name in names] for row in every),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if every else ""


if __name__ == "__main__":
    sys.exit(main())
