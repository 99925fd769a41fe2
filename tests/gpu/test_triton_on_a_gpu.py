"""A Triton kernel made slower by its source, by the options of its launch and by another Triton: three causes."""

import importlib.util
import json
import shutil

import pytest

from perfsvc.elf import kernel_registers
from perfsvc.keys import Keys, Signed
from perfsvc.store import Store
from tests.gpu.commands import Workplace, perfsvc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("torch", "triton")), reason="there is no Triton"
    ),
]

BENCH = '''"""Twice a vector, after steps that change nothing."""

import os
from functools import cache

from perfsvc.suite import Benchmark, Tolerance, Variant, output

N = 128 * 4096
STEPS = int(os.environ.get("STEPS", "160"))


def inputs(rng):
    return {"x": rng.random(N, dtype="float32")}


@cache
def kernel():
    import triton
    import triton.language as tl

    @triton.jit
    def twice(y, x, n, steps, TILE: tl.constexpr):
        i = tl.program_id(0) * TILE + tl.arange(0, TILE)
        value = tl.load(x + i, mask=i < n, other=0.0)
        mean = value
        for _ in range(1 * steps):
            mean = 0.5 * mean + 0.5 * value
        tl.store(y + i, 2 * mean, mask=i < n)

    return twice


def run(arrays, stream):
    import torch

    y, x = (torch.as_tensor(arrays[name], device="cuda") for name in ("y", "x"))
    with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
        kernel()[(128,)](y, x, N, STEPS, TILE=4096, num_warps=8)


benchmark = Benchmark(
    inputs=inputs,
    outputs={"y": output("float32", N)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-5, mean=1e-5),
    variants=[Variant("triton", run=run, requires="cuda")],
)
'''
CASE = "twice/triton"


class Triton(Workplace):
    """A suite of one Triton kernel."""

    def measure(self, *arguments, **environment):
        command = ("run", "--suite", "kernels", "--device", self.device, "--replicas", "2", *arguments)
        done = perfsvc(self.folder, *command, limit_s=600, **environment)
        assert done.returncode in {0, 1}, done.stderr + done.stdout
        return done.stdout

    def confirmed(self, **environment):
        """Measure the suite again, and its suspect in A/B pairs; return the cause and the reason."""
        printed = self.measure("--confirm", **environment)
        rows = self.rows("select cause, reason, ratio from confirmations")
        assert len(rows) == 1, printed
        return rows[0]


@pytest.fixture(scope="module")
def measured(gpus, tmp_path_factory):
    """A folder with one run."""
    workplace = Triton(tmp_path_factory.mktemp("triton"), gpus[0].spec)
    (workplace.suite / "twice").mkdir(parents=True)
    (workplace.suite / "twice" / "bench.py").write_text(BENCH, encoding="utf-8")
    workplace.measure()
    return workplace


@pytest.fixture
def workplace(measured, tmp_path):
    shutil.copytree(measured.folder, tmp_path, dirs_exist_ok=True)
    return Triton(tmp_path, measured.device)


def test_what_a_triton_kernel_ran_with_is_stored(measured):
    ((record,),) = measured.rows("select record from python_codes")
    code = json.loads(record)
    packages = {package["name"]: package for package in code["packages"]}
    assert {"python", "torch", "triton"} <= packages.keys()
    assert packages["triton"]["digest"]
    (kernel,) = code["kernels"]
    assert "twice" in kernel["name"]
    assert {"num_warps": "8", "TILE": "4096"}.items() <= dict(kernel["options"]).items()
    assert json.loads(kernel["metadata"])
    with Store.open(measured.folder / "perfsvc.db") as store:
        (cubin,) = store.binaries.modules([kernel["cubin"]]).values()
    assert any("twice" in name for name in kernel_registers(cubin))


def test_another_source_is_the_kernel(workplace):
    workplace.change("twice/bench.py", "range(1 * steps)", "range(5 * steps)")
    cause, reason, ratio = workplace.confirmed()
    assert cause == "kernel", reason
    assert ratio > 1.3


def test_another_number_of_warps_is_the_launch(workplace):
    workplace.change("twice/bench.py", "num_warps=8", "num_warps=1")
    cause, reason, ratio = workplace.confirmed()
    assert cause == "launch", reason
    assert "num_warps 8 → 1" in reason
    assert ratio > 1.3


def test_another_triton_is_the_toolchain(workplace):
    """Only one Triton is here, so the older one is made up in the record; an environment variable slows the newer."""
    ((record,),) = workplace.rows("select record from python_codes")
    code = json.loads(record)
    (triton,) = (package for package in code["packages"] if package["name"] == "triton")
    newer, triton["version"] = triton["version"], "3.0.0"
    older = json.dumps(code)
    signatures = Keys().sign(Signed.PYTHON, older)
    workplace.rows("update python_codes set record = ?, digest = 'older', signatures = ?", older, signatures)
    cause, reason, ratio = workplace.confirmed(STEPS="800")
    assert cause == "toolchain", reason
    assert f"triton 3.0.0 → {newer}" in reason
    assert ratio > 1.3


def test_the_same_kernel_is_the_same_code_wherever_it_lies_in_its_file(workplace):
    workplace.change("twice/bench.py", "def inputs", "# A comment moves the lines of the kernel.\n\n\ndef inputs")
    workplace.measure()
    printed = workplace.measure("--confirm", STEPS="800")  # as if the GPU were slower
    ((cause, reason),) = workplace.rows(
        "select cause, verdict_reason from levels where run_id = 3 and noise_within is not null"
    )
    assert cause in {"noise", "environment"}, printed
    assert "the code is the same on both sides" in reason
