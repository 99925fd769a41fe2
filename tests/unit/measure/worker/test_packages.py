"""Steps of Python packages: the calls that perfsvc makes, with stand-ins for Triton, CuPy, Numba and PyTorch."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from perfsvc.errors import LaunchError
from perfsvc.measure.worker.packages import PackageFunction, triton_compile_s
from perfsvc.model import BufferArg, Call, KernelConfiguration, PackageCall, ScalarArg


class Tensor(np.ndarray):
    """A tensor of PyTorch on the host, as far as perfsvc uses one."""

    def copy_(self, other):
        self[...] = np.asarray(other).astype(self.dtype)


@pytest.fixture
def torch(monkeypatch):
    """A stand-in for PyTorch, which notes how functions are compiled."""
    module = ModuleType("torch")
    module.bfloat16, module.float8_e5m2 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e5m2)
    module.from_numpy = lambda array: array.view(Tensor)
    module.as_tensor = np.asarray
    module.no_grad = contextlib.nullcontext
    module.compiled = []

    def compiled(function, **options):
        module.compiled.append(options)
        return function

    module.compile = compiled
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


class JITFunction:
    """A kernel of Triton: a launch is ``kernel[grid](*args, **values)``."""

    def __init__(self, slow=()):
        self.launches, self.slow = [], slow

    def __getitem__(self, grid):
        def launch(*args, **values):
            sizes = grid(values) if callable(grid) else grid
            if values.get("BLOCK", 0) > 4096:
                raise RuntimeError("out of resource: shared memory")
            self.launches.append((sizes, args, values))
            args[1][...] = 2 * args[0]

        return launch


def step(function, call, grid=None, dtype="float32"):
    dtypes = dict.fromkeys(("x", "y"), dtype)
    return PackageFunction(Call("double", package=call), function, grid, point={"n": 8}, stream=0, dtypes=dtypes)


def views(dtype="float32"):
    return {"x": np.arange(8).astype(dtype), "y": np.zeros(8).astype(dtype)}


def launched(kernel, call, grid=None):
    arrays = views()
    timed, _ = step(kernel, call, grid).bind(arrays)
    timed()
    return arrays, kernel.launches[-1]


ARGS = (BufferArg("x"), BufferArg("y"), ScalarArg("n", "int64", 8))


@pytest.mark.usefixtures("torch")
def test_a_triton_kernel_gets_tensors_numbers_and_its_values_by_name_and_its_grid_function_the_chosen_ones():
    call = PackageCall("triton", ARGS, configurations=(KernelConfiguration((2, 1), (("BLOCK", 4), ("num_warps", 8))),))
    arrays, (grid, args, values) = launched(JITFunction(), call)
    assert (grid, values) == ((2, 1), {"BLOCK": 4, "num_warps": 8})
    assert isinstance(args[0], Tensor)
    assert args[2] == 8
    assert type(args[2]) is int
    assert arrays["y"].tolist() == [2.0 * value for value in range(8)]
    call = PackageCall("triton", ARGS, configurations=(KernelConfiguration((), (("BLOCK", 4),)),), grid="grid")
    _, (grid, _, _) = launched(JITFunction(), call, lambda n, BLOCK: (n // BLOCK, 3))  # noqa: N803 - a value of Triton
    assert grid == (2, 3)


@pytest.mark.usefixtures("torch")
def test_tuning_chooses_the_first_of_the_fastest_configurations_and_says_so():
    configurations = tuple(
        KernelConfiguration((1,), (("BLOCK", size), ("num_warps", 4))) for size in (64, 128, 256, 8192)
    )
    tuned = step(JITFunction(), PackageCall("triton", ARGS, configurations=configurations))
    seconds = {64: 2e-3, 128: 1.005e-3, 256: 1e-3}
    tuned.prepare(views(), lambda: None, lambda _: seconds[dict(tuned.chosen.values)["BLOCK"]])
    assert dict(tuned.chosen.values) == {"BLOCK": 128, "num_warps": 4}  # 256 is faster by less than 1 %
    assert tuned.choice == "tuning chose BLOCK=128 among 4 configurations for double"
    assert tuned.compile_s >= 0


@pytest.mark.usefixtures("torch")
def test_a_case_fails_with_the_first_error_if_no_configuration_can_be_launched():
    configurations = tuple(KernelConfiguration((1,), (("BLOCK", size),)) for size in (8192, 16384))
    tuned = step(JITFunction(), PackageCall("triton", ARGS, configurations=configurations))
    with pytest.raises(LaunchError, match="triton step 'double' raised RuntimeError: out of resource"):
        tuned.prepare(views(), lambda: None, lambda _: 1.0)


@pytest.mark.usefixtures("torch")
def test_narrow_floats_arrive_as_tensors_of_their_own_dtype():
    seen = []

    def double(x, y):
        seen.append(x.dtype.name)
        y[...] = x

    for dtype in ("bfloat16", "float8_e5m2"):
        arrays = views(dtype)
        timed, _ = step(double, PackageCall("torch", ARGS[:2]), dtype=dtype).bind(arrays)
        timed()
        assert arrays["y"].tolist() == arrays["x"].tolist()
    assert seen == ["bfloat16", "float8_e5m2"]


@pytest.mark.usefixtures("torch")
def test_what_a_function_returns_is_stored_for_a_check_and_not_in_a_sample_and_nothing_is_reported():
    for result in (lambda x: 2 * x, lambda x: {"y": 2 * x}, lambda x: (2 * x,)):
        arrays = views()
        timed, checked = step(result, PackageCall("torch", ARGS[:1], results=("y",))).bind(arrays)
        timed()
        assert not arrays["y"].any()
        checked()
        assert arrays["y"].tolist() == [2.0 * value for value in range(8)]
    _, checked = step(lambda x: None, PackageCall("torch", ARGS[:1], results=("y",))).bind(views())
    with pytest.raises(LaunchError, match="does not get the outputs y, and returned nothing"):
        checked()


def test_a_function_is_compiled_for_the_shapes_of_the_case(torch):
    for mode in ("default", "max-autotune"):
        step(lambda x, y: None, PackageCall("torch", ARGS[:2], compile=mode))
    assert torch.compiled == [{"mode": None, "dynamic": False}, {"mode": "max-autotune", "dynamic": False}]


@pytest.fixture
def cupy(monkeypatch):
    module = ModuleType("cupy")
    module.asarray = np.asarray
    module.streams = []

    class ExternalStream:
        def __init__(self, address):
            self.address = address

        def __enter__(self):
            module.streams.append(self.address)

        def __exit__(self, *_):
            module.streams.append(None)

    module.cuda = SimpleNamespace(ExternalStream=ExternalStream)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_a_kernel_of_cupy_gets_numbers_of_the_size_that_it_declares(cupy):
    seen = []

    def kernel(grid, block, args, *, shared_mem):
        seen.append((grid, block, [type(arg) for arg in args[2:]], shared_mem, list(cupy.streams)))

    args = (*ARGS[:2], ScalarArg("n", "int32", 8), ScalarArg("", "int64", 8))
    call = PackageCall("cupy", args, configurations=(KernelConfiguration((4,)),), block=(256, 1, 1), shared_bytes=16)
    timed, _ = step(kernel, call).bind(views())
    timed()
    assert seen == [((4,), (256, 1, 1), [np.int32, np.int64], 16, [0])]
    assert cupy.streams == [0, None]


def test_a_kernel_of_numba_is_launched_on_perfsvcs_stream(monkeypatch):
    launches = []
    cuda = SimpleNamespace(external_stream=lambda address: ("stream", address), as_cuda_array=lambda view: view)
    monkeypatch.setitem(sys.modules, "numba", SimpleNamespace(cuda=cuda))

    class Kernel:
        def __getitem__(self, launch):
            return lambda *args: launches.append((launch, args[2]))

    call = PackageCall("numba", ARGS, configurations=(KernelConfiguration((4,)),), block=(256, 1, 1), shared_bytes=32)
    timed, _ = step(Kernel(), call).bind(views())
    timed()
    assert launches == [(((4,), (256, 1, 1), ("stream", 0), 32), 8)]


def test_triton_compiles_a_launched_kernel_again_without_its_cache(monkeypatch):
    calls = []
    knobs = SimpleNamespace(compilation=SimpleNamespace(always_compile=False, scope=contextlib.nullcontext))

    def compiled(source, *, target, options):
        calls.append((source, target, options, knobs.compilation.always_compile))

    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(knobs=knobs, compile=compiled))
    metadata = SimpleNamespace(target="sm_90", _asdict=lambda: {"num_warps": 8, "maxnreg": None, "shared": 1024})
    assert triton_compile_s([SimpleNamespace(src="source", metadata=metadata)]) > 0
    assert calls == [("source", "sm_90", {"num_warps": 8}, True)]
    assert triton_compile_s([]) is None
    assert triton_compile_s([SimpleNamespace()]) is None  # of another version of Triton
