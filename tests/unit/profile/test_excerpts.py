"""The lines around those that carry a reason, on both sides."""

import time

from perfsvc.model import Instruction, Profile, SourceLine
from perfsvc.profile import excerpts
from perfsvc.profile.excerpts import aligned, hot_code

BEFORE = b"""\
// a copy
void k(float *b, float *a, int n) {
    int i = index();
    if (i >= n) {
        return;
    }
    b[i] = a[i];
}

void other() {
    first();
    second();
    third();
}
"""
AFTER = BEFORE.replace(b"b[i] = a[i];", b"b[i] = a[2 * i];\n    tail();").replace(b"second()", b"second(1)")


def count(instruction):
    return instruction.counts.get("sectors", 0.0)


def launch(*counted, file="k.cu", kernel="k"):
    """Return a launch with so much counted at each line."""
    return Profile(
        kernel,
        instructions=tuple(
            Instruction(16 * index, f"LDG R{index}", {"sectors": sectors}, SourceLine(file, line) if line else None)
            for index, (line, sectors) in enumerate(counted)
        ),
    )


def code(before, after, own=BEFORE, other=AFTER, name="k.cu"):
    return hot_code(before, after, "sectors", count, ({"k.cu": own}, {name: other}))


def texts(lines):
    return [line and (line.number, line.text, line.changed) for line in lines]


def test_the_hot_line_stands_beside_the_line_of_the_other_side_that_it_replaced():
    (excerpt,) = code(launch((7, 1.0)), launch((7, 3.0), (3, 1.0))).excerpts[-1:]
    assert excerpt.files == ("k.cu", "k.cu")
    assert texts(excerpt.before)[-4:] == [(6, "    }", False), (7, "    b[i] = a[i];", True), None, (8, "}", False)]
    assert texts(excerpt.after)[-4:] == [
        (6, "    }", False),
        (7, "    b[i] = a[2 * i];", True),
        (8, "    tail();", True),
        (9, "}", False),
    ]
    assert [line.share for line in excerpt.after if line and line.share] == [0.25, 0.75]
    (excerpt,) = code(launch(), launch((7, 3.0))).excerpts  # nothing was counted before: the same place is shown
    assert [line.number for line in excerpt.before if line] == [5, 6, 7, 8]
    assert not any(line.share for line in excerpt.before if line)


def test_a_change_elsewhere_is_shown_apart():
    found = code(launch((7, 1.0)), launch((7, 1.0)))
    (change,) = found.changes
    assert texts(change.after) == [(12, "first();", False), (13, "second(1);", True), (14, "third();", False)]
    assert found.further == 0
    found = code(launch((7, 1.0)), launch((7, 1.0)), other=BEFORE.replace(b"    ", b"\t"))
    assert not any(excerpt.changed for excerpt in (*found.excerpts, *found.changes))  # spaces make no difference


def test_a_change_in_a_file_without_a_hot_line_is_shown_too():
    profile = launch((7, 1.0))
    files = [{"k.cu": BEFORE, "tile.cuh": b"#define TILE 33\n"}, {"k.cu": BEFORE, "tile.cuh": b"#define TILE 32\n"}]
    found = hot_code(profile, profile, "sectors", count, tuple(files))
    (change,) = found.changes
    assert change.files == ("tile.cuh", "tile.cuh")
    assert texts(change.after) == [(1, "#define TILE 32", True), (2, "", False)]


def test_kernels_of_one_text_show_their_own_lines():
    (excerpt,) = code(launch((7, 1.0)), launch((12, 1.0), kernel="other"), other=BEFORE).excerpts
    assert [line.number for line in excerpt.before if line] == [5, 6, 7, 8, 9]
    assert [line.number for line in excerpt.after if line] == [10, 11, 12, 13, 14]


def test_files_of_other_names_stand_beside_each_other():
    before, after = launch((7, 1.0)), launch((12, 1.0), file="new.cu", kernel="other")
    (excerpt,) = code(before, after, other=BEFORE, name="new.cu").excerpts
    assert excerpt.files == ("k.cu", "new.cu")
    assert (excerpt.before[2].number, excerpt.after[2].number) == (7, 12)


def test_a_side_whose_sources_are_lost_is_named():
    found = hot_code(launch((7, 1.0)), launch((7, 1.0)), "sectors", count, ({}, {"k.cu": AFTER}))
    assert found.unknown == ("before",)
    assert found.excerpts[0].after[2].text == "    b[i] = a[2 * i];"


def test_without_sources_the_instructions_are_shown():
    counted = [(0, 1.0)] * 4 + [(0, 90.0)] + [(0, 1.0)] * 4
    (excerpt,) = hot_code(launch(), launch(*counted), "sectors", count).excerpts
    assert excerpt.before == (None,) * 5
    assert [(line.number, line.text) for line in excerpt.after] == [(16 * at, f"LDG R{at}") for at in range(2, 7)]
    assert excerpt.after[2].share == 90 / 98
    assert len(hot_code(launch(), launch(*[(0, 1.0)] * 100), "sectors", count).excerpts) == 1
    assert code(launch(), launch((99, 1.0), (0, 1.0))).excerpts[0].files == ("", "")  # lines that the sources lack
    assert code(launch(), launch((7, 0.0))) is None


def test_long_lines_and_many_changes_are_cut():
    own = b"\n".join(b"x%d;" % number for number in range(500))
    other = b"\n".join(b"y%d;" % number + b"z" * 10_000 for number in range(500))
    found = code(launch((7, 1.0)), launch((7, 1.0)), own, other)
    assert max(len(line.text) for line in found.excerpts[0].after) == excerpts.LONGEST_LINE
    shown = sum(len(change.before) for change in found.changes)
    assert shown <= excerpts.MOST_CHANGED + 2
    assert found.further + 2 * shown + 2 * len(found.excerpts[0].before) == 1000


def test_long_sources_are_compared_in_seconds():
    own = [f"x{number % 7};" for number in range(10_000)]
    started = time.monotonic()
    rows = aligned(own, ["a", *reversed(own), "b"])
    assert time.monotonic() - started < 5
    assert [left for left, _ in rows if left is not None] == list(range(10_000))
    assert [right for _, right in rows if right is not None] == list(range(10_002))


def test_aligned_texts_have_all_lines_of_both_in_order():
    assert aligned(["a", "b", "c"], ["a", "x", "c", "d"]) == [(0, 0), (1, 1), (2, 2), (None, 3)]
    assert aligned([], ["a"]) == [(None, 0)]
    assert aligned(["a", "a"], ["a"]) == [(0, 0), (1, None)]
