"""Libraries on the CPU device: the page's own suite, what a library does wrong, and the replay of its stored code."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "measure-a-library.md"
FILE = re.compile(r"```(?:python|cpp)\n(?:#|//) (\S+)\n(.*?)```", re.DOTALL)
SOURCE = """#include <perfsvc.h>
PERFSVC_LIBRARY(right, in) {
    const float* x = in.array<float>("x");
    float* y = in.array<float>("y");
    long long n = in.integer("n");
    float* w = static_cast<float*>(in.workspace(4 * n));
    return [=](cudaStream_t) {
        for (long long i = 0; i < n; ++i) w[i] = x[i];
        for (long long i = 0; i < n; ++i) y[i] = FACTOR * w[i];
    };
}
PERFSVC_LIBRARY(wrong, in) { return [](cudaStream_t) {}; }
PERFSVC_LIBRARY(error, in) { return [](cudaStream_t) { PERFSVC_CHECK(6 + 7); }; }
PERFSVC_LIBRARY(prints, in) {
    std::puts("a line on the standard output");
    return [](cudaStream_t) { throw std::runtime_error("no licence"); };
}
PERFSVC_LIBRARY(crashes, in) { return [](cudaStream_t) { *(volatile int*)8 = 1; }; }
PERFSVC_LIBRARY(keeps, in) {
    static const float* x = in.array<float>("x");
    static float* y = in.array<float>("y");
    long long n = in.integer("n");
    return [=](cudaStream_t) { for (long long i = 0; i < n; ++i) y[i] = FACTOR * x[i]; };
}
"""
BENCH = """from perfsvc.suite import Benchmark, Tolerance, Variant, library, output

benchmark = Benchmark(
    axes={"n": (1000,)},
    smoke={"n": 1000},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        *(
            Variant(name, run=library("scale.cu", entry=name), params={"FACTOR": 2})
            for name in ("right", "wrong", "error", "prints", "crashes", "keeps")
        ),
        Variant("cublas", run=library("scale.cu", entry="right", libraries="cublas"), params={"FACTOR": 2}),
    ],
)
"""
REASONS = {
    "right": "",
    "wrong": "wrong result: y[0] is nan",
    "error": "the library function 'error' failed: 6 + 7 returned 13",
    "prints": "the library function 'prints' failed: no licence",
    "crashes": "the worker process died (killed by SIGSEGV)",
    "keeps": "the result was right before its arrays moved",
    "cublas": "requires cuda: this is the CPU device",
}


@pytest.fixture(scope="module")
def measured(new_workplace):
    """A workplace in which the whole suite was measured once, and the results by variant."""
    workplace = new_workplace()
    folder = workplace.folder / "libraries" / "scale"
    folder.mkdir(parents=True)
    (folder / "bench.py").write_text(BENCH)
    (folder / "scale.cu").write_text(SOURCE)
    options = ("--format", "json", "--replicas", "1", "--samples", "5", "--places", "3")
    ended = workplace.cpu(*options, suite=folder.parent, code=4)
    return workplace, {row["variant"]: row for row in ended.json["results"]}


def test_a_library_is_measured_or_costs_its_case(measured):
    rows = measured[1]
    statuses = dict.fromkeys(REASONS, "failed") | {
        "right": "ok",
        "cublas": "skipped",
        "wrong": "wrong",
        "keeps": "wrong",
    }
    assert {variant: row["status"] for variant, row in rows.items()} == statuses
    assert {variant: row["reason"] for variant, row in rows.items() if REASONS[variant] not in row["reason"]} == {}


def test_the_page_s_library_runs_without_a_gpu_and_the_others_are_skipped(new_workplace):
    workplace = new_workplace()
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        path = workplace.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    statuses = {}
    for suite in ("host", "kernels"):
        ended = workplace.cpu("--format", "json", "--replicas", "1", "--samples", "5", suite=workplace.folder / suite)
        statuses |= {f"{row['benchmark']}/{row['variant']}": row["status"] for row in ended.json["results"]}
    assert statuses == {
        "half/host": "ok",
        "product/cublas": "skipped",
        "product/cutlass": "skipped",
        "total/cub": "skipped",
    }
