"""``perfsvc check``: planted regressions are found and named, with the right exit code."""

import json
import shutil

import pytest

from perfsvc.build.disassembly import find_nvdisasm
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.installation import data_folder, install_command
from perfsvc.process import programs
from tests.e2e.history import git

pytestmark = [
    pytest.mark.skipif(
        find_nvcc() is None or shutil.which("g++") is None, reason="needs nvcc (pip install 'perfsvc[nvcc]') and g++"
    ),
    pytest.mark.timeout(300),
]

BENCH = """
from perfsvc.suite import Benchmark, Tolerance, Variant, output

def variant(name, **given):
    return Variant(name, source="scale.cu", entry="scale", grid=1, block=256, args=("y", "x"), **given)

benchmark = Benchmark(
    axes={"n": (512, 1024)},
    smoke={"n": 256},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 2.0 * x.astype("float64"),
    tolerance=Tolerance(1e-6, 1e-6),
    variants=[
        variant("plain"),
        variant("exact", requires="sm_90a"),
        variant("text", options="-ptx"),
        variant("shared", shared_bytes=SHARED),
    ],
)
"""
KERNEL = """// Twice x.
extern "C" __global__ void scale(float *y, const float *x) {
    y[threadIdx.x] = 2 * x[threadIdx.x];
}
"""
SPILLING = """// Twice x, and far too many values at once.
extern "C" __global__ void __launch_bounds__(1024) scale(float *y, const float *x) {
    float held[80];
#pragma unroll
    for (int i = 0; i < 80; ++i) held[i] = x[(threadIdx.x + i * 7) % 256];
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 80; ++i) sum += held[i] * held[(i * 3 + 1) % 80];
    y[threadIdx.x] = sum > 1e9f ? sum : 2 * x[threadIdx.x];
#pragma unroll
    for (int i = 0; i < 80; ++i) if (sum > 1e9f + i) y[i] = held[i];
}
"""


class Repository:
    """A suite in a git repository of its own."""

    def __init__(self, suite):
        self.suite = suite
        git(suite, "init", "-q", "-b", "main")
        self.commit()

    def commit(self):
        git(self.suite, "add", "-A")
        git(self.suite, "commit", "-q", "-m", "as it is")

    def plant(self, name, old, new):
        """Changes a file, and makes sure that it did."""
        path = self.suite / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def repository(perfsvc):
    where = perfsvc.folder / "own" / "scale"
    where.mkdir(parents=True)
    (where / "scale.cu").write_text(KERNEL)
    (where / "bench.py").write_text(BENCH.replace("SHARED", "16384"))
    return Repository(where.parent)


@pytest.fixture
def check(perfsvc, repository):
    """Check the small suite for one architecture."""
    return lambda *arguments, code=0: perfsvc(
        "check", "--suite", repository.suite, "--arch", "sm_90", *arguments, code=code
    )


# --- what the built-in suite is watched for --------------------------------------------------------------------------

MORE_VALUES = """float held[24];
#pragma unroll
        for (int i = 0; i < 24; ++i) held[i] = a[(y + i) * n + x];
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 24; ++i) sum = sum * held[i] + held[23 - i];
        b[x * n + y] = sum;"""
PLANTS = [
    ("matmul/registers.cu", "__launch_bounds__(threads)", "__launch_bounds__(threads, 4)"),
    ("transpose/naive.cu", "b[x * n + y] = a[y * n + x];", MORE_VALUES),
    ("transpose/tiled.cu", "float tile[TILE][TILE + PAD];", "float tile[9 * TILE][TILE + PAD];"),
]


def test_a_spill_a_register_jump_and_an_occupancy_drop_are_found_in_the_built_in_suite(perfsvc):
    repository = Repository(shutil.copytree(data_folder("kernels"), perfsvc.folder / "kernels"))
    for plant in PLANTS:
        repository.plant(*plant)
    chosen = ["--select", "matmul/registers", "--select", "transpose/naive", "--select", "transpose/tiled-*"]
    chosen += ["--select", "vector_add/guarded", "--arch", "sm_80", "--arch", "sm_90"]
    ended = perfsvc("check", "--suite", repository.suite, "--base", "HEAD", *chosen, "--format", "json", code=1)
    found = {
        (verdict["case"].partition("[")[0], verdict["architecture"]): {
            change["fact"] for change in verdict["changes"] if change["better"] is False
        }
        for verdict in ended.json["verdicts"]
        if verdict["verdict"] == "regression" and verdict["cause"] == "kernel"
    }
    for architecture in ("sm_80", "sm_90"):
        assert {"spill_bytes", "stack_bytes"} <= found.pop(("matmul/registers", architecture))
        assert "registers" in found.pop(("transpose/naive", architecture))
        for pad in (0, 1):
            assert found.pop((f"transpose/tiled-TILE32-PAD{pad}", architecture)) == {"occupancy"}
    assert found == {}
    assert not perfsvc.database.exists()
    if find_nvdisasm():
        files = {line["file"] for verdict in ended.json["verdicts"] for line in verdict["local_lines"]}
        assert files == {"kernels/matmul/registers.cu"}


# --- against a revision ----------------------------------------------------------------------------------------------


BROKEN = {
    "no block of the kernel can run: it exceeds the limit of shared memory": ("scale/bench.py", "16384", "300000"),
    "it has 256 threads, and __launch_bounds__ allow 128": (
        "scale/scale.cu",
        "__global__ void",
        "__global__ void __launch_bounds__(128)",
    ),
    "scale.cu does not compile": ("scale/scale.cu", "2 *", "nothing *"),
}


def test_a_launch_that_no_gpu_can_run_and_a_kernel_that_does_not_compile_are_broken(check, repository):
    for reason, (name, old, new) in BROKEN.items():
        repository.plant(name, old, new)
        found = check("--base", "HEAD", "--format", "json", code=4).json
        broken = [verdict["reason"] for verdict in found["verdicts"] if verdict["verdict"] == "broken"]
        assert len(broken) == (2 if name.endswith(".py") else 6)
        assert [why for why in broken if reason not in why] == []
        repository.plant(name, new, old)


def test_a_benchmark_that_the_revision_lacks_is_new_and_a_broken_one_a_problem(check, repository):
    shutil.copytree(repository.suite / "scale", repository.suite / "second")
    assert check("--base", "HEAD", "--select", "second", "--format", "json").json["counts"] == {"new": 6}
    (repository.suite / "second" / "bench.py").write_text("nonsense\n")
    assert len(check("--base", "HEAD", "--format", "json", code=4).json["problems"]) == 1


def test_a_case_missing_in_the_revision_hides_no_regression_of_another(check, repository):
    repository.plant("scale/bench.py", "16384", "65536")
    repository.plant("scale/bench.py", 'variant("plain")', 'variant("added"), variant("simple", formerly="plain")')
    chosen = ["--select", "scale/added", "--select", "scale/simple", "--select", "scale/shared"]
    found = check("--base", "HEAD", *chosen, "--exclude", "scale/exact", "--format", "json", code=1).json
    verdicts = {verdict["case"].partition("[")[0]: verdict["verdict"] for verdict in found["verdicts"]}
    assert verdicts == {"scale/added": "new", "scale/simple": "unchanged", "scale/shared": "regression"}
    assert len(git(repository.suite, "worktree", "list").splitlines()) == 1


UNUSABLE = {
    "bench.py:2: at HEAD this could not be used": ("scale/bench.py", "perfsvc.suite", "perfsvc.sweet"),
    "scale.cu: at HEAD this could not be used for sm_90": ("scale/scale.cu", "2 *", "nothing *"),
}


@pytest.mark.quick
def test_a_revision_that_cannot_be_compared_is_a_warning(check, repository):
    for warning_text, (name, old, new) in UNUSABLE.items():
        repository.plant(name, old, new)
        repository.commit()
        repository.plant(name, new, old)
        ended = check("--base", "HEAD", "--format", "json")
        assert ended.json["counts"] == {"new": 6}
        (warning,) = [line for line in ended.err.splitlines() if line.startswith("warning: ")]
        assert warning_text in warning
        assert "nothing is compared with it" in warning


def test_invalid_arguments_end_with_2(check):
    for message, arguments in {
        "is no revision": ["--base", "nowhere"],
        "does not build for sm_1": ["--arch", "sm_1"],
        "is compiled for sm_90a": ["--arch", "sm_90a"],
        "nothing": ["--select", "nothing"],
        "--accept": ["--base", "HEAD", "--accept", "so be it"],
        "'x.txt' has no suffix of a known format": ["--output", "x.txt"],
        "'x.html' has no suffix of a known format": ["--output", "x.html"],
        "the formats are json, markdown, junit, github, sarif, codequality": ["--output", "csv=x.csv"],
    }.items():
        assert message in " ".join(check(*arguments, code=2).err.split())


VARIANTS = """    variants=[
        Variant("both", steps=tuple(
            launch(entry="scale", source=name, grid=1, block=256, args=("y", "x")) for name in ("scale.cu", "again.cu")
        )),
    ],
)
"""
TWO = "from perfsvc.suite import launch\n" + BENCH.partition("    variants=[")[0] + VARIANTS


def test_kernels_with_one_name_in_two_files_are_distinguished(check, repository):
    (repository.suite / "scale" / "bench.py").write_text(TWO)
    (repository.suite / "scale" / "again.cu").write_text(KERNEL)
    repository.commit()
    assert check("--format", "json").json["counts"] == {"new": 4}
    (repository.suite / "scale" / "scale.cu").write_text(SPILLING)  # the first of them
    for base in (["--base", "HEAD"], []):
        found = check(*base, "--format", "json", code=1).json["verdicts"]
        verdicts = {verdict["kernel"]: verdict["verdict"] for verdict in found}
        assert verdicts == {"scale.cu:scale": "regression", "again.cu:scale": "unchanged"}
    assert "file=own/scale/scale.cu,line=2" in check("--base", "HEAD", "--format", "github", code=1).out


# --- against the baseline in the database ----------------------------------------------------------------------------


def test_a_regression_becomes_the_baseline_only_if_it_is_committed_and_accepted(check, repository, perfsvc):
    check()
    repository.plant("scale/bench.py", "16384", "65536")
    assert "uncommitted" in check("--accept", "please", code=2).err
    repository.commit()
    for _ in range(2):
        assert check("--format", "json", code=1).json["counts"] == {"regression": 2, "unchanged": 4}
    (repository.suite / "scale" / "scale.cu").write_text(SPILLING.replace(" scale(", " twice("))  # under another name
    repository.plant("scale/bench.py", 'entry="scale"', 'entry="twice"')
    repository.commit()
    for _ in range(2):
        assert check("--format", "json", code=1).json["counts"] == {"regression": 6}
    check("--accept", "it has to")
    assert check("--format", "json").json["counts"] == {"unchanged": 6}
    assert perfsvc.rows("SELECT max(accepted) FROM checks") == [("it has to",)]


def test_a_removed_variant_is_missing_once(check, repository):
    check()
    repository.plant("scale/bench.py", '        variant("plain"),\n', "")
    repository.commit()
    assert check("--format", "json").json["counts"] == {"missing": 2, "unchanged": 4}
    assert check("--format", "json").json["counts"] == {"unchanged": 4}


def test_a_case_that_an_architecture_cannot_run_is_skipped_with_the_reason(check):
    found = check("--arch", "sm_80", "--format", "json").json
    reasons = {(skipped["case"], skipped["architecture"]): skipped["reason"] for skipped in found["skipped"]}
    assert reasons["scale/exact[n=512]", "sm_80"] == "requires sm_90a: this device is sm_80"
    assert ("scale/exact[n=512]", "sm_90") not in reasons
    assert "PTX" in reasons["scale/text[n=512]", "sm_90"]


def test_another_compiler_is_the_cause_and_has_its_own_baseline(check, repository, perfsvc, monkeypatch):
    (repository.suite / "scale" / "scale.cu").write_text(SPILLING.replace("__launch_bounds__(1024) ", ""))
    repository.commit()
    check()
    made = NvccToolchain.__init__

    def of_another_version(self, *arguments):
        made(self, *arguments)
        self.version = "nvcc 99.9"

    monkeypatch.setattr(NvccToolchain, "__init__", of_another_version)
    perfsvc.environment["NVCC_APPEND_FLAGS"] = "-maxrregcount=32"
    found = check("--format", "json", code=1).json
    assert {(verdict["verdict"], verdict["cause"]) for verdict in found["verdicts"]} == {("regression", "toolchain")}
    assert check("--format", "json").json["counts"] == {"unchanged": 6}
    monkeypatch.undo()
    del perfsvc.environment["NVCC_APPEND_FLAGS"]
    assert check("--format", "json").json["counts"] == {"unchanged": 6}


def test_flags_of_the_compiler_in_the_environment_are_the_cause(check, repository, perfsvc):
    (repository.suite / "scale" / "scale.cu").write_text(SPILLING.replace("__launch_bounds__(1024) ", ""))
    repository.commit()
    check()
    perfsvc.environment["NVCC_APPEND_FLAGS"] = "-maxrregcount=24"
    found = check("--format", "json", code=1).json
    reasons = {verdict["reason"] for verdict in found["verdicts"] if verdict["verdict"] == "regression"}
    assert reasons == {"NVCC_APPEND_FLAGS changed: (none) → -maxrregcount=24"}
    perfsvc.environment["NVCC_APPEND_FLAGS"] = "-arch=sm_80"
    assert "NVCC_APPEND_FLAGS chooses the architecture (-arch=sm_80)" in check(code=2).err


def test_without_a_disassembler_that_works_only_instruction_counts_and_lines_are_missing(
    check, repository, monkeypatch, tmp_path
):
    program = tmp_path / "nvdisasm"
    program.touch(0o755)
    monkeypatch.setattr("perfsvc.service.check.kernels.find_nvdisasm", lambda: program)
    for script in ("exit 1", 'echo V12.4; [ "$1" = --version ] || [ "$1" = --help ]'):
        program.write_text(f"#!/bin/sh\n{script}\n")
        ended = check("--base", "HEAD", "--format", "json")
        assert {verdict["found"]["instructions"] for verdict in ended.json["verdicts"]} == {None}
        assert "are not counted" in ended.err
    monkeypatch.setattr("perfsvc.service.check.kernels.find_nvdisasm", lambda: None)
    (repository.suite / "scale" / "scale.cu").write_text(SPILLING)
    ended = check("--base", "HEAD", "--all", code=1)
    assert "instructions were not counted" in ended.err
    assert "spills 0 → " in ended.out
    assert "local memory" not in ended.out


@pytest.mark.quick
def test_without_a_compiler_there_is_nothing_to_check(check, monkeypatch):
    monkeypatch.setattr(programs, "_cuda_program_paths", lambda _: iter(()))
    ended = check(code=5)
    assert "nvcc was not found" in ended.err
    assert install_command("nvcc") in ended.err


# --- what is written -------------------------------------------------------------------------------------------------


HELD = """#pragma once
__device__ __forceinline__ float last(const float *x, int n) {
    float held[80];
    for (int i = 0; i < 80; ++i) held[i * n % 80] = x[i];
    return held[n % 80] + held[n * 7 % 80];
}
"""
needs_nvdisasm = pytest.mark.skipif(find_nvdisasm() is None, reason="needs nvdisasm (pip install 'perfsvc[nvcc]')")


def annotated(out):
    """Return (file, line) of each warning in GitHub's annotations."""
    return [
        tuple(part.partition("=")[2] for part in line.split(",")[:2])
        for line in out.splitlines()
        if line.startswith("::warning file=")
    ]


@needs_nvdisasm
def test_a_spill_names_the_lines_of_its_loads_and_stores(check, repository, perfsvc):
    (repository.suite / "scale" / "scale.cu").write_text(SPILLING)
    lines = annotated(check("--base", "HEAD", "--format", "github", code=1).out)
    assert set(lines) <= {("own/scale/scale.cu", str(line)) for line in (5, 9, 10, 12)}
    assert len(lines) == 3
    out = check("--base", "HEAD", "--output", "check.md", "--output", "check.json", code=1).out
    assert f"local memory: own/scale/scale.cu:{lines[0][1]} (" in out
    verdicts = json.loads((perfsvc.folder / "check.json").read_text())["verdicts"]
    assert lines == [(line["file"], str(line["line"])) for line in verdicts[0]["local_lines"][:3]]
    text = (perfsvc.folder / "check.md").read_text()
    assert text.startswith("### 6 regressions, 0 improvements, 0 unchanged\n")
    assert "| regression | `scale/plain` | sm_90 | spills 0 → " in text


@needs_nvdisasm
def test_a_larger_stack_names_the_line_in_the_header_that_is_included(check, repository):
    (repository.suite / "scale" / "held.cuh").write_text(HELD)
    repository.plant("scale/scale.cu", "2 * x[threadIdx.x]", "last(x, threadIdx.x) > 1e9f ? 0 : 2 * x[threadIdx.x]")
    repository.plant("scale/scale.cu", "// Twice x.", '#include "held.cuh"')
    lines = annotated(check("--base", "HEAD", "--format", "github", code=1).out)
    assert sorted(lines) == [("own/scale/held.cuh", "4"), ("own/scale/held.cuh", "5")]


# --- results on the CPU device ---------------------------------------------------------------------------------------


def test_results_are_checked_on_the_cpu_on_request_at_the_smoke_points(check, repository):
    ran = ["--exclude", "scale/exact", "--exclude", "scale/text", "--run", "--format", "json"]
    assert check("--base", "HEAD", *ran).json["wrong"] == []
    found = check("--base", "HEAD", *ran, "--select", "scale/plain", "--exclude", "*[n=256]", code=4).json
    assert found["counts"] == {"unchanged": 2}
    (problem,) = found["problems"]
    assert "nothing could be run on the CPU device: every selected case is excluded" in problem["what"]
    repository.plant("scale/scale.cu", "2 *", "3 *")
    found = check("--base", "HEAD", *ran, code=4).json
    assert {result["status"] for result in found["wrong"]} == {"wrong"}
    found = check("--select", "scale/plain[n=512]", "--run", "--format", "json", code=4).json
    assert [(result["case"], result["status"]) for result in found["wrong"]] == [("scale/plain[n=256]", "wrong")]
    assert found["counts"] == {"new": 1}
