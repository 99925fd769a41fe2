"""The reasons of an explanation as lines of text."""

from perfsvc.model import HotLine, Reason, ReasonKind, SourceLine
from perfsvc.report.explanations import place, reason_lines

OLD = HotLine(1.0, "LDS R2, [R4]", source=SourceLine("tile.cu", 21), text="t += a[i];")
NEW = HotLine(0.61, "LDS R2, [R4]", source=SourceLine("tile.cu", 22), text="t += a[i];", changed=True)
CONFLICTS = Reason(ReasonKind.BANK_CONFLICTS, 0.96, "loads 1-way → 32-way", counted="excess passes", before=(OLD,))


def test_a_reason_has_a_line_of_its_own_and_a_line_for_each_place_of_the_candidate():
    both = Reason(ReasonKind.BANK_CONFLICTS, 0.96, "1 → 32", counted="excess passes", before=(OLD,), after=(NEW, OLD))
    assert reason_lines([both]) == [
        "bank conflicts 96 %: 1 → 32",
        "after: 61 % of the excess passes at tile.cu:22  t += a[i];  (changed)",
        "after: 100 % of the excess passes at tile.cu:21  t += a[i];",
    ]
    stalls = Reason(ReasonKind.STALLS, 0.5, "short", follows=ReasonKind.BANK_CONFLICTS, counted="samples", after=(NEW,))
    assert reason_lines([CONFLICTS, stalls])[1:] == [  # the candidate has no place; the other reason's are not its own
        "before: 100 % of the excess passes at tile.cu:21  t += a[i];",
        "longer stalls 50 %: short",
    ]
    for line in (HotLine(1.0, "x" * 10_000, 3), HotLine(1.0, "", 1, SourceLine("f" * 999, 1), "x" * 999)):
        assert len(place(line)) < 500, line
