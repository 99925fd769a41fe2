from perfsvc.model import Explanation, HotLine, Instruction, Profile, Reason, ReasonKind, SourceLine
from perfsvc.profile.source_changes import with_source_text, with_stored_names

BEFORE = b"__global__ void k(float* a) {\n    int i = threadIdx.x;\n    a[i] = 1;\n}\n"
AFTER = b"__global__ void k(float* a) {\n\n    int i  =  threadIdx.x;\n\ta[32 * i] = 1;\n}\n"


def line(number, file="k.cu"):
    return HotLine(1.0, "STG.E [R4], R7", source=SourceLine(file, number))


def texts(before, after, *, sources=(BEFORE, AFTER)):
    reason = Reason(ReasonKind.UNCOALESCED, 1.0, "", before=before, after=after)
    old, new = ({"k.cu": text} for text in sources)
    (explained,) = with_source_text(Explanation(2.0, "", (reason,)), old, new).reasons
    return [[(each.text, each.changed) for each in side] for side in (explained.before, explained.after)]


def test_a_line_has_its_text_and_is_changed_if_the_other_source_lacks_it():
    assert texts((line(2), line(3)), (line(3), line(4))) == [
        [("int i = threadIdx.x;", False), ("a[i] = 1;", True)],
        [("int i = threadIdx.x;", False), ("a[32 * i] = 1;", True)],
    ]
    assert texts((line(3),), (line(3),), sources=(BEFORE, BEFORE)) == [[("a[i] = 1;", False)]] * 2


def test_a_line_that_the_source_lacks_stays_without_text():
    for unknown in [line(1, "other.cu"), line(99), line(0), HotLine(1.0, "EXIT")]:
        assert texts((unknown,), (unknown,)) == [[("", False)]] * 2, unknown


def test_a_file_that_only_a_side_has_is_changed_as_a_whole():
    reason = Reason(ReasonKind.UNCOALESCED, 1.0, "", after=(line(3),))
    (explained,) = with_source_text(Explanation(2.0, "", (reason,)), {"old.cu": BEFORE}, {"k.cu": AFTER}).reasons
    assert (explained.after[0].text, explained.after[0].changed) == ("int i = threadIdx.x;", True)


def test_odd_bytes_and_line_ends_of_other_systems_do_not_shift_lines():
    source = b"// \xff \xe2\x80\xa8 \x0c\r\nint a;\r\nint b;\r\n"
    assert texts((line(2),), (line(3),), sources=(source, source)) == [[("int a;", False)], [("int b;", False)]]


def test_a_report_names_files_without_their_folders():
    lines = [SourceLine("mine.py", 3), SourceLine("two.py", 4), SourceLine("other.py", 5), None]
    instructions = tuple(Instruction(16 * number, "NOP", {}, line) for number, line in enumerate(lines))
    named = with_stored_names(Profile("k", instructions=instructions), ["../../mine.py", "a/two.py", "b/two.py"])
    assert [instruction.source for instruction in named.instructions] == [SourceLine("../../mine.py", 3), *lines[1:]]
