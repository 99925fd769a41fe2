"""Which instruction the warps of a launch wait for."""

from perfsvc.model import Instruction
from perfsvc.profile.waits import FOR_TENSOR, WAITED, instruction_metrics, with_waits

LONG, SHORT, THROTTLE = (f"stall_{name}_samples" for name in ("long_scoreboard", "short_scoreboard", "lg_throttle"))


def kernel(*lines: tuple[str, dict[str, float]]) -> list[Instruction]:
    """Return instructions that are executed once each, with these samples."""
    return [
        Instruction(16 * number, text, {"instructions": 1.0, **samples}) for number, (text, samples) in enumerate(lines)
    ]


def waited(*lines: tuple[str, dict[str, float]]) -> dict[str, float]:
    """Return the samples of warps that waited for each instruction, by its text."""
    found = with_waits(kernel(*lines))
    return {instruction.text: instruction.counts[WAITED] for instruction in found if WAITED in instruction.counts}


def test_a_sample_belongs_to_the_instruction_that_fetches_what_the_warp_waits_for():
    for fetches, waits in [
        ("LDG.E R7, desc[UR6][R2.64]", "FADD R8, R7, 1"),
        ("LDG.E.128 R4, desc[UR6][R2.64]", "FADD R8, R7, 1"),
        ("LDS.64 R6, [R2]", "FADD R8, R9, R7"),
        ("@!P0 ATOMG.E.ADD.STRONG.GPU PT, R7, desc[UR4][R2.64], R5", "IADD3 R8, R7, 0x1, RZ"),
        ("F2F.F64.F32 R6, R2", "DADD R10, R6, R8"),
        ("F2F.F64.F32 R8, R2", "DADD R10, R6, R8"),
        ("MUFU.EX2 R7, R3", "@P1 STG.E desc[UR4][R2.64], R7"),
        ("LDC R7, c[0x3][R2]", "FFMA R8, R7, R9, R8"),
        ("LDSM.16.M88.4 R4, [R2]", "HMMA.16816.F32.BF16 R20, R4, R12, R20"),
        ("LDG.E R7, desc[UR6][R2.64]", "STG.E desc[UR4][R2.64], R7"),
        ("S2R R7, SR_TID.X", "IMAD R5, R4, UR5, R7"),
        ("LDG.E.64 R4, desc[UR6][R2.64]", "DSETP.GT.AND P0, PT, R4, R6, PT"),
        ("LDG.E R5, desc[UR6][R2.64]", "ATOMS.ADD RZ, [R4], R5"),
        ("LDG.E R5, desc[UR6][R2.64]", "LOP3.LUT P0, RZ, R5, 0x1, RZ, 0xc0, !PT"),
    ]:
        assert waited((fetches, {}), ("IADD3 R0, R1, R2, RZ", {}), (waits, {LONG: 5.0})) == {fetches: 5.0}, fetches


def test_only_a_load_whose_result_is_still_needed_is_waited_for():
    load, add = "LDG.E R7, desc[UR6][R2.64]", "FADD R8, R7, R9"
    assert waited((load, {}), ("FADD R7, R1, R2", {}), (add, {LONG: 3.0})) == {add: 3.0}  # the result is overwritten
    test = "LOP3.LUT P0, RZ, R7, 0x1, RZ, 0xc0, !PT"
    assert waited((load, {}), (test, {}), (add, {LONG: 2.0})) == {load: 2.0}
    assert waited((add, {LONG: 3.0}), (load, {}), ("@P0 BRA 0x0", {})) == {load: 3.0}  # of the pass before
    red = "RED.E.ADD.STRONG.GPU desc[UR4][R2.64], R7"
    assert waited((load, {}), (red, {THROTTLE: 4.0})) == {red: 4.0}  # which waits for a queue


def test_a_warp_at_its_end_waits_for_its_last_store():
    red = "RED.E.ADD.STRONG.GPU desc[UR4][R2.64], R5"
    assert waited((red, {}), ("EXIT", {}), ("BRA 0x30", {"stall_drain_samples": 9.0})) == {red: 9.0}
    assert waited(("EXIT", {"stall_drain_samples": 9.0})) == {"EXIT": 9.0}


def test_a_warp_behind_a_barrier_waits_at_the_barrier():
    barrier = "BAR.SYNC.DEFER_BLOCKING 0x0"
    found = with_waits(kernel((barrier, {}), ("LDS R4, [R2]", {"stall_barrier_samples": 7.0})))
    assert found[0].counts == {"instructions": 1.0, "stall_barrier_samples": 7.0, WAITED: 7.0}
    assert found[1].counts == {"instructions": 1.0}


def test_no_sample_is_lost_or_counted_twice(profiled):
    for name in ("pairs/product-fma", "pairs/arithmetic-in_step", "pairs/arithmetic-spilled"):
        instructions = profiled(name).instructions
        samples = sum(
            count for each in instructions for name, count in each.counts.items() if name.startswith("stall_")
        )
        assert sum(each.counts.get(WAITED, 0.0) for each in instructions) == samples > 0


def test_metrics_are_shares_of_the_samples_and_numbers_of_instructions():
    metrics = instruction_metrics(
        with_waits(
            kernel(
                ("LDS.128 R4, [R2]", {}),
                ("HMMA.16816.F32.BF16 R20, R4, R12, R20", {SHORT: 6.0}),
                ("ATOMS.ADD RZ, [R3], R4", {"stall_mio_throttle_samples": 2.0}),
                ("DADD R8, R8, R10", {"stall_math_pipe_throttle_samples": 2.0}),
                ("HFMA2.MMA R3, -RZ, RZ, 0, 0", {}),
                ("@P0 BRA 0x10", {}),
            )
        )
    )
    none = ("global_atomics", "special_instructions", "indexed_constant_loads", "barriers")
    none += ("special_time", "constants_time")
    numbers = {"shared_atomics": 1, "fp64_instructions": 1, "branches": 1, "payload_instructions": 4, "code_bytes": 96}
    shares = {"atomics_time": 0.2, "fp64_time": 0.2, "tensor_operands_time": 0.6}
    assert metrics == dict.fromkeys(none, 0) | numbers | shares
    assert set(instruction_metrics([]).values()) == {None}
    lines = ("LDS R4, [R2]", {}), ("HMMA.1688.F32.TF32 R8, R4, R6, R8", {SHORT: 3.0}), ("FADD R0, R4, R5", {SHORT: 1.0})
    load = with_waits(kernel(*lines))[0]
    assert (load.counts[WAITED], load.counts[FOR_TENSOR]) == (4.0, 3.0)


def test_instructions_of_unknown_form_do_not_disturb():
    for text in ["", "@P0", "???", "LDG.E", "R7, R8", "STG.E desc[UR4][R9999999.64], R7", "MUFU.EX2 R7"]:
        assert waited((text, {LONG: 1.0}), ("EXIT", {SHORT: 1.0})) == {text: 1.0, "EXIT": 1.0}, text
