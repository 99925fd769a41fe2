"""Libraries as nvcc compiles them: their kernels, what decides their binaries, and the libraries that they need."""

import shutil

import pytest

from perfsvc import elf
from perfsvc.build import libraries
from perfsvc.build.cache import Cache
from perfsvc.build.facts import VerboseNvcc, facts_of_all
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.errors import CompileError
from perfsvc.model import Unit

SOURCE = """#include <perfsvc.h>
namespace { __global__ void hidden(float* y) { y[threadIdx.x] = 2; } }
extern "C" __global__ void __launch_bounds__(64) plain(float* y) { y[threadIdx.x] = 1; }
PERFSVC_LIBRARY(run, in) {
    float* y = in.array<float>("y");
    return [=](cudaStream_t stream) {
        hidden<<<1, 64, 0, stream>>>(y);
        plain<<<1, 64, 0, stream>>>(y);
    };
}
"""


@pytest.fixture(scope="module")
def toolchain():
    if find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install 'perfsvc[nvcc]') and g++")
    return NvccToolchain("sm_90")


@pytest.fixture(scope="module")
def verbose(toolchain, tmp_path_factory):
    """Return the bytes that hold the binary of the library and the report of the assembler."""
    return VerboseNvcc("sm_90").compile(written(tmp_path_factory.mktemp("library") / "here"))


def written(folder, text=SOURCE, **fields):
    folder.mkdir(exist_ok=True)
    (folder / "library.cu").write_text(text)
    return Unit(folder / "library.cu", **({"entries": ("run",), "libraries": ()} | fields))


@pytest.fixture(scope="module")
def code(verbose):
    return verbose.partition(b"\0")[2]


def test_the_kernels_in_a_library_can_be_read(code):
    hidden, plain = sorted(elf.kernel_texts(code))
    assert (plain, hidden[-9:]) == ("plain", "hiddenEPf")
    assert elf.most_threads(code) == {"plain": 64}
    assert "libcudart.so.13" not in elf.needed_libraries(code)
    assert "libc.so.6" in elf.needed_libraries(code)


def test_device_and_host_agree_on_the_names_of_hidden_kernels(code):
    (name,) = (name for name in elf.kernel_texts(code) if "hidden" in name)
    # The host's part registers the kernel by this name, outside the cubin.
    with_cubin, without = code.count(name.encode() + b"\0"), b"".join(code.split(b"\x7fELF"))
    assert with_cubin >= 2
    assert name.encode() in without
    hashes = {part[:8] for part in code.split(b"_GLOBAL__N__")[1:]}
    assert len(hashes) == 1


@pytest.mark.slow
def test_the_bytes_depend_on_neither_the_folder_nor_the_time(code, tmp_path):
    assert VerboseNvcc("sm_90").compile(written(tmp_path / "there")).partition(b"\0")[2] == code


@pytest.mark.slow
def test_comments_change_no_code_and_a_kernel_does(toolchain, code, tmp_path):
    commented = toolchain.compile(written(tmp_path / "a", f"// comment\n{SOURCE}"))
    assert elf.code_digest(commented) == elf.code_digest(code)
    changed = toolchain.compile(written(tmp_path / "b", SOURCE.replace("= 2", "= 3")))
    assert elf.code_digest(changed) != elf.code_digest(code)


def test_the_facts_of_its_kernels_are_known(verbose, tmp_path, monkeypatch):
    unit = written(tmp_path / "here")
    monkeypatch.setattr(VerboseNvcc, "compile", lambda *_: verbose)
    facts = facts_of_all([unit], VerboseNvcc("sm_90"), Cache(tmp_path / "cache"), None)[unit]
    assert len(facts) == 2
    assert all(fact.registers > 0 and fact.spill_store_bytes == 0 for fact in facts.values())
    assert facts.most_threads == {"plain": 64}


@pytest.mark.slow
def test_a_library_without_kernels_has_none(toolchain, tmp_path):
    text = "#include <perfsvc.h>\nPERFSVC_LIBRARY(run, in) { return [](cudaStream_t) {}; }\n"
    assert elf.kernel_texts(toolchain.compile(written(tmp_path / "a", text))) == {}


@pytest.mark.slow
def test_a_missing_entry_is_named(toolchain, tmp_path):
    with pytest.raises(CompileError, match="has no library function other; it has run") as error:
        toolchain.compile(written(tmp_path / "a", entries=("other",)))
    assert "PERFSVC_LIBRARY(other, in)" in error.value.cure


def test_a_library_that_is_not_installed_is_named_with_its_package(toolchain, tmp_path, monkeypatch):
    monkeypatch.setattr("perfsvc.process.toolkits.find_library", lambda name: None)
    monkeypatch.setattr("perfsvc.process.toolkits.is_in_system", lambda name: False)
    unit = written(tmp_path / "a", libraries=("cublas",))
    with pytest.raises(CompileError, match=r"library\.cu uses the library cublas, which was not found") as error:
        toolchain.preimage(unit)
    assert "pip install nvidia-cublas, or set CUDA_HOME" in error.value.cure


def test_a_found_library_is_linked_and_its_version_decides_the_binary(toolchain, tmp_path, monkeypatch):
    toolkit = tmp_path / "toolkit"
    for name in ("lib", "include"):
        (toolkit / name).mkdir(parents=True)
    (toolkit / "lib" / "libtwice.so.13").write_bytes(b"1")
    monkeypatch.setattr("perfsvc.process.toolkits.find_library", lambda name: toolkit / "lib" / f"lib{name}.so.13")
    unit = written(tmp_path / "a", libraries=("twice",))
    options = libraries.nvcc_options(unit, "sm_90")
    assert options[-4:] == ["-isystem", str(toolkit / "include"), f"-L{toolkit / 'lib'}", "-l:libtwice.so.13"]
    before = toolchain.preimage(unit)
    assert str(tmp_path).encode() not in before
    (toolkit / "lib" / "libtwice.so.13").write_bytes(b"22")
    assert toolchain.preimage(unit) != before


def test_the_users_own_static_library_decides_the_binary(toolchain, tmp_path):
    for options in (("libmine.a",), ("-L.", "-lmine")):
        unit = written(tmp_path / "a", options=options)
        (tmp_path / "a" / "libmine.a").write_bytes(b"1")
        before = toolchain.preimage(unit)
        (tmp_path / "a" / "libmine.a").write_bytes(b"2")
        assert toolchain.preimage(unit) != before


def test_cutlass_is_a_folder_of_headers(tmp_path, monkeypatch):
    headers = tmp_path / "cutlass_library" / "source" / "include"
    headers.mkdir(parents=True)
    (tmp_path / "cutlass_library" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    options = libraries.nvcc_options(written(tmp_path / "a", libraries=("cutlass",)), "sm_90")
    assert options[-2:] == ["-isystem", str(headers)]
