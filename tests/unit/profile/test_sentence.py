"""The sentence names the reason, the line that carries it, and the change."""

from dataclasses import replace

from perfsvc.model import Explanation, HotLine, Reason, ReasonKind, SourceChange, SourceLine
from perfsvc.profile.sentence import LONGEST_CODE, sentence
from perfsvc.profile.source_changes import with_source_text

OLD = """#define N 32
__global__ void turn(const float* a, float* b) {
    __shared__ float tile[N][N + 1];
    tile[threadIdx.y][threadIdx.x] = a[threadIdx.y * N + threadIdx.x];
    __syncthreads();
    b[threadIdx.y * N + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""
NEW = OLD.replace("N + 1", "N")
READ = HotLine(1.0, "LDS R2, [R4]", source=SourceLine("turn.cu", 6))
CONFLICTS = Reason(
    ReasonKind.BANK_CONFLICTS, 1.0, "loads 1-way → 32-way", counted="excess passes", before=(READ,), after=(READ,)
)
BANKS = "2.0 × slower: shared-memory bank conflicts (loads 1-way → 32-way) can account for all of it"
CODE = "`b[threadIdx.y * N + threadIdx.x] = tile[threadIdx.x][threadIdx.y];`"


def explained(old, new, *reasons, factor=2.0):
    sides = ({"turn.cu": text.encode()} for text in (old, new))
    return with_source_text(Explanation(factor, "", reasons), *sides).sentence


def test_the_line_that_carries_the_reason_and_the_changed_line_are_named():
    assert explained(OLD, NEW, CONFLICTS) == (
        f"{BANKS}, at turn.cu:6 {CODE}. Changed: turn.cu:3 `__shared__ float tile[N][N + 1];` → "
        "`__shared__ float tile[N][N];`."
    )


def test_if_the_line_itself_is_changed_its_text_is_shown_once():
    new = OLD.replace("b[threadIdx.y * N + threadIdx.x] =", "b[threadIdx.x * N + threadIdx.y] =")
    assert explained(OLD, new, CONFLICTS) == (
        f"{BANKS}, at turn.cu:6. Changed: turn.cu:6 {CODE} → "
        "`b[threadIdx.x * N + threadIdx.y] = tile[threadIdx.x][threadIdx.y];`."
    )


def test_equal_sources_name_the_line_alone():
    for new in [OLD, OLD + "// a comment\n"]:
        assert explained(OLD, new, CONFLICTS) == f"{BANKS}, at turn.cu:6 {CODE}.", new


def test_a_faster_launch_names_the_line_of_the_baseline_that_is_mended():
    faster = explained(NEW, OLD, replace(CONFLICTS, after=()), factor=0.5)
    assert faster == (
        "2.0 × faster: fewer shared-memory bank conflicts (loads 1-way → 32-way) can account for all of it, "
        f"at turn.cu:6 of the baseline {CODE}. Changed: turn.cu:3 `__shared__ float tile[N][N];` → "
        "`__shared__ float tile[N][N + 1];`."
    )


def test_a_line_with_a_part_of_the_reason_has_its_share_and_a_line_with_little_is_not_named():
    part = replace(CONFLICTS, after=(replace(READ, share=0.61),))
    assert explained(OLD, OLD, part) == f"{BANKS}, at turn.cu:6 {CODE}, 61 % of the excess passes."
    assert explained(OLD, OLD, replace(CONFLICTS, after=(replace(READ, share=0.2),))) == f"{BANKS}."


def test_without_a_reason_or_with_a_reason_of_the_whole_launch_the_change_alone_is_named():
    assert explained(OLD, NEW).startswith("2.0 × slower, and nothing that was counted can account for it. Changed: ")
    kept = with_source_text(Explanation(1.01, "Both take equally long."), {"a": b"1"}, {"a": b"2"})
    assert kept.sentence == "Both take equally long."
    occupancy = Reason(ReasonKind.OCCUPANCY, 0.8, "100 % → 50 %")
    assert explained(OLD, NEW, occupancy) == (
        "2.0 × slower: lower occupancy (100 % → 50 %) can account for 80 % of it. "
        "Changed: turn.cu:3 `__shared__ float tile[N][N + 1];` → `__shared__ float tile[N][N];`."
    )


def test_two_reasons_have_a_line_each_and_the_change_nearest_to_the_first_is_described():
    line = HotLine(1.0, "LDG", source=SourceLine("turn.cu", 4))
    other = Reason(ReasonKind.UNCOALESCED, 0.4, "32 → 4 bytes", counted="excess sectors", after=(line,))
    new = NEW.replace("a[threadIdx.y * N + threadIdx.x]", "a[threadIdx.x * N + threadIdx.y]")
    new = new.replace("    b[", "    if (*a) return;\n    b[")
    first = replace(CONFLICTS, share=0.6, after=(replace(READ, source=SourceLine("turn.cu", 7)),))
    text = explained(OLD, new, first, other)
    assert text == (
        f"{BANKS.replace('all', '60 %')}, at turn.cu:7 {CODE}; uncoalesced global access (32 → 4 bytes) for 40 % of it"
        ", at turn.cu:4 `tile[threadIdx.y][threadIdx.x] = a[threadIdx.x * N + threadIdx.y];` (a changed line)."
        " Added: turn.cu:6 `if (*a) return;`; a further change at turn.cu:3."
    )


def test_the_most_alike_lines_of_a_change_are_shown_and_the_others_counted():
    new = OLD.replace(
        "    __shared__ float tile[N][N + 1];\n", "    int x = 0;\n    __shared__ float tile[N][N];\n    x++;\n"
    )
    assert explained(OLD, new, CONFLICTS).endswith(
        "Changed: turn.cu:4 `__shared__ float tile[N][N + 1];` → `__shared__ float tile[N][N];` and 2 more lines."
    )
    new = OLD.replace("    __syncthreads();\n", "    x();\n    y[0]++;\n")  # like no line before: only the new text
    assert explained(OLD, new).endswith(" Changed: turn.cu:5 `x();` and 1 more line.")
    new = OLD.replace("    __syncthreads();\n", "")
    assert explained(OLD, new, CONFLICTS).endswith(" Removed: turn.cu:5 of the baseline `__syncthreads();`.")


def test_many_changes_are_not_named_but_a_changed_line_is_marked():
    new = "".join(f"int v{line};\n{text}\n" for line, text in enumerate(OLD.splitlines()))
    moved = replace(CONFLICTS, after=(replace(READ, source=SourceLine("turn.cu", 11)),))
    assert explained(OLD, new, moved) == f"{BANKS}, at turn.cu:11 `int v5;` (a changed line)."


def test_of_long_lines_the_parts_that_differ_are_shown():
    old, new = (f"{'x' * 5000} {value} {'y' * 5000}" for value in ("tile[33]", "tile[32]"))
    text = explained(old, new, replace(CONFLICTS, after=(replace(READ, source=SourceLine("turn.cu", 1)),)))
    shown = text.split("Changed: turn.cu:1 ")[1].split("` → `")
    assert [part.strip("`.").count(mark) for part, mark in zip(shown, ("tile[33]", "tile[32]"), strict=True)] == [1, 1]
    assert len(text) < len(BANKS) + 3 * LONGEST_CODE


def test_a_sentence_stays_short():
    for lines in [("",), ("x" * 10_000,), tuple(1000 * ["a;"]), ("\x1b[2J`</code>\u202e",)]:
        for name in ["k.cu", "n" * 4000]:
            line = HotLine(0.5, "LDS", source=SourceLine(name, 1), text=lines[0])
            reason = replace(CONFLICTS, after=(line,), before=(line,))
            change = SourceChange(name, 1, 1, lines, ("b",))
            for given in ((change,), (change, change, change), (replace(change, before=(), after=lines),)):
                for factor in (0.5, 2.0):
                    assert len(sentence(factor, [reason, reason], given)) < 1300, (lines, name)
