"""Points one by one, with an axis of text."""

from __future__ import annotations

from dataclasses import dataclass

from perfsvc.suite import Benchmark, Tolerance, Variant, output


@dataclass
class Problem:
    rows: int


def inputs(rng, rows, layout):
    return {"x": rng.random((Problem(rows).rows, 3))}


benchmark = Benchmark(
    points=[{"rows": 8, "layout": "row"}, {"rows": 16, "layout": "column"}],
    smoke={"rows": 2, "layout": "row"},
    inputs=inputs,
    outputs={"y": output("float64", lambda rows: (rows, 3))},
    reference=lambda x: x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[Variant("copy", source="copy.cu", entry="copy", grid=1, block=32, args=("y", "x", "rows"))],
)
