"""Which changes of a benchmark file change what its Python functions do."""

from perfsvc.suite.python_source import imports, same_source

FILE = '''"""Sums."""

import numpy as np
import torch
from helpers import first, second

TILE = 1024
SCALE = 2.0


def inputs(rng, n):
    return {"x": rng.random(n) * np.float64(1)}


def launcher():
    import triton

    @triton.jit
    def kernel(x, n, TILE: tl.constexpr):
        return x * SCALE

    return kernel


def run(arrays, stream):
    """Sum on the GPU."""
    grid = (ceil(arrays.n, TILE),)
    launcher()[grid](arrays.x, arrays.n, TILE=TILE, num_warps=4)
    first(arrays)


def another(arrays, stream):
    second(arrays, torch)


benchmark = Benchmark(inputs=inputs, variants=[Variant("run", run=run), Variant("another", run=another)])
'''


def changed(old, new):
    assert old in FILE
    return FILE.replace(old, new)


def test_what_a_function_does_not_reach_is_no_other_source():
    changes = [
        ('"""Sum on the GPU."""', '"""Sum."""  # quickly'),
        ('"""Sum on the GPU."""\n', "\n"),
        ("def inputs", "\n\ndef inputs"),
        ("second(arrays, torch)", "second(torch)"),
        ("import torch", "import torch as other"),
        ("import first, second", "import first, third"),
        ('Variant("run", run=run)', 'Variant("run", run=run, requires="cuda")'),
    ]
    for old, new in changes:
        assert same_source(FILE, changed(old, new), ["run"]), new


def test_what_a_function_or_the_inputs_reach_is_other_source_and_no_option():
    changes = [
        ("x * SCALE", "x + SCALE"),
        ("SCALE = 2.0", "SCALE = 3.0"),
        ("first(arrays)", "first(arrays, 2)"),
        ("import first, second", "import third as first, second"),
        ("rng.random(n)", "rng.normal(n)"),
    ]
    for old, new in changes:
        assert not same_source(FILE, changed(old, new), ["run"]), new
        assert not same_source(FILE, changed(old, new), ["run"], outline=True), new


def test_options_of_a_launch_change_the_source_and_not_its_outline():
    changes = [
        ("num_warps=4", "num_warps=16"),
        (", num_warps=4", ""),
        ("num_warps=4", "num_warps=4, num_stages=2"),
        ("TILE = 1024", "TILE = 2048"),
        ("num_warps=4", "num_warps=8 if arrays.n > 7 else 4"),
    ]
    for old, new in changes:
        assert not same_source(FILE, changed(old, new), ["run"]), new
        assert same_source(FILE, changed(old, new), ["run"], outline=True), new


def test_a_number_that_is_read_elsewhere_too_is_no_option():
    file = changed("first(arrays)", "first(arrays, TILE)")
    assert not same_source(file, file.replace("TILE = 1024", "TILE = 2048"), ["run"], outline=True)


def test_a_file_that_is_written_in_another_way_is_compared_as_a_whole():
    file = changed("benchmark = Benchmark(", "benchmark = made(")
    assert not same_source(file, file.replace("second(arrays, torch)", "second(torch)"), ["run"])
    assert same_source(file, file.replace('"""Sums."""', '"""A sum."""'), ["run"])


def test_a_text_that_cannot_be_parsed_equals_itself_alone():
    assert same_source("def run(:", "def run(:", ["run"])
    assert not same_source("def run(:", "def run( :", ["run"])
    assert imports("def run(:", frozenset({"run"})) == ()


def test_only_what_a_function_reaches_is_imported():
    assert imports(FILE, frozenset({"run"})) == ("numpy", "helpers", "helpers.first", "triton")
    assert imports(FILE, frozenset({"another"})) == ("numpy", "torch", "helpers", "helpers.second")
    text = 'importlib.import_module("cupy")\nfrom . import near\nfrom ..far import off\nfrom torch import *\n'
    names = ("cupy", "here.inner", "here.inner.near", "here.far", "here.far.off", "torch", "torch.*")
    assert sorted(imports(text, None, "here.inner")) == sorted(names)
