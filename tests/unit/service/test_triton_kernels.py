"""The static facts of Triton kernels, with a cubin of nvcc in place of Triton's."""

import base64
from dataclasses import replace
from unittest.mock import Mock

import pytest

from perfsvc.build import Cache
from perfsvc.build.facts import VerboseNvcc, machine_code
from perfsvc.build.nvcc import find_nvcc
from perfsvc.build.toolchain import Binary
from perfsvc.model import Status, Unit, codec
from perfsvc.process import programs
from perfsvc.process.programs import Finished
from perfsvc.service.check import triton_kernels
from perfsvc.service.check.kernels import KernelReader
from perfsvc.service.check.triton_kernels import CompiledAnswer, CompileRequest, check_triton
from perfsvc.suite import Selection, discover, requirements

BENCH = '''"""Twice a vector."""

from perfsvc.suite import Benchmark, Tolerance, Variant, ceil_div, f64, output, triton

run = triton("twice", grid=lambda n, BLOCK: ceil_div(n, BLOCK), args=("y", "x", "n", f64(0.5)),
             configs=[{"BLOCK": 64, "num_warps": 2}, {"BLOCK": 64, "num_warps": 4}])
benchmark = Benchmark(axes={"n": (4096,)}, smoke={"n": 100},
                      inputs=lambda rng, n: {"x": rng.random(n, dtype="float32").astype("bfloat16")},
                      outputs={"y": output("float32", lambda n: n)}, reference=lambda x: 2 * x,
                      tolerance=Tolerance(max=0, mean=0), variants=[Variant("triton", source="kernel.py", run=run)])
'''
KERNEL = "import triton\n\n\n@triton.jit\ndef twice(y, x, n, half, BLOCK):\n    ...\n"
CUDA = 'extern "C" __global__ void twice(float *y, const float *x, int n) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n'

pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")


@pytest.fixture
def specs(tmp_path):
    folder = tmp_path / "suite" / "twice"
    folder.mkdir(parents=True)
    (folder / "bench.py").write_text(BENCH)
    (folder / "kernel.py").write_text(KERNEL)
    found = discover(folder.parent)
    assert found.problems == ()
    return found.resolve(Selection(), "full")[0]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What Triton's process answers: nvcc's cubin, and what the assembler printed about it."""
    source = tmp_path_factory.mktemp("cuda") / "twice.cu"
    source.write_text(CUDA)
    code = VerboseNvcc("sm_90").compile(Unit(source, ("twice",)))
    binary = Binary(code, "", cached=False, seconds=0.0)
    printed = code.partition(b"\0")[0].decode()
    return CompiledAnswer("", "twice", printed, 2, 1024, base64.b64encode(machine_code(binary)).decode())


@pytest.fixture
def triton(monkeypatch, compiled):
    """The requests that Triton's process got; it answers with ``compiled``."""
    requests = []

    def run(command, **_):
        asked, file = command[-2:]
        with open(asked, "rb") as request:  # noqa: PTH123 - paths as texts
            requests.append(codec.decode(CompileRequest, request.read()))
        with open(file, "wb") as answer:  # noqa: PTH123
            answer.write(codec.encode(replace(compiled, warps=dict(requests[-1].values)["num_warps"])))
        return Finished(0, "", timed_out=False)

    monkeypatch.setattr(programs, "run", run)
    monkeypatch.setattr(triton_kernels, "_version", lambda: "3.6.0")
    return requests


@pytest.mark.slow
def test_each_configuration_is_compiled_for_its_arguments_and_has_facts(specs, triton, tmp_path):
    cache = Cache(tmp_path / "cache")
    (kernels,) = check_triton(specs, ["sm_90"], None, cache, Mock()).values()
    assert [kernel.kernel for kernel in kernels] == ["twice num_warps=2", "twice num_warps=4"]
    assert [kernel.threads for kernel in kernels] == [64, 128]
    assert all(kernel.facts.registers > 0 and kernel.dynamic_shared_bytes == 1024 for kernel in kernels)
    assert all(kernel.occupancy is not None for kernel in kernels)
    assert len({kernel.source for kernel in kernels}) == 2
    assert {request.args for request in triton} == {("float32", "bfloat16", 4096, 0.5)}
    assert {(request.text, request.file, request.capability) for request in triton} == {(KERNEL, "kernel.py", 90)}
    check_triton(specs, ["sm_90"], None, cache, Mock())
    assert len(triton) == 2  # the second check takes both from the cache


def test_an_error_of_triton_is_the_reason_and_is_not_kept(specs, triton, compiled, monkeypatch, tmp_path):
    with monkeypatch.context() as patched:
        patched.setattr(programs, "run", lambda *_, **__: Finished(-11, "", timed_out=False))
        (kernels,) = check_triton(specs, ["sm_90"], None, Cache(tmp_path / "cache"), Mock()).values()
    assert {kernel.status for kernel in kernels} == {Status.FAILED}
    assert "Triton did not compile it" in kernels[0].reason
    (kernels,) = check_triton(specs, ["sm_90"], None, Cache(tmp_path / "cache"), Mock()).values()
    assert {kernel.status for kernel in kernels} == {Status.OK}


def test_without_triton_a_check_skips_the_case_and_names_the_package(specs, monkeypatch, tmp_path):
    monkeypatch.setattr(triton_kernels, "_version", lambda: "")
    (kernels,) = check_triton(specs, ["sm_90"], None, Cache(tmp_path / "cache"), Mock()).values()
    assert {kernel.reason for kernel in kernels} == {"the package triton is not installed"}
    monkeypatch.setattr(requirements, "_is_installed", lambda package: package != "triton")
    (checked,) = KernelReader(["sm_90"], Mock()).read(tmp_path / "suite", Selection(), "full").checked
    assert (checked.case, checked.status) == (specs[0].case, Status.SKIPPED)
    assert "the package triton is not installed" in checked.reason
