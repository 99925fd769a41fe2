import shutil
import subprocess

import pytest

from perfsvc import elf
from perfsvc.build.nvcc import find_nvcc

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="makes an ELF file with gcc")


@pytest.fixture
def library(tmp_path):
    (tmp_path / "a.c").write_text("int three[3]; int one(void) { return 1; } static int hidden; extern int gone;")
    subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", "a.c", "-o", "a.so"], cwd=tmp_path, check=True)
    return (tmp_path / "a.so").read_bytes()


@needs_gcc
def test_a_shared_object_exports_its_symbols_with_their_sizes(library):
    sizes = elf.exported_sizes(library)
    assert sizes["three"] == 12
    assert "one" in sizes
    assert not {"hidden", "gone"} & set(sizes)


@needs_gcc
def test_sections_have_names(library):
    assert {".text", ".dynsym"} <= set(elf.section_names(library))


@needs_gcc
@pytest.mark.parametrize("read", [elf.section_names, elf.exported_sizes])
def test_a_file_that_was_cut_short_is_refused(library, read):
    with pytest.raises(ValueError, match="whole"):
        read(library[: len(library) // 2])


@pytest.mark.parametrize("read", [elf.section_names, elf.exported_sizes])
@pytest.mark.parametrize("code", [b"", b"MZ", b"\x7fELF\x01\x01"])
def test_what_is_no_elf_file_is_refused(read, code):
    with pytest.raises(ValueError, match="64-bit"):
        read(code)


@pytest.fixture(scope="module")
def cubin(tmp_path_factory):
    """Kernels of three kinds, compiled for a GPU that has tensor maps."""
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("makes a cubin with nvcc")
    folder = tmp_path_factory.mktemp("cubin")
    (folder / "k.cu").write_text(
        "struct __align__(128) Map { char bytes[128]; };\n"
        'extern "C" __global__ void none() {}\n'
        'extern "C" __global__ void plain(char a, short b, double c, float3 d, const float *e) {}\n'
        'extern "C" __global__ void maps(int a, const __grid_constant__ Map b, double *c) { *c = a + b.bytes[3]; }\n'
    )
    subprocess.run([nvcc, "-arch=sm_90", "-cubin", "k.cu", "-o", "k.cubin"], cwd=folder, check=True)
    return (folder / "k.cubin").read_bytes()


def test_a_cubin_tells_where_a_kernel_finds_its_parameters(cubin):
    assert elf.kernel_parameters(cubin, "none") == ()
    assert elf.kernel_parameters(cubin, "plain") == ((0, 1), (2, 2), (8, 8), (16, 12), (32, 8))
    (a, a_size), (b, b_size), (c, c_size) = elf.kernel_parameters(cubin, "maps")
    assert (a_size, b_size, c_size) == (4, 128, 8)
    assert (0x210 + b) % 128 == 0  # where the parameters of sm_90 begin in its constant bank
    assert a + 4 <= b
    assert c == b + 128
    assert elf.kernel_parameters(cubin, "missing") is None
