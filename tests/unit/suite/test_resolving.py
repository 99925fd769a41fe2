from dataclasses import replace
from pathlib import Path

import pytest

from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    CacheState,
    Call,
    HostFinish,
    HostMetric,
    Kind,
    Launch,
    Memset,
    ReplayRecord,
    Role,
    ScalarArg,
    Tolerance,
    Unit,
    Work,
    codec,
)
from perfsvc.suite import Selection, discover
from perfsvc.suite.benchfile import load
from perfsvc.suite.points import expansions_of, smoke_point
from perfsvc.suite.resolving import BenchmarkPoint, resolve

GOOD = Path(__file__).parents[2] / "data" / "suites" / "good"
TEMPLATE = """
from perfsvc.suite import *
def inputs(rng, n):
    return {{"x": rng.random(n)}}
benchmark = Benchmark(
    axes={{"n": (64,)}}, smoke={{"n": 8}}, inputs=inputs, outputs={{"y": output("float64", 1)}},
    reference=lambda x: x.sum(), tolerance=Tolerance(0, 0),
    variants=[Variant("v", source="k.cu", entry="k", {})])
"""


@pytest.fixture(scope="module")
def suite():
    return discover(GOOD)


@pytest.fixture
def spec(suite):
    (spec,) = suite.resolve(Selection(("steps/full-TILE16-FAST1[n=64,scale=2.0]",)), "full")[0]
    return spec


def written(folder, variant, text=TEMPLATE):
    """Return the suite of one variant with these fields."""
    (folder / "k.cu").write_text("")
    (folder / "bench.py").write_text(text.format(variant))
    return discover(folder)


def test_there_is_one_unit_for_each_source_with_all_its_entries(spec):
    defines = (("FAST", 1), ("ITEMS", 4), ("SPAN", 1), ("TILE", 16))
    assert spec.units == (
        Unit(GOOD / "steps" / "first.cu", ("first", "third"), defines, ("-use_fast_math",)),
        Unit(GOOD / "steps" / "second.cu", ("second",), defines, ("-use_fast_math",)),
    )


def test_parameters_may_depend_on_the_point(suite):
    (spec,) = suite.resolve(Selection(("steps/full-TILE16-FAST1[n=4096,scale=2.0]",)), "full")[0]
    assert dict(spec.units[0].defines)["SPAN"] == 2


def test_buffers_are_those_of_the_steps_each_with_its_role(spec):
    assert spec.buffers == (
        Buffer(Array("x", "float32", (64,)), Role.INPUT),
        Buffer(Array("y", "float32", (64,)), Role.INOUT),
        Buffer(Array("weights", "float32", (4,)), Role.INPUT),
        Buffer(Array("sum", "float32", (1,)), Role.OUTPUT),
        Buffer(Array("partials", "float32", (4,)), Role.SCRATCH),
    )


def test_steps_are_resolved_in_order(spec):
    first = Launch(
        module=0,
        entry="first",
        grid=(4, 1, 1),
        block=(16, 2, 1),
        shared_bytes=64,
        constants=(("table", "weights"),),
        args=(
            BufferArg("y"),
            BufferArg("x"),
            BufferArg("partials"),
            ScalarArg("n", "int32", 64),
            ScalarArg("scale", "float32", 2.0),
            ScalarArg("n", "int64", 64),
            ScalarArg("scale", "float32", 2.0),
            ScalarArg("", "int32", 4096),
            ScalarArg("", "int32", 7),
        ),
    )
    second = Launch(1, "second", (1, 2, 3), (1, 1, 1), (BufferArg("x"), ScalarArg("ITEMS", "int32", 4)))
    third = Launch(0, "third", (1, 1, 1), (1, 1, 1), ())
    last = (HostFinish("sum", "partials", "sum"), HostMetric("span", "mean", "partials"))
    assert spec.steps == (Memset("partials", 255), first, second, third, *last)


def test_work_tolerance_cache_and_requirements_are_those_of_the_point(spec):
    assert spec.work == Work(read_bytes=512, written_bytes=256, flops=128, precision="fp32")
    assert spec.tolerance == Tolerance(max=1e-6 * 64, mean=1e-7 * 64)
    assert spec.cache is CacheState.WARM
    assert spec.requires == ("cuda", "sm_90", "n % 2 == 0")


def test_a_variant_index_counts_all_expansions(suite):
    specs = suite.resolve(Selection(("steps[n=4096,scale=2.0]",)), "full")[0]
    found = [(spec.case.variant, spec.variant_index, spec.relative_to) for spec in specs]
    assert found == [
        ("full-TILE16-FAST0", 0, "full-TILE32-FAST1"),
        ("full-TILE16-FAST1", 1, "full-TILE32-FAST1"),
        ("full-TILE32-FAST0", 2, "full-TILE32-FAST1"),
        ("full-TILE32-FAST1", 3, "full-TILE32-FAST1"),
    ]
    assert [(spec.variant_index, spec.relative_to) for spec in suite.resolve(Selection(("python",)), "full")[0]] == [
        (0, ""),
        (1, ""),
    ]


def test_python_variants_have_calls_and_no_units(suite):
    host, pipeline = suite.resolve(Selection(("python",)), "full")[0]
    assert (host.kind, host.units, host.steps) == (Kind.HOST, (), (Call("metrics"),))
    assert pipeline.kind is Kind.PIPELINE
    assert pipeline.steps == (Call("halves"), HostFinish("sum", "partials", "total"))
    assert [buffer.array.name for buffer in pipeline.buffers] == ["x", "total", "partials"]


def test_a_function_with_a_source_is_given_its_binary(tmp_path):
    (tmp_path / "k.cu").write_text("")
    (tmp_path / "bench.py").write_text(
        "from perfsvc.suite import *\n"
        "def work(arrays, stream, binary): ...\n"
        "def bring(arrays, stream): ...\n"
        'called = call(work, source="k.cu")\n'
        'launched = launch(entry="k", source="other.cu", grid=1, block=1)\n'
        'benchmark = Benchmark(axes={"n": (8,)}, smoke={"n": 8}, variants=[\n'
        '    Variant("short", kind="pipeline", source="k.cu", run=work, params={"N": 3}, options="-ptx"),\n'
        '    Variant("long", kind="pipeline", steps=[call(bring, timed=False), launched, called])])\n'
    )
    (tmp_path / "other.cu").write_text("")
    suite = discover(tmp_path)
    assert suite.problems == ()
    short, long = suite.resolve(Selection(), "full")[0]
    assert short.units == (Unit(tmp_path / "k.cu", (), (("N", 3),), ("-ptx",)),)
    assert short.steps == (Call("work", 0),)
    assert [unit.source.name for unit in long.units] == ["other.cu", "k.cu"]
    assert (long.steps[0], long.steps[2]) == (Call("bring", timed=False), Call("work", 1))


def test_the_precision_of_work_is_declared_or_that_of_the_fastest_input(tmp_path):
    table = {
        (("float64",), ""): "fp64",
        (("float32", "float64"), ""): "fp32",
        (("float16", "float32"), ""): "fp16",
        (("uint16", "int32"), ""): "",
        (("uint16",), "bf16"): "bf16",
        (("float32",), "tf32"): "tf32",
    }
    for (dtypes, declared), precision in table.items():
        arrays = ", ".join(f'"x{number}": rng.random(n).astype("{dtype}")' for number, dtype in enumerate(dtypes))
        work = f'work=Work(flops=2, precision="{declared}"), reference=lambda x0: x0.sum()'
        text = TEMPLATE.replace('{{"x": rng.random(n)}}', f"{{{{{arrays}}}}}")
        text = text.replace("reference=lambda x: x.sum()", work)
        suite = written(tmp_path, 'grid=1, block=1, args=("y", "x0")', text)
        (spec,) = suite.resolve(Selection(), "full")[0]
        assert spec.work == Work(flops=2, precision=precision)


def test_a_record_names_its_modules_and_its_file_by_digest_and_survives_the_codec(spec):
    assert spec.bench == GOOD / "steps" / "bench.py"
    assert spec.bench.is_absolute()
    record = spec.record(["aa", "bb"], "cc")
    assert (record.modules, record.bench, record.seed) == (("aa", "bb"), "cc", spec.seed)
    assert (record.buffers, record.steps, record.case) == (spec.buffers, spec.steps, spec.case)
    assert codec.decode(ReplayRecord, codec.encode(record)) == record
    with pytest.raises(ValueError, match="2 parts, but 1 modules"):
        spec.record(["aa"], "cc")


def test_the_seed_is_that_of_the_point_for_all_variants(suite):
    specs = suite.resolve(Selection(("steps",)), "full")[0]
    seeds = {(spec.case.point, spec.seed) for spec in specs}
    assert len(seeds) == len({point for point, _ in seeds}) == len({seed for _, seed in seeds})


def test_a_case_of_both_cache_states_is_resolved_once_for_each(tmp_path):
    suite = written(tmp_path, "grid=1, block=1, args=('y', 'x'), cache='both'")
    cold, warm = suite.resolve(Selection(), "full")[0]
    assert (cold.cache, warm.cache) == (CacheState.COLD, CacheState.WARM)
    assert cold == replace(warm, cache=CacheState.COLD)
    (listed,) = suite.select(Selection(), "full")
    assert listed.caches == (CacheState.COLD, CacheState.WARM)


def test_the_shapes_of_inputs_decide_the_shapes_of_buffers(tmp_path):
    written(tmp_path, "grid=1, block=1, args=('y', 'x')")
    file = load(tmp_path / "bench.py")
    (expansion,) = expansions_of(file.benchmark)
    at = BenchmarkPoint(file, smoke_point(file.benchmark), {"x": Array("x", "float64", (9,))})
    (spec,) = resolve(expansion, at)
    assert [buffer.array.shape for buffer in spec.buffers] == [(9,), (1,)]


def test_points_that_differ_only_in_the_type_of_a_number_are_both_checked(tmp_path):
    text = TEMPLATE.replace("(64,)", "(8.0,)").replace("rng.random(n)", "rng.random(8)")
    suite = written(tmp_path, "grid=lambda n: n, block=1, args=('y', 'x')", text)
    assert [problem.what for problem in suite.problems] == ["grid of variant 'v' is 8.0"]


def test_numpy_numbers_are_as_good_as_pythons(tmp_path):
    suite = written(tmp_path, "grid=lambda n: np.int64(n), block=1, args=('y', 'T'), params={'T': (np.float32(0.5),)}")
    text = "import numpy as np\n" + (tmp_path / "bench.py").read_text()
    (tmp_path / "bench.py").write_text(text.replace('{"n": (64,)}', '{"n": (np.int32(64),)}'))
    suite = discover(tmp_path)
    (spec,) = suite.resolve(Selection(), "full")[0]
    assert suite.problems == ()
    assert spec.case.variant == "v-T0.5"
    assert spec.case.point == (("n", 64),)
    assert type(spec.case.point[0][1]) is int
    assert spec.steps[0].grid == (64, 1, 1)


def test_inputs_that_fail_at_a_full_point_do_not_stop_resolving(tmp_path):
    written(tmp_path, "grid=1, block=1, args=('y', 'x')")
    text = (tmp_path / "bench.py").read_text().replace("rng.random(n)", "rng.random(n if n < 64 else -1)")
    (tmp_path / "bench.py").write_text(text)
    suite = discover(tmp_path)
    (spec,) = suite.resolve(Selection(), "full")[0]
    assert suite.problems == ()
    assert spec.case.point == (("n", 64),)


def test_options_are_words_and_an_exact_architecture_is_one_of_them(tmp_path):
    table = {
        'options="-O3 -DX=1"': ("-O3", "-DX=1"),
        'options=["-O3 -DX=1", "-lineinfo"]': ("-O3", "-DX=1", "-lineinfo"),
        """options="-I 'my headers'" """: ("-I", "my headers"),
        'requires=["sm_90a", "n % 4 == 0"]': ("-gencode=arch=compute_90a,code=sm_90a",),
        'requires="sm_100a", options="-O3"': ("-gencode=arch=compute_100a,code=sm_100a", "-O3"),
        'requires="sm_90a", options="-arch sm_90a"': ("-arch", "sm_90a"),
        'requires="sm_90"': (),
    }
    fields = 'source="k.cu", entry="k", grid=1, block=1, args=("y",)'
    variants = ", ".join(f'Variant("v{number}", {fields}, {variant})' for number, variant in enumerate(table))
    suite = written(tmp_path, variants, TEMPLATE.replace('Variant("v", source="k.cu", entry="k", {})', "{}"))
    specs = suite.resolve(Selection(), "smoke")[0]
    assert [spec.units[0].options for spec in specs] == list(table.values())
