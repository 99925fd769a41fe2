"""The instructions of real launches, and those that carry a reason."""

from perfsvc.model import HotLine, Instruction, Profile, ReasonKind, SourceLine, codec
from perfsvc.profile.explain import explain
from perfsvc.profile.instructions import CARRIERS, MOST_LINES, carriers, hot_lines

CARRIED = {
    ("transpose-padded", "transpose-tiled"): (ReasonKind.BANK_CONFLICTS, {"LDS": 1.0}),
    ("pairs/transpose-padded", "pairs/transpose-naive"): (ReasonKind.UNCOALESCED, {"STG.E": 1.0}),
    ("pairs/stream-coalesced", "pairs/stream-strided"): (ReasonKind.UNCOALESCED, {"LDG.E": 0.5, "STG.E": 0.5}),
    ("pairs/arithmetic-in_registers", "pairs/arithmetic-spilled"): (ReasonKind.SPILLS, {"STL": 0.5, "LDL.LU": 0.5}),
    ("pairs/arithmetic-by_itself", "pairs/arithmetic-in_step"): (ReasonKind.BARRIERS, {"BAR.SYNC.DEFER_BLOCKING": 1.0}),
}
"""The first reason between two real launches, and the opcodes that carry it in the slower one."""


def opcode(line):
    return next(word for word in line.instruction.split() if not word.startswith("@"))


def test_the_instructions_that_carry_the_reason_are_the_ones_that_were_changed(profiled):
    for pair, (kind, expected) in CARRIED.items():
        fast, slow = (profiled(name) for name in pair)
        slower, faster = explain(fast, slow).reasons[0], explain(slow, fast).reasons[0]
        assert slower.kind is kind, pair
        assert {opcode(line): round(line.share, 2) for line in slower.after} == expected, pair
        assert slower.counted, pair
        assert (faster.before, faster.after) == (slower.after, slower.before), pair
    reason = explain(profiled("transpose-padded"), profiled("transpose-tiled")).reasons[0]
    assert (reason.before, reason.after, reason.counted) == ((), (HotLine(1.0, "LDS R11, [R14]", 4),), "excess passes")
    reasons = {
        reason.kind: reason for reason in explain(profiled("pairs/chase-full"), profiled("pairs/chase-half")).reasons
    }
    of_launch = reasons[ReasonKind.OCCUPANCY]  # a reason of the whole launch is at no instruction
    assert (of_launch.counted, of_launch.before, of_launch.after) == ("", (), ())


def test_instructions_are_in_order_with_their_counts(profiled):
    instructions = profiled("transpose-tiled").instructions
    assert codec.decode(Profile, codec.encode(profiled("transpose-tiled"))) == profiled("transpose-tiled")
    assert [instruction.offset for instruction in instructions] == [16 * number for number in range(len(instructions))]
    first = instructions[0]
    assert first.text == "LDC R1, c[0x0][0x28]"
    assert first.counts["instructions"] == 131_072
    assert first.source is None
    assert all(value > 0 for instruction in instructions for value in instruction.counts.values())
    conflicts = {each.text: each.counts.get("shared_excess_wavefronts") for each in instructions if "LDS" in each.text}
    assert conflicts == {
        "LDS R11, [R14]": 4_063_232,
        "LDS R13, [R14+0x20]": 4_063_232,
        "LDS R17, [R14+0x40]": 4_063_232,
        "LDS R19, [R14+0x60]": 4_063_232,
    }


SECTORS = CARRIERS[ReasonKind.UNCOALESCED][1]


def profile(*instructions):
    return Profile("k", instructions=instructions)


def at(offset, text, sectors, line=0):
    source = SourceLine("k.cu", line) if line else None
    return Instruction(offset, text, {"global_excess_sectors": sectors} if sectors else {}, source)


def test_instructions_of_a_source_line_count_together():
    lines = hot_lines(
        profile(at(0, "LDG R1", 10, 7), at(16, "LDG R2", 20, 7), at(32, "STG R1", 25, 8), at(48, "IADD R1", 0, 9)),
        SECTORS,
    )
    assert lines == (
        HotLine(30 / 55, "LDG R2", 2, SourceLine("k.cu", 7)),
        HotLine(25 / 55, "STG R1", 1, SourceLine("k.cu", 8)),
    )


def test_only_the_largest_lines_are_shown_and_a_predicate_is_no_opcode():
    assert hot_lines(profile(), SECTORS) == hot_lines(profile(at(0, "LDG R1", 0, 1)), SECTORS) == ()
    lines = hot_lines(profile(at(0, "@!P0 LDG R1", 10), at(16, "@P1 LDG R2", 30), at(32, "LDG R3", 20)), SECTORS)
    assert lines == (HotLine(1.0, "@P1 LDG R2", 3),)
    lines = hot_lines(profile(*(at(16 * number, "LDG R1", number + 1, number + 1) for number in range(9))), SECTORS)
    assert [line.source.line for line in lines] == [9, 8, 7][:MOST_LINES]
    small = hot_lines(profile(at(0, "LDG R1", 97, 1), at(16, "LDG R1", 3, 2)), SECTORS)
    assert [line.source.line for line in small] == [1]


def test_divergence_is_where_threads_take_no_part_and_a_stall_where_its_samples_are():
    counted, count = carriers(ReasonKind.STALLS, ("stall_barrier_cycles", "stall_wait_cycles"))
    assert counted == "samples of this stall (barrier)"
    assert count(Instruction(0, "BAR", {"stall_barrier_samples": 5.0, "stall_wait_samples": 9.0})) == 5
    _, count = carriers(ReasonKind.DIVERGENCE, ())
    assert count(Instruction(0, "FADD", {"instructions": 2.0, "thread_instructions": 40.0})) == 24
    assert count(Instruction(0, "FADD", {"instructions": 2.0, "thread_instructions": 64.0})) == 0
