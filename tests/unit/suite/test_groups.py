"""Variants on several GPUs: where their arrays are, and which GPU runs which step."""

import pytest

from perfsvc.model import AllReduce, Barrier, Launch, Memset, Part, PeerCopy
from perfsvc.suite import Selection, discover

KERNEL = 'extern "C" __global__ void step(float *y, const float *x, int rows, int gpu) {}\n'
HEAD = """
from perfsvc.suite import *
from perfsvc.suite import all_reduce, launch, memset, peer, peer_copy

def step(*args, **fields):
    return launch(source="k.cu", entry="step", grid=1, block=32, args=args, **fields)

benchmark = Benchmark(
    axes={{"n": (8,)}},
    smoke={{"n": 8}},
    inputs=lambda rng, n: {{"x": rng.random(n, dtype="float32")}},
    outputs={{"y": output("float32", lambda n: n)}},
    reference=lambda x: x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[Variant("v", {fields})],
)
"""


@pytest.fixture
def read(tmp_path):
    """The suite with a variant of these fields."""

    def written(fields):
        folder = tmp_path / "pair"
        folder.mkdir()
        (folder / "k.cu").write_text(KERNEL, encoding="utf-8")
        (folder / "bench.py").write_text(HEAD.format(fields=fields), encoding="utf-8")
        return discover(tmp_path)

    return written


def resolved(suite, all_gpus=2):
    assert suite.problems == ()
    ((spec,), problems) = suite.resolve(Selection(), "full", None, all_gpus)
    assert problems == ()
    return spec


def test_every_gpu_has_a_copy_of_an_array_or_its_share_of_the_rows(read):
    spec = resolved(read('gpus=2, split="x", steps=[step("y", "x", "n", "gpu")]'))
    held = {buffer.array.name: (buffer.gpu, buffer.array.shape, buffer.part) for buffer in spec.buffers}
    assert held == {
        "x@0": (0, (4,), Part("x", 0, 4)),
        "x@1": (1, (4,), Part("x", 4, 8)),
        "y@0": (0, (8,), Part("y")),
        "y@1": (1, (8,), Part("y")),
    }
    assert (spec.gpus, spec.all_gpus) == (2, False)


def test_each_gpu_runs_a_step_with_its_own_arrays_and_its_own_position(read):
    spec = resolved(read('gpus=2, steps=[memset("y"), step("y", "x", i32(lambda gpus: gpus), "gpu")]'))
    assert spec.steps[:2] == (Memset("y@0"), Memset("y@1"))
    launches = [step for step in spec.steps if isinstance(step, Launch)]
    assert [launch.gpu for launch in launches] == [0, 1]
    assert [[getattr(arg, "buffer", getattr(arg, "value", None)) for arg in launch.args] for launch in launches] == [
        ["y@0", "x@0", 2, 0],
        ["y@1", "x@1", 2, 1],
    ]
    assert not any(isinstance(step, Barrier) for step in spec.steps)


def test_gpus_wait_for_each_other_around_a_step_that_uses_the_memory_of_another_gpu(read):
    spec = resolved(read('gpus=2, steps=[memset("y"), step("y", peer("x"), "n", "gpu"), memset("y", 1)]'))
    kinds = [type(step) for step in spec.steps]
    assert kinds == [Memset, Memset, Barrier, Launch, Launch, Barrier, Memset, Memset]
    assert [step.args[1].buffer for step in spec.steps if isinstance(step, Launch)] == ["x@1", "x@0"]


def test_an_array_on_one_gpu_is_used_by_a_launch_on_another_one(read):
    spec = resolved(read('gpus=2, on={"x": 0, "y": 1}, steps=[step("y", "x", "n", "gpu", gpu=1)]'))
    (launch,) = spec.steps
    assert (launch.gpu, launch.args[0].buffer, launch.args[1].buffer) == (1, "y@1", "x@0")


def test_a_copy_goes_from_the_only_gpu_of_one_array_to_that_of_the_other(read):
    assert resolved(read('gpus=2, on={"x": 0, "y": 1}, steps=[peer_copy("x", "y")]')).steps == (PeerCopy("x@0", "y@1"),)


def test_a_copy_of_arrays_on_every_gpu_goes_round_the_ring(read):
    spec = resolved(read('gpus=3, steps=[peer_copy("x", "y")]'))
    assert spec.steps == (PeerCopy("x@0", "y@1"), PeerCopy("x@1", "y@2"), PeerCopy("x@2", "y@0"))


def test_an_all_reduce_reads_and_writes_on_every_gpu_and_requires_nccl(read):
    spec = resolved(read('gpus="all", steps=[all_reduce("x", "y", "max")]'), all_gpus=4)
    names = [tuple(f"{name}@{gpu}" for gpu in range(4)) for name in "xy"]
    assert spec.steps == (AllReduce(*names, "max"),)
    assert (spec.gpus, spec.all_gpus, spec.requires) == (4, True, ("nccl",))
