"""A folder of benchmarks, read into cases.

A bench.py uses the names from ``authoring`` (docs/reference/benchmark-files.md); the service uses the others.
"""

from perfsvc.model import Tolerance, Work
from perfsvc.selection import Selection
from perfsvc.suite import isolated
from perfsvc.suite.authoring import (
    Benchmark,
    Variant,
    all_reduce,
    call,
    ceil_div,
    f32,
    f64,
    finish,
    i32,
    i64,
    launch,
    library,
    memset,
    metric,
    output,
    peer,
    peer_copy,
    pointer,
    program,
    regex,
    scratch,
    struct,
    tensor_map,
)
from perfsvc.suite.benchfile import StoredModules, functions
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.discovery import Suite, discover
from perfsvc.suite.isolated.requests import ListedCase, StoredBench
from perfsvc.suite.requirements import unmet, wrong_gpus
from perfsvc.suite.steps.packages import cupy, numba, torch, triton
