"""Where the sources of two binaries differ."""

import time

from hypothesis import given
from hypothesis import strategies as st

from perfsvc.profile.source_changes import differing_blocks, source_changes

OLD = b"#define N 32\n\n__shared__ float tile[N][N + 1];\nint i = 0;\nb[i] = tile[i][0];\n"


def changes(old, new, file="k.cu"):
    return [
        (change.before_line, change.before, change.after_line, change.after)
        for change in source_changes({file: old}, {file: new})
    ]


def test_a_change_has_the_lines_of_both_sides():
    new = OLD.replace(b"N + 1", b"N").replace(b"#define", b"// as many threads as a warp\n#define")
    assert changes(OLD, new) == [(3, ("__shared__ float tile[N][N + 1];",), 4, ("__shared__ float tile[N][N];",))]


def test_added_and_removed_lines_have_nothing_on_the_other_side():
    new = OLD.replace(b"int i = 0;\n", b"int i = 0;\n__syncthreads();\n")
    assert changes(OLD, new) == [(5, (), 5, ("__syncthreads();",))]
    assert changes(new, OLD) == [(5, ("__syncthreads();",), 5, ())]


def test_comments_empty_lines_and_spaces_are_no_change():
    for file, comment in [("k.cu", b"// a[i] = 3;"), ("bench.py", b"# fast"), ("k.cu", b"\n\n"), ("k.cu", b"   \t\r")]:
        assert changes(OLD, OLD.replace(b"int i", comment + b"\nint  i"), file) == [], (file, comment)
    assert changes(OLD, OLD.replace(b"N 32", b"N 16")) == [(1, ("#define N 32",), 1, ("#define N 16",))]
    assert source_changes({"a.cu": OLD}, {"b.cu": b""}) == []  # a file that only a side has


def test_a_comment_next_to_a_change_is_left_out_of_it():
    old, new = (OLD.replace(b"int i = 0;", b"// slot %d\nint i = %d;" % (i, i)) for i in range(2))
    assert changes(old, new) == [(4, ("", "int i = 0;"), 4, ("", "int i = 1;"))]


def test_changes_with_only_a_brace_between_them_are_one():
    old, new = (b"for (;;) {\na[%d] = 1;\n}\n\nb[%d] = 1;\nreturn;\n" % (i, i) for i in range(2))
    ((_, before, _, after),) = changes(old, new)
    assert before == ("a[0] = 1;", "}", "", "b[0] = 1;")
    assert after == ("a[1] = 1;", "}", "", "b[1] = 1;")


def test_a_huge_source_of_equal_lines_is_compared_quickly():
    started = time.monotonic()
    ((_, before, _, after),) = changes(b"x\n" + 50_000 * b"a;\nb;\n", b"y\n" + 50_000 * b"b;\na;\n")
    assert time.monotonic() - started < 10
    assert (len(before), len(after)) == (100_001, 100_001)


TEXTS = st.lists(st.sampled_from(["", "}", "a = 1;", "b = 2;", "// why"]), max_size=12)


@given(TEXTS, TEXTS)
def test_the_lines_between_the_blocks_are_equal_and_nothing_else_is_missing(old, new):
    at_old = at_new = 0
    for block in [*differing_blocks(old, new), (len(old), len(old), len(new), len(new))]:
        assert old[at_old : block[0]] == new[at_new : block[2]]
        at_old, at_new = block[1], block[3]
    assert (at_old, at_new) == (len(old), len(new))
