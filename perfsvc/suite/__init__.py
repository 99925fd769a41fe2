"""A folder of benchmarks → cases.

The first names are what a bench.py is written with (docs/authoring.md); the others are what the service asks for.
"""

from perfsvc.model import Tolerance, Work
from perfsvc.suite.arrays import replay_arrays, replay_inputs
from perfsvc.suite.authoring import (
    Benchmark,
    Variant,
    call,
    ceil_div,
    f32,
    f64,
    finish,
    i32,
    i64,
    launch,
    memset,
    metric,
    output,
    scratch,
    tensor_map,
)
from perfsvc.suite.benchfile import BenchFile, functions, load, load_text
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.case_arrays import make_arrays, make_fresh
from perfsvc.suite.common import replay_tolerance
from perfsvc.suite.discovery import Listed, Suite, discover
from perfsvc.suite.inputs import Inputs
from perfsvc.suite.known_shapes import KnownShapes
from perfsvc.suite.requirements import unmet
from perfsvc.suite.selection import Selection

__all__ = [
    "BenchFile",
    "Benchmark",
    "CaseSpec",
    "Inputs",
    "KnownShapes",
    "Listed",
    "Selection",
    "Suite",
    "Tolerance",
    "Variant",
    "Work",
    "call",
    "ceil_div",
    "discover",
    "f32",
    "f64",
    "finish",
    "functions",
    "i32",
    "i64",
    "launch",
    "load",
    "load_text",
    "make_arrays",
    "make_fresh",
    "memset",
    "metric",
    "output",
    "replay_arrays",
    "replay_inputs",
    "replay_tolerance",
    "scratch",
    "tensor_map",
    "unmet",
]
