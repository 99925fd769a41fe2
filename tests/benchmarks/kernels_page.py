"""Writes what one run of the built-in suite measured: docs/measured/kernels.md, and the tables of docs/explanation/kernels.md.

    perfsvc run --db kernels.db
    perfsvc report --summary --db kernels.db --output kernels.json
    perfsvc plot --select transpose --output docs/measured/kernels/transpose.svg --db kernels.db  # and so on
    python tests/benchmarks/kernels_page.py kernels.json

The first holds every case. The tables of the second have a row a variant, at the largest point that it was measured at,
one for each choice of an axis that is no number. Each stands between ``<!-- measured: transpose -->`` and
``<!-- end -->``, and all else on that page stays as it is. A picture docs/measured/kernels/transpose.svg is shown above
its table where there is one.
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
from perfsvc.report.export.frames import parse_point
from perfsvc.report.tables.run import RIDGE
from perfsvc.report.wording import DASH, metric_value, or_dash, spread

DOCS = Path(__file__).parents[2] / "docs"
RIGHT = "ok"
WRITTEN_BY = """\
Written by `tests/benchmarks/kernels_page.py` from one run, `{command}`. A median is the geometric mean of its replicas'.
Bytes and operations are those of the problem, however a variant goes about it. The share of the reference variant is the reference variant's
median over the variant's own, at the same point. Errors are those of [the glossary](../reference/glossary.md), the largest of all
replicas. What it all means stands in [kernels.md](../explanation/kernels.md)."""

Row = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the run and writes both pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="what perfsvc report --summary wrote as JSON")
    parser.add_argument("--command", default="perfsvc run", help="how it was measured (default: %(default)s)")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    chosen = parser.parse_args(arguments)
    rows = json.loads(chosen.run.read_text(encoding="utf-8"))
    runs = {(row["run"], row["device"]) for row in rows}
    if len(runs) != 1:
        parser.error(f"{chosen.run} holds {len(runs)} runs and devices, and the pages tell of one")
    told = chosen.docs / "explanation" / "kernels.md"
    page = told.read_text(encoding="utf-8")
    if homeless := [name for name, _ in ladders(rows) if begin(name) not in page]:
        parser.error(f"{told} has no place for {', '.join(homeless)}: write {begin(homeless[0])} and {END} there")
    (chosen.docs / "measured" / "kernels.md").write_text(measured_page(rows, chosen.command), encoding="utf-8")
    told.write_text(with_tables(page, rows, chosen.docs), encoding="utf-8")
    return 0


def ladders(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows by benchmark, in their order: by point, and variant by variant."""
    return [(name, list(of)) for name, of in itertools.groupby(rows, key=itemgetter("benchmark"))]


# --- docs/measured/kernels.md ----------------------------------------------------------------------------------------


def measured_page(rows: Sequence[Row], command: str) -> str:
    """Every case of the run, by benchmark."""
    first = rows[0]
    toolkit = [name for name in (first["driver"] and f"driver {first['driver']}", first["toolkit"]) if name]
    power = [f"power limit {first['power_limit_w']:.0f} W"] if first["power_limit_w"] else []
    peak = [f"copies {units.rate(first['copy_bytes_per_s'])}"] if first["copy_bytes_per_s"] else []
    facts = [
        first["started_at"][:10],
        ", ".join([first["device_model"], *power, *peak]),
        *toolkit,
        f"commit {first['commit'][:9]}{'+' if first['dirty'] else ''}",
    ]
    parts = [
        "# Measured: the built-in suite",
        " · ".join(facts),
        WRITTEN_BY.format(command=command),
    ]
    for name, of in ladders(rows):
        parts += [f"## {name}", table(every_column(row) for row in of if row["status"] == RIGHT)]
        if reasons := [f"- `{row['case']}` {row['status']}: {row['reason']}" for row in of if row["status"] != RIGHT]:
            parts.append("\n".join(reasons))
    return "\n\n".join(part for part in parts if part) + "\n"


def every_column(row: Row) -> dict[str, str]:
    """A case as the page of measurements shows it."""
    return {
        "variant": named(row),
        "point": row["point"].replace(",", ", "),
        "median": or_dash(row["median_s"], units.seconds),
        "spread": spread(row["median_s"], row["low_s"], row["high_s"]),
        "bandwidth": or_dash(row["bandwidth_bytes_per_s"], units.rate),
        "FLOP/s": or_dash(row["flops_per_s"], units.flop_rate),
        "of peak": or_dash(row["peak_share"], units.share),
        "of reference": or_dash(row.get("relative_speed"), units.share),
        "max error": or_dash(row["max_error"], units.error),
        "mean error": or_dash(row["mean_error"], units.error),
        **metrics(row),
    }


# --- docs/explanation/kernels.md -------------------------------------------------------------------------------------------------

END = "<!-- end -->"


def begin(benchmark: str) -> str:
    """What stands before a benchmark's table."""
    return f"<!-- measured: {benchmark} -->"


def with_tables(page: str, rows: Sequence[Row], docs: Path) -> str:
    """The page with the table of each benchmark that has a right result in its place."""
    for name, of in ladders(rows):
        if variants := rungs_of(of):
            picture = f"measured/kernels/{name}.svg"
            shown = f"![{name}]({picture})\n\n" if (docs / picture).is_file() else ""
            before, _, rest = page.partition(begin(name))
            _, _, after = rest.partition(END)
            page = f"{before}{begin(name)}\n\n{shown}{table(map(few_columns, variants))}\n\n{END}{after}"
    return page


def rungs_of(rows: Iterable[Row]) -> list[Row]:
    """Of each variant with a right result the largest point, one for each choice of the axes that are no numbers."""
    largest = {}  # rows come point by point, and the last one stays
    for row in rows:
        if row["status"] == RIGHT:
            words = tuple(value for value in parse_point(row["point"]).values() if isinstance(value, str))
            largest[row["variant"], row["cache"], words] = row
    return sorted(largest.values(), key=itemgetter("variant_index"))


def few_columns(row: Row) -> dict[str, str]:
    """A variant as the story shows it."""
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
        "of peak": "" if computes else or_dash(row["peak_share"], units.share),
        "of reference": or_dash(row.get("relative_speed"), units.share),
        "max error": or_dash(row["max_error"], units.error),
        **metrics(row),
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def named(row: Row) -> str:
    """The variant, and its cache state where that is not the usual one."""
    return f"`{row['variant']}`" + (f" {row['cache']}" if row["cache"] != "cold" else "")


def metrics(row: Row) -> dict[str, str]:
    """What a case tells of itself beside its time."""
    own = {name.removeprefix("metric_"): value for name, value in row.items() if name.startswith("metric_")}
    return {name: or_dash(value, partial(metric_value, name)) for name, value in own.items() if name not in UNJUDGED}


def table(rows: Iterable[Mapping[str, str]]) -> str:
    """Rows as Markdown, without the columns in which none has anything; nothing of no rows."""
    every = list(rows)
    told = {name for row in every for name, cell in row.items() if cell not in {"", DASH}}
    names = [name for name in dict.fromkeys(itertools.chain(*every)) if name in told]
    lines = [
        names,
        ["---", *["---:"] * (len(names) - 1)],
        *([row.get(name) or DASH for name in names] for row in every),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if every else ""


if __name__ == "__main__":
    sys.exit(main())
