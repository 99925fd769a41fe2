"""The differences of two sources, as the page of a finding shows them."""

from perfsvc.report.pages.finding import ADDED, GAP, REMOVED, SAME
from perfsvc.service.dashboard.sources import LONGEST_LINE, MOST_LINES, file_diff

LINES = [f"line {number}" for number in range(1, 21)]


def diff(before, after):
    return file_diff("k/k.cu", (1, 2), "\n".join(before).encode(), "\n".join(after).encode())


def signs(found):
    return "".join({SAME: " ", ADDED: "+", REMOVED: "-", GAP: "~"}[line.sign] for line in found.lines)


def test_a_change_has_three_equal_lines_around_it_and_a_gap_for_the_others():
    found = diff(LINES, [*LINES[:9], "new", *LINES[10:]])
    assert signs(found) == "~   -+   ~"
    assert [line.text for line in found.lines if line.sign in {ADDED, REMOVED}] == ["line 10", "new"]
    assert [(line.before, line.after) for line in found.lines[1:-1]] == [
        (7, 7), (8, 8), (9, 9), (10, None), (None, 10), (11, 11), (12, 12), (13, 13),
    ]  # fmt: skip
    assert (found.added, found.removed, found.hidden) == (1, 1, 0)


def test_the_numbers_of_equal_lines_are_those_of_their_own_side():
    found = diff(LINES, ["a", "b", *LINES[:9], *LINES[10:]])
    equal = [(line.before, line.after) for line in found.lines if line.sign == SAME]
    assert equal[:3] == [(1, 3), (2, 4), (3, 5)]
    assert equal[-3:] == [(11, 12), (12, 13), (13, 14)]
    for line in found.lines:
        if line.sign == SAME:
            assert line.text == LINES[line.before - 1]


def test_changes_that_are_near_share_their_equal_lines():
    for apart in range(1, 12):
        changed = LINES.copy()
        changed[4], changed[4 + apart] = "x", "y"
        found = diff(LINES, changed)
        shown = [line.after for line in found.lines if line.after is not None]
        assert shown == sorted(set(shown))  # no line twice, none out of order
        between = [line.sign for line in found.lines].count(GAP) - 1 - (16 - apart > 4)
        assert between == (apart > 7)


def test_a_file_that_only_one_side_has_is_added_or_removed_as_a_whole():
    assert signs(diff([], ["a", "b"])) == "++"
    assert signs(diff(["a", "b"], [])) == "--"


def test_a_long_difference_is_cut_and_its_changed_lines_are_counted():
    found = diff([], [str(number) for number in range(1000)])
    assert len(found.lines) == MOST_LINES
    assert (found.added, found.hidden) == (1000, 1000 - MOST_LINES)


def test_a_long_line_loses_its_middle():
    (line,) = diff([], ["x" * 10_000]).lines
    assert len(line.text) == LONGEST_LINE
    assert "…" in line.text


def test_bytes_that_are_no_text_become_signs():
    found = file_diff("k/k.cu", (1, 2), b"", b"\xff\xfe\n")
    assert [line.text for line in found.lines] == ["\ufffd\ufffd"]
