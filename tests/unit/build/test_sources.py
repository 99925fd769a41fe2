import json
from dataclasses import replace

import pytest

from perfsvc.build import sources
from perfsvc.errors import CompileError
from perfsvc.model import Unit


def write(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.cuh").write_text(text)
    return folder


def preimage(unit, **changes):
    made_for = {"target": "sm_90", "version": "nvcc 13.0.88"} | changes
    return sources.preimage(unit, sources.local_files(unit), **made_for)


@pytest.fixture
def unit(tmp_path):
    write(tmp_path / "kernel", k='#include "a.cuh"\n#include <cuda_fp16.h>\n', a='#include "b.cuh"\n', b="int b;\n")
    return Unit(tmp_path / "kernel" / "k.cuh", ("f",), (("TILE", 32),), ("-O3",))


def test_includes_of_includes_are_part_of_the_preimage(unit):
    assert list(sources.local_files(unit)) == ["k.cuh", "a.cuh", "b.cuh"]
    before = preimage(unit)
    (unit.source.parent / "b.cuh").write_text("int b = 1;\n")
    assert preimage(unit) != before


def test_files_that_include_each_other_are_read_once(tmp_path):
    write(tmp_path, k='#include "a.cuh"', a='#include "k.cuh"\n#include "a.cuh"')
    assert list(sources.local_files(Unit(tmp_path / "k.cuh", ()))) == ["k.cuh", "a.cuh"]


def test_include_folders_are_searched_for_both_forms_of_include(tmp_path):
    write(tmp_path, k='#include "q.cuh"\n  #  include <a.cuh>\n')
    write(tmp_path / "inc", q="int q;", a="int a;")
    for options in (("-Iinc",), ("-I", "inc"), ("--include-path=inc",), ("-isystem", "inc")):
        unit = Unit(tmp_path / "k.cuh", (), options=options)
        assert list(sources.local_files(unit)) == ["k.cuh", "inc/q.cuh", "inc/a.cuh"]


def test_a_forced_include_is_part_of_the_preimage(tmp_path):
    write(tmp_path, k="int k;", f="int f;")
    unit = Unit(tmp_path / "k.cuh", (), options=("-include", "f.cuh"))
    assert list(sources.local_files(unit)) == ["k.cuh", "f.cuh"]


def test_equal_sources_in_two_folders_have_one_preimage_that_names_neither(tmp_path):
    units = []
    for place in ("here", "far/away"):
        folder = write(tmp_path / place, k='#include "a.cuh"\n#include <x.cuh>', a="int a;")
        inc = write(tmp_path / place / "inc", x="int x;")
        units.append(Unit(folder / "k.cuh", ("f",), options=(f"-I{inc}",)))
    here, away = map(preimage, units)
    assert here == away
    assert str(tmp_path) not in here.decode()


def test_target_version_and_settings_decide_the_preimage(tmp_path):
    unit = Unit(write(tmp_path, k="int k;") / "k.cuh", ())
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


def test_a_source_that_is_not_there_is_a_compile_error(tmp_path):
    with pytest.raises(CompileError, match=r"gone\.cu cannot be read"):
        preimage(Unit(tmp_path / "gone.cu", ()))


def test_files_with_equal_names_in_different_folders_have_different_names(tmp_path):
    folder = write(tmp_path / "kernel", k='#include "a.cuh"\n#include "deep/a.cuh"\n#include <a.cuh>', a="int here;")
    write(folder / "deep", a='#include "../../shared/a.cuh"\nint deep;')
    write(tmp_path / "shared", a="int shared;")
    away = write(tmp_path / "away", a="int away;")
    files = sources.local_files(Unit(folder / "k.cuh", (), options=("-I", str(away))))
    assert list(files) == ["k.cuh", "a.cuh", "deep/a.cuh", "<I0>/a.cuh", "../shared/a.cuh"]
    assert files["../shared/a.cuh"] == b"int shared;"
    assert files["<I0>/a.cuh"] == b"int away;"
