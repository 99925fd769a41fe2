"""The facts of kernels: what the assembler prints, what the disassembler lists, and both together for a unit."""

import json
import shutil

import pytest

from perfsvc import elf
from perfsvc.build import Cache, disassembly, facts, nvcc
from perfsvc.build.disassembly import INSTRUCTION_BYTES, Disassembler, find_nvdisasm
from perfsvc.build.facts import VerboseNvcc, facts_of_all
from perfsvc.build.nvcc import is_ptx
from perfsvc.errors import CompileError, NoDisassemblerError
from perfsvc.model import Unit
from perfsvc.process import programs

PRINTED = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1hILi3EEvPf' for 'sm_90'
ptxas info    : Function properties for _Z1hILi3EEvPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 4224 bytes smem, 372 bytes cmem[0]
ptxas info    : Compile time = 6.502 ms
k.cu(3): warning #177-D: variable "x" was declared but never referenced
ptxas info    : Compiling entry function 'g' for 'sm_90'
ptxas info    : Function properties for g
    24 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 64 registers, 96 bytes cumulative stack size
"""
FUNCTION = """ptxas info    : Function properties for _Z4deepPfi
    8 bytes stack frame, 2 bytes spill stores, 4 bytes spill loads
"""


def test_the_assembler_reports_each_kernel_and_the_spills_of_a_function_count_for_all_that_may_call_it():
    assert facts.read_ptxas(PRINTED) == {
        "_Z1hILi3EEvPf": facts.PtxasReport(registers=10, shared_bytes=4224, barriers=1),
        "g": facts.PtxasReport(registers=64, stack_bytes=96, spill_store_bytes=40, spill_load_bytes=44),
    }
    reports = facts.read_ptxas(PRINTED + FUNCTION)
    assert [(report.spill_store_bytes, report.spill_load_bytes) for report in reports.values()] == [(2, 4), (42, 48)]
    assert facts.read_ptxas("") == facts.read_ptxas(FUNCTION) == {}


def test_instructions_are_counted_by_class():
    opcodes = {
        "LDG.E.128": 2,
        "STG.E": 1,
        "LDS.64": 3,
        "STL": 1,
        "IMAD.MOV.U32": 5,
        "IMAD.WIDE": 4,
        "UIADD3": 1,
        "HMMA.16816.F32.BF16": 6,
        "FFMA": 7,
        "NOP": 9,
        "FROBNICATE.X": 8,
    }
    assert disassembly.count_classes(opcodes) == (
        ("global", 3),
        ("shared", 3),
        ("local", 1),
        ("tensor", 6),
        ("float32", 7),
        ("integer", 5),
        ("move", 5),
        ("other", 8),
    )


def test_no_opcode_is_of_two_classes():
    every = [opcode for opcodes in disassembly.CLASSES.values() for opcode in opcodes.split()]
    assert len(every) == len(set(every))


# --- with a compiler -------------------------------------------------------------------------------------------------

TEXT = """
extern "C" __global__ void __launch_bounds__(BLOCK) crowded(float *x, int n) {
    __shared__ float tile[256];
    float held[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) held[i] = x[i * n + threadIdx.x];
    tile[threadIdx.x % 256] = held[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        float sum = tile[(threadIdx.x + i) % 256];
#pragma unroll
        for (int j = 0; j < 64; ++j) sum += held[j] * held[(i + j) % 64];
        x[i * n + threadIdx.x] = sum;
    }
}
extern "C" __global__ void idle(float *x) { x[threadIdx.x] = 1; }
"""


@pytest.fixture(scope="module")
def toolchain():
    if nvcc.find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install 'perfsvc[nvcc]') and g++")
    return VerboseNvcc("sm_90")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def disassembler(cache):
    found = find_nvdisasm()
    if found is None:
        pytest.skip("needs nvdisasm: pip install 'perfsvc[nvcc]'")
    return Disassembler(found, cache)


def unit(folder, *options, block=256, text=TEXT):
    (folder / "k.cu").write_text(text)
    return Unit(folder / "k.cu", ("crowded",), (("BLOCK", block),), options)


def test_a_unit_has_the_facts_of_each_of_its_kernels(toolchain, cache, disassembler, tmp_path, monkeypatch):
    wanted = unit(tmp_path)
    found = facts_of_all([wanted], toolchain, cache, disassembler)[wanted]
    crowded, idle = found["crowded"], found["idle"]
    assert (crowded.shared_bytes, crowded.barriers, crowded.spill_bytes) == (1024, 1, 0)
    assert crowded.registers > 64
    assert dict(crowded.instructions)["float32"] >= 64 * 63
    assert dict(idle.instructions)["global"] == 1
    assert (idle.shared_bytes, idle.barriers) == (0, 0)
    assert len(idle.sass) == 64
    assert idle.sass != crowded.sass
    assert found.most_threads == {"crowded": 256}  # by its launch bounds
    # Cached facts need neither compiler nor disassembler.
    monkeypatch.setattr(toolchain, "compile", None)
    monkeypatch.setattr(disassembler, "_disassemble", None)
    assert facts_of_all([wanted], toolchain, cache, disassembler)[wanted] == found


def test_a_cap_on_registers_shows_as_spills(toolchain, cache, tmp_path):
    capped = unit(tmp_path, block=1024)
    facts = facts_of_all([capped], toolchain, cache, None)[capped]["crowded"]
    assert facts.registers <= 64
    assert min(facts.spill_store_bytes, facts.spill_load_bytes, facts.stack_bytes) > 0
    assert facts.instructions is None


def test_instructions_disassembled_together_are_those_of_each_kernel(toolchain, cache, disassembler, tmp_path):
    code, _ = nvcc.NvccToolchain("sm_90").compile_verbosely(unit(tmp_path))
    texts = elf.kernel_texts(code)
    together = disassembler.opcodes("sm_90", texts)
    alone = Disassembler(disassembler._path, Cache(tmp_path / "other"))
    assert together == {name: alone.opcodes("sm_90", {name: text})[name] for name, text in texts.items()}
    assert {name: sum(counts.values()) * INSTRUCTION_BYTES for name, counts in together.items()} == {
        name: len(text) for name, text in texts.items()
    }


def test_a_unit_that_does_not_compile_does_not_stop_the_others(toolchain, cache, tmp_path):
    good, bad = (tmp_path / name for name in ("good", "bad"))
    good.mkdir()
    bad.mkdir()
    wrong, right = unit(bad, text="#error no\n"), unit(good)
    found = facts_of_all([wrong, right], toolchain, cache, None)
    assert isinstance(found[wrong], CompileError)
    assert set(found[right]) == {"crowded", "idle"}


def test_ptx_is_known_by_its_option(tmp_path):
    assert is_ptx(unit(tmp_path, "-ptx"))
    assert not is_ptx(unit(tmp_path, "-O2"))


# --- disassemblers that do not work ----------------------------------------------------------------------------------


def program(folder, script):
    path = folder / "nvdisasm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


PRINTS_VERSION = 'case "$1" in --version) echo "Cuda compilation tools, V13.5.37";; --help) ;; '


def test_a_broken_disassembler_is_an_error_with_a_cure(tmp_path):
    scripts = {
        "exit 0": "prints no version",
        "echo broken; exit 1": "failed: broken",
        PRINTS_VERSION + "*) echo nonsense;; esac": "no listing",
        PRINTS_VERSION + '*) echo "[{}, []]";; esac': "skipped instructions",
        PRINTS_VERSION + '*) echo "no such architecture"; exit 255;; esac': "no such architecture",
    }
    for script, message in scripts.items():
        with pytest.raises(NoDisassemblerError, match=message) as raised:
            Disassembler(program(tmp_path, script), Cache(tmp_path)).opcodes("sm_90", {"a": bytes(INSTRUCTION_BYTES)})
        assert raised.value.cure


def test_an_architecture_is_disassembled_by_its_exact_name_if_that_is_known(tmp_path):
    listing = json.dumps([{}, [{"sass-instructions": [{"opcode": "EXIT"}]}]])
    script = (
        "case \"$1\" in --version) echo V13.5;; --help) echo \"'SM90','SM90a','SM86'\";; "
        f"*) echo $4 >>{tmp_path}/names; echo '{listing}';; esac"
    )
    disassembler = disassembly.Disassembler(program(tmp_path, script), Cache(tmp_path))
    for name in ("sm_90", "sm_86"):
        assert disassembler.opcodes(name, {"a": bytes(INSTRUCTION_BYTES)}) == {"a": {"EXIT": 1}}
    assert (tmp_path / "names").read_text().split() == ["SM90a", "SM86"]


def test_a_missing_disassembler_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "_cuda_program_paths", lambda _: iter(()))
    assert find_nvdisasm() is None
