"""Steps in Triton, CuPy, Numba and PyTorch, and what they become."""

from perfsvc.build import Cache, compile_all
from perfsvc.build.toolchain import FakeToolchain
from perfsvc.model import BufferArg, KernelConfiguration, PackageCall, ScalarArg
from perfsvc.suite import Selection, discover
from perfsvc.suite.steps.packages import names_defined
from tests.unit.suite.benches import text_of

KERNEL = "import triton\n\n\n@triton.jit\ndef add_kernel(x, y, n, BLOCK):\n    ...\n"
HEAD = """
def double(x):
    return 2 * x
def double_into(x, y, n):
    y[:] = 2 * x
def grid(n, TILE):
    return ceil_div(n, TILE)
"""
FIELDS = {
    "axes": '{"n": (4096,)}',
    "inputs": 'lambda rng, n: {"x": rng.random(n, dtype="float32")}',
    "outputs": '{"y": output("float32", lambda n: n)}',
}


def suite(folder, variant):
    path = folder / "double"
    path.mkdir()
    text = text_of(fields=FIELDS | {"variants": f'[Variant("of", {variant})]'})
    (path / "bench.py").write_text(text.replace("import *", f"import *{HEAD}"))
    (path / "add.py").write_text(KERNEL)
    return discover(folder)


def resolved(folder, variant):
    found = suite(folder, variant)
    assert found.problems == ()
    (spec,) = found.resolve(Selection(), "full")[0]
    return spec, spec.steps[0]


TRITON = 'run=triton("add_kernel", source="add.py", args=("x", "y", "n"), '


def test_a_triton_kernel_in_a_file_becomes_a_call_with_that_file_as_its_module(tmp_path):
    spec, step = resolved(tmp_path, TRITON + "grid=lambda n, BLOCK: ceil_div(n, BLOCK), BLOCK=1024, num_warps=8)")
    assert (step.function, step.module, step.source, step.bench_functions) == ("add_kernel", 0, 0, ())
    assert step.package == PackageCall(
        "triton",
        (BufferArg("x"), BufferArg("y"), ScalarArg("n", "int64", 4096)),
        configurations=(KernelConfiguration((4,), (("BLOCK", 1024), ("num_warps", 8))),),
        file="add.py",
    )
    assert spec.requires == ("cuda", "import torch", "import triton")
    built = compile_all(spec.units, FakeToolchain(), Cache(tmp_path / "cache"))
    assert [binary.code.decode() for binary in built.values()] == [KERNEL]
    assert [dict(binary.sources) for binary in built.values()] == [{"add.py": KERNEL.encode()}]


def test_each_configuration_has_its_own_grid_and_values(tmp_path):
    configs = 'configs=[{"BLOCK": 1024}, {"BLOCK": 512, "num_warps": 2}], LIMIT="n", SCALE=lambda n: n / 2)'
    _, step = resolved(tmp_path, TRITON + f"grid=lambda BLOCK, n: (ceil_div(n, BLOCK), 2), {configs}")
    assert step.package.configurations == (
        KernelConfiguration((4, 2), (("LIMIT", 4096), ("SCALE", 2048.0), ("BLOCK", 1024))),
        KernelConfiguration((8, 2), (("LIMIT", 4096), ("SCALE", 2048.0), ("BLOCK", 512), ("num_warps", 2))),
    )


def test_a_parameter_of_the_variant_is_passed_by_its_name(tmp_path):
    found = suite(
        tmp_path, 'params={"TILE": (64, 128)}, ' + TRITON + 'grid=lambda n, TILE: ceil_div(n, TILE), BLOCK="TILE")'
    )
    assert found.problems == ()
    steps = [spec.steps[0] for spec in found.resolve(Selection(), "full")[0]]
    assert [step.package.configurations[0] for step in steps] == [
        KernelConfiguration((64,), (("BLOCK", 64),)),
        KernelConfiguration((32,), (("BLOCK", 128),)),
    ]


def test_a_grid_that_only_the_kernels_own_tuner_can_compute_is_found_by_its_name(tmp_path):
    _, step = resolved(tmp_path, TRITON + "grid=grid)")
    assert step.package.grid == "grid"
    assert step.package.configurations == (KernelConfiguration(),)
    assert step.bench_functions == ("grid",)


def test_the_parameters_of_a_function_decide_what_it_gets_and_what_it_returns(tmp_path):
    spec, step = resolved(tmp_path, "run=torch(double, compile=True)")
    assert step.package == PackageCall("torch", (BufferArg("x"),), results=("y",), compile="default")
    assert spec.requires == ("import torch",)


def test_a_function_that_gets_every_output_returns_nothing(tmp_path):
    _, step = resolved(tmp_path, "run=cupy(double_into)")
    assert step.package.results == ()
    assert step.package.args == (BufferArg("x"), BufferArg("y"), ScalarArg("n", "int64", 4096))


def test_a_kernel_of_cupy_gets_numbers_like_a_kernel_in_cpp(tmp_path):
    _, step = resolved(tmp_path, 'run=cupy(double, grid=4, block=256, args=("x", "y", "n", f32(0.5)), shared_bytes=64)')
    assert step.package.args[2:] == (ScalarArg("n", "int32", 4096), ScalarArg("", "float32", 0.5))
    assert (step.package.block, step.package.shared_bytes) == ((256, 1, 1), 64)


def test_a_python_source_that_is_no_python_is_a_problem_of_its_line(tmp_path):
    suite(tmp_path, TRITON + "grid=1, BLOCK=1)")
    (tmp_path / "double" / "add.py").write_text("def add_kernel(:\n")
    (problem,) = discover(tmp_path).problems
    assert "add.py:1: invalid syntax" in problem.what


def test_names_in_conditions_and_tuples_are_defined_too():
    text = "try:\n    import a.b\nexcept ImportError:\n    c = None\nif c:\n    def d(): e = 1\n"
    text += "f, (g, h) = 1, (2, 3)\ni: int = 0\n"
    assert names_defined(text) == ("a", "c", "d", "f", "g", "h", "i")
