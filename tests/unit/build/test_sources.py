"""Which files decide a binary, and how they are named. The compilers themselves list them."""

import json
import shutil
from dataclasses import replace

import pytest

from perfsvc.build import Cache, compile_all, sources
from perfsvc.build.cpu.host import HostToolchain
from perfsvc.build.nvcc import NvccToolchain, find_nvcc
from perfsvc.build.toolchain import Binary, FakeToolchain
from perfsvc.errors import CompileError
from perfsvc.model import Unit

KERNEL = 'extern "C" __global__ void k(float *y) { y[0] = FACTOR; }\n'
TOOLCHAINS = {"cpu": HostToolchain, "nvcc": lambda: NvccToolchain("sm_90")}
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


def write(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.h").write_text(text)
    return folder


def preimage(unit, **changes):
    made_for = {"target": "sm_90", "version": "nvcc 13.0.88"} | changes
    return sources.preimage(unit, **made_for)


@pytest.fixture
def unit(tmp_path):
    source = write(tmp_path / "kernel") / "k.cu"
    source.write_text("")
    return Unit(source, ("f",), (("TILE", 32),), ("-O3",))


@pytest.fixture(params=["cpu", pytest.param("nvcc", marks=[needs_nvcc, pytest.mark.slow])])
def toolchain(request):
    return TOOLCHAINS[request.param]()


FORMS = {
    "plain": ('#include "k.h"', "kernel", ()),
    "a macro": ('#define H "k.h"\n#include H', "kernel", ()),
    "a comment": ('#include /* why */ "k.h"', "kernel", ()),
    "a continued line": ('#include \\\n"k.h"', "kernel", ()),
    "import": ('#import "k.h"', "kernel", ()),
    "the next folder": ("#include_next <k.h>", "inc", ("-I", "../inc")),
    "an option": ("", "inc", ("-I", "../inc", "-include", "k.h")),
    "an option of the host compiler": ("#include <k.h>", "inc", ("-Xcompiler", "-I../inc")),
    "a variable": ("#include <k.h>", "inc", ()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_header_is_noticed_however_it_is_included(toolchain, tmp_path, monkeypatch, form):
    include, place, options = FORMS[form]
    if "-Xcompiler" in options and isinstance(toolchain, HostToolchain):
        pytest.skip("the CPU device ignores options of the host compiler")
    header = write(tmp_path / place) / "k.h"
    source = write(tmp_path / "kernel") / "k.cu"
    source.write_text(f"{include}\n{KERNEL}")
    if form == "a variable":
        monkeypatch.setenv("CPATH", str(tmp_path / "inc"))
    unit, cache = Unit(source, ("k",), options=options), Cache(tmp_path / "cache")

    def built(text):
        header.write_text(text)
        return compile_all([unit], toolchain, cache)[unit]

    one, again, two = built("#define FACTOR 1"), built("#define FACTOR 1"), built("#define FACTOR 2")
    assert [binary.cached for binary in (one, again, two)] == [False, True, False]
    assert one.code != two.code
    assert isinstance(built("#error it is broken"), CompileError)
    assert built("#define FACTOR 1").cached


def test_a_new_header_in_an_earlier_folder_is_noticed(toolchain, tmp_path):
    write(tmp_path / "late" / "deep", k="#define FACTOR 1")
    write(tmp_path / "early" / "deep")
    source = write(tmp_path / "kernel") / "k.cu"
    source.write_text(f"#include <deep/k.h>\n{KERNEL}")
    unit = Unit(source, ("k",), options=("-I", "../early", "-I", "../late"))
    before = compile_all([unit], toolchain, Cache(tmp_path / "cache"))[unit]
    write(tmp_path / "early" / "deep", k="#define FACTOR 2")
    after = compile_all([unit], toolchain, Cache(tmp_path / "cache"))[unit]
    assert before.code != after.code


def test_a_new_file_that_a_source_asks_for_is_noticed(toolchain, tmp_path):
    source = write(tmp_path / "kernel") / "k.cu"
    asks = '#if __has_include("k.h")\n#include "k.h"\n#else\n#define FACTOR 1\n#endif\n'
    source.write_text(asks + KERNEL)
    unit, cache = Unit(source, ("k",)), Cache(tmp_path / "cache")
    before = compile_all([unit], toolchain, cache)[unit]
    assert compile_all([unit], toolchain, cache)[unit].cached
    write(tmp_path / "kernel", k="#define FACTOR 2")
    assert compile_all([unit], toolchain, cache)[unit].code != before.code


def test_a_link_to_another_header_is_noticed(toolchain, tmp_path):
    folder = write(tmp_path / "kernel", a="#define FACTOR 1", b="#define FACTOR 2")
    (folder / "link.h").symlink_to("a.h")
    (folder / "k.cu").write_text(f'#include "link.h"\n{KERNEL}')
    unit = Unit(folder / "k.cu", ("k",))
    before = compile_all([unit], toolchain, Cache(tmp_path / "cache"))[unit]
    (folder / "link.h").unlink()
    (folder / "link.h").symlink_to("b.h")
    assert compile_all([unit], toolchain, Cache(tmp_path / "cache"))[unit].code != before.code


def test_two_checkouts_of_a_repository_share_binaries(toolchain, tmp_path):
    built = []
    for place in ("here", "far/away"):
        (tmp_path / place / ".git").mkdir(parents=True)
        inc = write(tmp_path / place / "inc", k="#define FACTOR 1")
        source = write(tmp_path / place / "kernels" / "s") / "k.cu"
        source.write_text(f"#include <k.h>\n{KERNEL}")
        unit = Unit(source, ("k",), options=(f"-I{inc}",))
        built.append(compile_all([unit], toolchain, Cache(tmp_path / "cache"))[unit])
    assert [binary.cached for binary in built] == [False, True]
    assert list(built[1].sources) == ["k.cu", "../../inc/k.h"]


def test_headers_of_the_system_are_listed_by_folder(toolchain, tmp_path):
    source = write(tmp_path) / "k.cu"
    source.write_text(f"#define FACTOR 1\n{KERNEL}")
    unit = Unit(source, ("k",))
    binary = compile_all([unit], toolchain, Cache(tmp_path / "cache"))[unit]
    assert list(binary.sources) == ["k.cu"]
    assert all(name.startswith("headers in /") for name in binary.built_with)
    assert binary.built_with


def test_target_version_and_settings_decide_the_preimage(unit):
    for made_for in (("sm_80", "nvcc 12.9.1", []), ("sm_90", "nvcc 13.0.88", ["a", "é"])):
        target, version, settings = made_for
        content = json.loads(preimage(unit, target=target, version=version, settings=settings))
        assert (content["target"], content["version"], content["settings"]) == made_for


def test_parameters_options_and_entries_decide_the_preimage(unit):
    for change in (
        {"entries": ("g",)},
        {"defines": (("TILE", 16),)},
        {"defines": (("WIDTH", 32),)},
        {"defines": ()},
        {"options": ("-O3", "--use_fast_math")},
    ):
        assert preimage(replace(unit, **change)) != preimage(unit)


def test_options_in_a_file_are_refused(unit):
    for options in (("-optf", "o.txt"), ("-Xcompiler", "@o.txt"), ("-Xcompiler=-O2,@o.txt",)):
        with pytest.raises(CompileError, match=r"options are not read from a file \(o\.txt\)"):
            preimage(replace(unit, options=options))


def test_a_source_that_is_not_there_is_a_compile_error(tmp_path):
    unit = Unit(tmp_path / "gone.cu", ())
    built = compile_all([unit], FakeToolchain(), Cache(tmp_path / "cache"))[unit]
    assert isinstance(built, CompileError)
    assert "gone.cu cannot be read" in built.what


def test_files_with_equal_names_in_different_folders_have_different_names(toolchain, tmp_path):
    folder = write(tmp_path / "kernel", a="int here;")
    (folder / "k.cu").write_text('#include "a.h"\n#include "deep/a.h"\n#include <a.h>\n#define FACTOR 1\n' + KERNEL)
    write(folder / "deep", a='#include "../../shared/a.h"\nint deep;')
    write(tmp_path / "shared", a="int shared;")
    unit = Unit(folder / "k.cu", ("k",), options=("-I", str(write(tmp_path / "away", a="int away;"))))
    binary = compile_all([unit], toolchain, Cache(tmp_path / "cache"))[unit]
    assert isinstance(binary, Binary)
    assert set(binary.sources) == {"k.cu", "a.h", "deep/a.h", "<I0>/a.h", "../shared/a.h"}
    assert binary.sources["<I0>/a.h"] == b"int away;"
    assert sources.user_path(unit, "<I0>/a.h") == tmp_path / "away" / "a.h"
    shutil.rmtree(tmp_path / "away")


def test_names_with_spaces_are_read_from_a_compilers_rule(unit):
    rule = "k.o: k.cu \\\n  a\\ b.h \\\n /usr/include/x$$y.h z.h\n"
    assert sources.files_of_rule(unit, rule) == ("k.cu", "a b.h", "/usr/include/x$y.h", "z.h")
