import shutil
import subprocess

import pytest

from perfsvc import elf

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
