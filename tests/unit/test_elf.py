import random
import shutil
import subprocess
from functools import cache

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
@pytest.mark.parametrize("read", [elf.kernel_texts, elf.exported_sizes, elf.code_digest])
def test_a_truncated_file_is_refused(library, read):
    with pytest.raises(ValueError, match="whole"):
        read(library[: len(library) // 2])


@pytest.mark.parametrize("read", [elf.kernel_texts, elf.exported_sizes])
def test_another_file_is_refused(read):
    for code in (b"", b"MZ", b"\x7fELF\x01\x01", b"fake"):
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
        "struct Large { char bytes[20000]; };\n"
        'extern "C" __global__ void none() {}\n'
        'extern "C" __global__ void large(const __grid_constant__ Large a, char *b) { *b = a.bytes[threadIdx.x]; }\n'
        'extern "C" __global__ void plain(char a, short b, double c, float3 d, const float *e) {}\n'
        'extern "C" __global__ void maps(int a, const __grid_constant__ Map b, double *c) { *c = a + b.bytes[3]; }\n'
    )
    subprocess.run([nvcc, "-arch=sm_90", "-cubin", "k.cu", "-o", "k.cubin"], cwd=folder, check=True)
    return (folder / "k.cubin").read_bytes()


def test_the_parameters_of_a_kernel_are_read_from_a_cubin(cubin):
    assert elf.kernel_parameters(cubin, "none") == ()
    assert elf.kernel_parameters(cubin, "plain") == ((0, 1), (2, 2), (8, 8), (16, 12), (32, 8))
    (a, a_size), (b, b_size), (c, c_size) = elf.kernel_parameters(cubin, "maps")
    assert (a_size, b_size, c_size) == (4, 128, 8)
    assert (0x210 + b) % 128 == 0  # where the parameters of sm_90 begin in its constant bank
    assert a + 4 <= b
    assert c == b + 128
    assert elf.kernel_parameters(cubin, "missing") is None
    assert elf.kernel_parameters(cubin, "large") is None  # there the file tells it in another way


KERNEL = (
    "__device__ float table[4] = {1, 2, 3, 4};\n"
    'extern "C" __global__ void first(float *a, int n) {\n'
    "    __shared__ float tile[64];\n"
    "    tile[threadIdx.x] = a[threadIdx.x];\n"
    "    __syncthreads();\n"
    "    a[threadIdx.x] = table[n & 3] * tile[63 - threadIdx.x];\n"
    "}\n"
    'extern "C" __global__ void second(double *c) { *c = 1; }\n'
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiles a kernel's text to a cubin, with options of the compiler."""
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("makes a cubin with nvcc")

    @cache
    def cubin(text, *options):
        folder = tmp_path_factory.mktemp("code")
        (folder / "k.cu").write_text(text)
        subprocess.run([nvcc, "-arch=sm_90", "-cubin", *options, "k.cu", "-o", "k.cubin"], cwd=folder, check=True)
        return (folder / "k.cubin").read_bytes()

    return cubin


@pytest.mark.slow
def test_equal_code_has_one_digest_with_or_without_debug_information(compiled):
    plain = compiled(KERNEL)
    lines, moved = compiled(KERNEL, "-lineinfo"), compiled("// moved\n\n" + KERNEL, "-lineinfo")
    assert len({plain, lines, moved}) == 3
    assert elf.code_digest(plain) == elf.code_digest(lines) == elf.code_digest(moved)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [("tile[63", "tile[62"), ("tile[64]", "tile[640]"), ("{1, 2, 3, 4}", "{1, 2, 3, 5}"), ("first(", "renamed(")],
    ids=["instructions", "shared memory", "data", "name"],
)
def test_other_code_has_another_digest(compiled, before, after):
    assert elf.code_digest(compiled(KERNEL)) != elf.code_digest(compiled(KERNEL.replace(before, after)))


def test_the_registers_of_kernels_are_read_from_a_cubin(cubin, compiled):
    registers = elf.kernel_registers(cubin)
    assert set(registers) == {"none", "large", "plain", "maps"}
    assert all(0 < count <= 255 for count in registers.values())
    assert elf.kernel_registers(compiled(KERNEL, "-maxrregcount=16"))["first"] <= 16
    assert elf.kernel_registers(b"// PTX") == elf.kernel_registers(b"") == {}


def test_the_instructions_of_kernels_are_read_from_a_cubin(compiled):
    texts = elf.kernel_texts(compiled(KERNEL))
    assert set(texts) == {"first", "second"}
    assert all(text and len(text) % 16 == 0 for text in texts.values())


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_program_is_its_code_its_constants_and_what_it_imports(tmp_path):
    def built(text, *options):
        (tmp_path / "a.cpp").write_text(text)
        subprocess.run(["g++", "-o", tmp_path / "a", tmp_path / "a.cpp", *options], check=True)
        return elf.program_digest((tmp_path / "a").read_bytes())

    text = '#include <cstdio>\nint main() { std::puts("one"); }'
    first = built(text, "-Wl,--build-id=0x1234")
    assert built(f"{text} // and a comment", "-g", "-Wl,--build-id=0x5678") == first
    assert built(text.replace("one", "two")) != first
    assert built('#include <cstdio>\nint main() { std::perror("one"); }') != first


def test_any_file_of_a_program_or_of_other_code_has_a_digest_of_its_bytes():
    for content in (b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 100):
        assert elf.program_digest(content) == elf.program_digest(bytes(content))
        assert elf.program_digest(content) != elf.program_digest(content + b"x")
    assert elf.code_digest(b".version 8.0") == elf.code_digest(b".version 8.0")
    assert elf.code_digest(b".version 8.0") != elf.code_digest(b".version 8.1")


@needs_gcc
def test_a_program_with_damaged_headers_has_a_digest(library):
    chance = random.Random(1)
    assert elf.kernel_registers(library) == {}
    for _ in range(2000):
        damaged = bytearray(library)
        for _ in range(chance.randrange(1, 20)):
            place = chance.choice((chance.randrange(64), chance.randrange(len(damaged))))
            damaged[place] = chance.randrange(256)
        assert len(elf.program_digest(bytes(damaged))) == 64
