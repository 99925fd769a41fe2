"""The source lines of real launches: the reports were made on an H100, and the twins are compiled here."""

import functools
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from perfsvc.build.cache import Cache
from perfsvc.build.lines import LineTable, TwinNvcc, lines_of_all
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.model import DeviceInfo, Instruction, Profile, SourceLine, codec
from perfsvc.profile.explain import explain
from perfsvc.profile.reports import read
from perfsvc.service.prepare.targets import Target, compile_units, replay_record
from perfsvc.service.profile.case_profiler import explain_results, with_source_lines
from perfsvc.service.progress import Progress
from perfsvc.service.run import record
from perfsvc.suite import Selection, discover

CAUSES = Path(__file__).parents[3] / "gpu" / "suites" / "causes"
MADE_WITH = "nvcc 13.0."
"""The compiler of the stored reports: another compiler may place the instructions elsewhere."""

SLOW_LINES = {
    ("transpose", "padded", "naive"): "b[x * n + y] = a[y * n + x];",
    ("transpose", "padded", "unpadded"): "b[(left + row) * n + top + threadIdx.x] = tile[threadIdx.x][row];",
    ("stream", "coalesced", "strided"): "b[i] = 3.0f * a[i];",
    ("arithmetic", "in_registers", "spilled"): "sum[k] = 0.99f * sum[k] + 0.01f;",
    ("arithmetic", "by_itself", "in_step"): "__syncthreads();",
    ("reuse", "in_order", "scattered"): "sum += a[at < n ? at : at - n];",
    ("product", "tensor", "fma"): "sum += a[threadIdx.y][i] * b[threadIdx.x][i];",
}
"""For each pair of variants of a benchmark, the line of the slower variant that carries the first reason."""


@functools.cache
def specs():
    return discover(CAUSES).resolve(Selection(), "full")[0]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return a function that returns the unit and the line table of each variant of a benchmark."""
    if find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install 'perfsvc[nvcc]') and g++")
    toolchain = TwinNvcc("sm_90")
    if not toolchain.version.startswith(MADE_WITH):
        pytest.skip(f"the reports are of code by {MADE_WITH}x")
    cache = Cache(tmp_path_factory.mktemp("cache"))

    def compiled(benchmark, *variants):
        every = {spec.case.variant: spec.units[0] for spec in specs() if spec.case.benchmark == benchmark}
        units = {variant: every[variant] for variant in variants}
        found = lines_of_all(set(units.values()), toolchain, cache)
        return {variant: (unit, found[unit]) for variant, unit in units.items()}

    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("pair", SLOW_LINES, ids="-".join)
def test_the_line_that_carries_the_first_reason_is_the_slow_one(tables, ncu_report, elsewhere, pair):
    benchmark, *variants = pair
    compiled, profiles = tables(*pair), []
    for variant in variants:
        profile = elsewhere(read, ncu_report(f"pairs/{benchmark}-{variant}"))
        encoded = {"digest": codec.encode(compiled[variant][1])}
        profiles.append(with_source_lines(profile, profile.kernel, encoded))
    line = explain(*profiles).reasons[0].after[0]
    source = compiled[variants[1]][0].source
    assert line.source.file == source.name
    assert source.read_text().splitlines()[line.source.line - 1].strip() == SLOW_LINES[pair]
    assert line.share >= 0.75


@pytest.mark.slow
def test_a_run_stores_the_lines_of_its_binaries_if_it_profiles(tables, tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path))
    spec = next(spec for spec in specs() if spec.case.variant == "naive")
    device = DeviceInfo("cuda", "cuda:0", "GPU-1", "H100", "sm_90")
    targets = [Target(device, (spec,), NvccToolchain("sm_90"))]
    for with_lines in (True, False):
        binaries = compile_units(targets, Mock(spec=Progress), with_lines=with_lines)
        modules = [binaries["sm_90", unit] for unit in spec.units]
        task = SimpleNamespace(record=replay_record(spec, modules))
        code = record._code(spec, modules, task)
        assert list(code.lines) == ([module.digest for module in modules] if with_lines else [])
        for encoded in code.lines.values():
            lines = {line for _, line in codec.decode(LineTable, encoded).kernels["naive"] if line}
            assert {line.file for line in lines} <= code.sources.keys()


@pytest.mark.slow
def test_an_explanation_has_the_text_of_the_slow_line_and_marks_it_as_changed(tables, ncu_report, elsewhere):
    results, files = [], {}
    compiled = tables("transpose", "padded", "naive")
    for number, variant in enumerate(("padded", "naive"), start=1):
        unit, lines = compiled[variant]
        profile = elsewhere(read, ncu_report(f"pairs/transpose-{variant}"))
        located = with_source_lines(profile, profile.kernel, {"digest": codec.encode(lines)})
        results.append(SimpleNamespace(binary=number, profile=located))
        files[number] = {unit.source.name: unit.source.read_bytes()}
    files[1] = {name: text.replace(b"b[x * n + y]", b"b[y * n + x]") for name, text in files[1].items()}
    store = SimpleNamespace(binaries=SimpleNamespace(files=lambda binary, role: files[binary]))
    explained = explain_results(store, *results)
    line = explained.reasons[0].after[0]
    assert (line.text, line.changed) == ("b[x * n + y] = a[y * n + x];", True)
    where = f"transpose.cu:{line.source.line}"
    assert f", at {where}" in explained.sentence
    change = "`b[y * n + x] = a[y * n + x];` → `b[x * n + y] = a[y * n + x];`"
    assert explained.sentence.endswith(f" Changed: {where} {change}.")


def test_a_change_of_the_benchmark_file_is_named_if_the_sources_are_equal():
    changes = {
        b"int a;\n": " Changed: bench.py:1 `options=[]` → `options=['-G']`.",
        b"int b;\n": " Changed: k.cu:1 `int a;` → `int b;`.",
    }
    files = {
        (1, "source"): {"k.cu": b"int a;\n"},
        (1, "bench"): {"aa": b"options=[]\n"},
        (2, "bench"): {"bb": b"options=['-G']\n"},
    }
    store = SimpleNamespace(binaries=SimpleNamespace(files=lambda binary, role: files[binary, role]))
    results = [SimpleNamespace(binary=n, profile=Profile("k", {"duration_s": 1e-4 * n})) for n in (1, 2)]
    for source, change in changes.items():
        files[2, "source"] = {"k.cu": source}
        assert explain_results(store, *results).sentence.endswith(change)


def table(kernel, line):
    return codec.encode(LineTable("digest", {kernel: ((0, SourceLine("k.cu", line)), (32, None))}))


INSTRUCTION = Instruction(16, "LDG R1")


def located(tables, instruction=INSTRUCTION):
    return with_source_lines(Profile("k", instructions=(instruction,)), "k", tables).instructions[0].source


def test_an_instruction_gets_the_line_of_the_only_module_that_has_the_kernel():
    assert located({"a": table("other", 3), "b": table("k", 7)}) == SourceLine("k.cu", 7)
    assert located({}) is None
    assert located({"a": table("other", 3)}) is None
    assert located({"a": table("k", 3), "b": table("k", 7)}) is None
    assert located({"a": b"damaged"}) is None


def test_an_instruction_without_a_line_keeps_what_the_report_has():
    own = Instruction(48, "LDG R1", source=SourceLine("tile.cuh", 9))
    assert located({"a": table("k", 7)}, own) == SourceLine("tile.cuh", 9)
