import pytest

from perfsvc.build import sources
from perfsvc.errors import CompileError
from perfsvc.model import Unit


def unit(*words, defines=()):
    return Unit("k.cu", (), defines, words)


def test_all_of_nvccs_spellings_of_a_macro_are_equal():
    for words in (
        ("-DA=1", "-DB", "-UC"),
        ("-D", "A=1", "-D", "B", "-U", "C"),
        ("-D=A=1", "-D=B", "-U=C"),
        ("--define-macro", "A=1", "--define-macro=B", "--undefine-macro", "C"),
        ("-DA=1,B", "--undefine-macro=C"),
    ):
        assert sources.read_options(words).directives == ("#define A 1", "#define B 1", "#undef C")


def test_all_of_nvccs_spellings_of_a_folder_are_equal():
    for words in (
        ("-Ia", "-Ib", "-isystem", "c", "-include", "d.h"),
        ("-I", "a,b", "-isystem=c", "-include=d.h"),
        ("--include-path=a", "-I=b", "--system-include", "c", "--pre-include", "d.h"),
    ):
        read = sources.read_options(words)
        assert (read.folders, read.system_folders, read.includes) == (("a", "b"), ("c",), ("d.h",))
        assert read.others == ()


def test_the_value_of_a_forwarding_option_is_not_an_option():
    words = ("-Xcompiler", "-DNOT=1", "--ptxas-options", "-v", "--use_fast_math", "-O3")
    read = sources.read_options(words)
    assert read.directives == ()
    assert read.others == words


def test_a_comma_in_a_value_is_written_with_a_backslash_as_nvcc_wants_it():
    assert sources.read_options(["-DDIMS=1\\,2"]).directives == ("#define DIMS 1,2",)
    assert sources.definitions(unit(defines=(("DIMS", "1,2"), ("N", 3)))) == ("-DDIMS=1\\,2", "-DN=3")


def test_parameters_come_after_options_and_macros_may_be_empty_or_functions():
    lines = sources.directives(unit("-DEMPTY=", "-DTWICE(x)=x+x", "-DN=1", defines=(("N", 2),)))
    assert lines == ("#define EMPTY ", "#define TWICE(x) x+x", "#define N 1", "#define N 2")


def test_the_last_standard_counts():
    assert sources.read_options(["-std=c++17", "--std", "c++20"]).standard == "c++20"
    assert sources.read_options([]).standard == ""


def test_options_in_a_file_are_refused():
    for words in (("-optf", "file"), ("--options-file=file",)):
        with pytest.raises(CompileError, match="file"):
            sources.read_options(words)
