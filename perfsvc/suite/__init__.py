"""A folder of benchmarks, read into cases.

A bench.py uses the names from ``authoring`` (docs/reference/benchmark-files.md); the service uses the others.
"""

from perfsvc.model import Tolerance, Work
from perfsvc.suite.arrays import Inputs, KnownShapes, make_arrays, make_fresh, replay_arrays, replay_inputs
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
from perfsvc.suite.benchfile import BenchFile, StoredModules, functions, load, load_text
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.discovery import ListedCase, Suite, discover
from perfsvc.suite.requirements import unmet
from perfsvc.suite.resolving import replay_tolerance
from perfsvc.suite.selection import Selection

__all__ = [
    "BenchFile",
    "Benchmark",
    "CaseSpec",
    "Inputs",
    "KnownShapes",
    "ListedCase",
    "Selection",
    "StoredModules",
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
