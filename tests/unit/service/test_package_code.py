"""Kernels in Python files: whether two sides have the same code, and in which configuration old code is measured."""

from dataclasses import replace
from types import SimpleNamespace

from perfsvc.model import (
    BufferArg,
    Call,
    Case,
    KernelConfiguration,
    Kind,
    Package,
    PackageCall,
    PythonCode,
    ReplayRecord,
    TritonKernel,
    digest,
)
from perfsvc.service.compare.sides import _Code, _Comparer
from perfsvc.service.confirm.pairs import as_tuned

BENCH = "def inputs(rng): return {}\n\n\nbenchmark = Benchmark(inputs=inputs, variants=[Variant(TILE)])\n"
KERNEL = "def kernel(x):  # TILE\n    store(x, 1)\n"
SMALL = KernelConfiguration((8,), (("BLOCK", 64), ("num_warps", 4)))
LARGE = KernelConfiguration((4,), (("BLOCK", 128), ("num_warps", 8)))


def record(bench=BENCH, kernel=KERNEL, package="triton", configurations=(SMALL,), **of_call):
    call = PackageCall(package, (BufferArg("x"),), configurations=configurations, file="kernel.py", **of_call)
    steps = (Call("kernel", 0, package=call),)
    return ReplayRecord(Case("b", "v"), Kind.KERNEL, (), steps, (digest(kernel.encode()),), digest(bench.encode()), 7)


def python(code="cubin", block=64, warps=4, triton="3.6.0"):
    options = (("BLOCK", str(block)), ("num_warps", str(warps)))
    kernel = TritonKernel("kernel", "source", options, code, "c" * 64, "{}")
    return PythonCode(packages=(Package("triton", triton),), kernels=(kernel,))


def compare(old, new, texts=(BENCH, KERNEL)):
    contents = {digest(text.encode()): text.encode() for text in texts}

    def modules(digests):
        return {name: contents[name] for name in digests}

    sides = [_Code(SimpleNamespace(record=record, sources=record.modules), code) for record, code in (old, new)]
    return _Comparer(SimpleNamespace(binaries=SimpleNamespace(modules=modules)), [tuple(sides)]).compare(*sides)


def test_a_comment_in_the_kernels_file_and_another_variant_in_the_bench_change_no_code():
    kernel, bench = KERNEL.replace("# TILE", "# a tile"), BENCH.replace("TILE", "OTHER")
    same = compare((record(), python()), (record(bench, kernel), python()), (BENCH, KERNEL, bench, kernel))
    assert same.code


def test_other_python_with_the_same_cubin_is_the_same_code():
    kernel = KERNEL.replace("store(x, 1)", "store(x, 2 - 1)")
    texts = (BENCH, KERNEL, kernel)
    assert compare((record(), python()), (record(kernel=kernel), python()), texts).code
    assert compare((record(), python()), (record(kernel=kernel), python(triton="3.7.0")), texts).code
    assert not compare((record(), python()), (record(kernel=kernel), python("other")), texts).code


def test_other_inputs_and_other_python_of_a_function_are_other_code():
    bench = BENCH.replace("return {}", 'return {"x": 1}')
    assert not compare((record(), python()), (record(bench), python()), (BENCH, KERNEL, bench)).code
    kernel = KERNEL.replace("store(x, 1)", "store(x, 2 - 1)")
    code = replace(python(), kernels=())
    for package in ("torch", "cupy"):
        old, new = ((record(kernel=text, package=package), code) for text in (KERNEL, kernel))
        assert not compare(old, new, (BENCH, KERNEL, kernel)).code


def test_another_configuration_or_more_of_them_are_the_launch_and_are_named():
    other = python("other", 128, 8)
    changed = compare((record(), python()), (record(configurations=(LARGE,)), other))
    assert not changed.code
    assert changed.launch == "grid 8 → 4, BLOCK 64 → 128, num_warps 4 → 8"
    changed = compare((record(), python()), (record(configurations=(SMALL, LARGE)), other))
    assert changed.launch == "1 configuration → 2, BLOCK 64 → 128, num_warps 4 → 8"


def test_old_code_is_measured_in_the_configuration_that_was_chosen():
    tuned = as_tuned(record(configurations=(SMALL, LARGE)), python(block=128, warps=8))
    assert tuned.steps[0].package.configurations == (LARGE,)
    tunable = record(configurations=(SMALL, LARGE))
    for code in (PythonCode(), python(block=32)):
        assert as_tuned(tunable, code) == tunable  # the choice is not stored
