"""Libraries for the CPU device: compiled by the host's compiler, and refused if only a GPU can run them."""

import pytest

from perfsvc import elf
from perfsvc.build import sources
from perfsvc.build.cpu.host import HostToolchain, find_compiler
from perfsvc.errors import CompileError, UnsupportedError
from perfsvc.model import Unit

PLAIN = """#include <perfsvc.h>
#include <vector>
PERFSVC_LIBRARY(run, in) {
    std::vector<float> factors(in.integer("n"), FACTOR);
    return [=](cudaStream_t) { PERFSVC_CHECK(factors.empty()); };
}
PERFSVC_LIBRARY(other, in) { return [](cudaStream_t) {}; }
"""


@pytest.fixture(scope="module")
def toolchain():
    compiler = find_compiler()
    if "zig" in compiler.version:
        pytest.skip("zig first builds the C++ standard library, which takes minutes")
    return HostToolchain(compiler)


@pytest.fixture
def unit(tmp_path):
    def written(text, entries=("run",), folder="here", **fields):
        source = tmp_path / folder / "library.cu"
        source.parent.mkdir(exist_ok=True)
        source.write_text(text)
        return Unit(source, entries, **({"libraries": (), "defines": (("FACTOR", 2),)} | fields))

    return written


def key(toolchain, unit):
    return toolchain.preimage(unit), sources.state_of(unit, toolchain.dependencies(unit))


def test_a_library_exports_its_entries_and_nothing_depends_on_its_folder(toolchain, unit):
    here, there = (toolchain.compile(unit(PLAIN, folder=folder)) for folder in ("here", "there"))
    assert {"perfsvc_library_run", "perfsvc_library_other"} <= set(elf.exported_sizes(here))
    assert elf.code_digest(here) == elf.code_digest(there)
    assert key(toolchain, unit(PLAIN)) == key(toolchain, unit(PLAIN, folder="there"))


def test_parameters_and_perfsvc_h_decide_the_binary(toolchain, unit, monkeypatch, tmp_path):
    before = key(toolchain, unit(PLAIN))
    assert key(toolchain, unit(PLAIN, defines=(("FACTOR", 3),))) != before
    (tmp_path / "perfsvc.h").write_text("// another version")
    monkeypatch.setattr("perfsvc.build.libraries.HEADERS", tmp_path)
    assert key(toolchain, unit(PLAIN)) != before


def test_a_comment_changes_no_code_but_another_called_function_does(toolchain, unit):
    code = elf.code_digest(toolchain.compile(unit(PLAIN)))
    assert elf.code_digest(toolchain.compile(unit("// comment\n\n" + PLAIN))) == code
    calls = ('extern "C" int {0}(int);\n' + PLAIN.replace("PERFSVC_CHECK(factors.empty())", "{0}(1)")).replace
    first, second = (elf.code_digest(toolchain.compile(unit(calls("{0}", name)))) for name in ("abcd_one", "abcd_two"))
    assert first != second


def test_a_missing_entry_is_named(toolchain, unit):
    with pytest.raises(CompileError, match=r"library\.cu has no library function gone; it has other, run"):
        toolchain.compile(unit(PLAIN, entries=("gone",)))


def test_an_error_in_the_source_is_shown(toolchain, unit):
    with pytest.raises(CompileError, match=r"library\.cu does not compile") as error:
        toolchain.compile(unit(PLAIN + "int f() { return nothing; }\n"))
    assert "nothing" in error.value.what


def test_what_only_a_gpu_can_run_is_unsupported(toolchain, unit):
    refused = {
        "__global__ void f() {}": "the kernels in the library library.cu",
        "#include <cub/cub.cuh>": "#include <cub/cub.cuh>",
        "#include <cudnn.h>": "#include <cudnn.h>",
        "void f(cudaStream_t s) { cudaMemsetAsync(0, 0, 0, s); }": "cudaMemsetAsync",
    }
    for line, what in refused.items():
        with pytest.raises(UnsupportedError) as error:
            toolchain.compile(unit(PLAIN + line))
        assert error.value.what == f"unsupported on cpu: {what}"


def test_a_library_that_links_a_file_of_the_users_is_unsupported(toolchain, unit):
    with_file = unit(PLAIN, options=("-L.", "-lmine"))
    (with_file.source.parent / "libmine.a").write_bytes(b"")
    with pytest.raises(UnsupportedError, match=r"unsupported on cpu: the library library\.cu links mine"):
        toolchain.compile(with_file)
