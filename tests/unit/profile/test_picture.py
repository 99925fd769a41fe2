"""What a page shows of two real launches, and of launches of which little was counted."""

import pytest

from perfsvc.model import Evidence, Explanation, Instruction, Profile, Reason, ReasonKind
from perfsvc.profile.explain import explain
from perfsvc.profile.metrics import STALLS
from perfsvc.profile.picture import OTHERS, instruction_mix, picture, stalls, traffic

NOTHING = Profile("k")
SENTENCE = Explanation(2.0, "2.0 × slower")


@pytest.fixture(scope="module")
def spilled(profiled):
    before, after = (profiled(f"pairs/arithmetic-{name}") for name in ("in_registers", "spilled"))
    return picture(before, after, explain(before, after))


def test_spilled_registers_are_seen_in_code_stalls_instructions_and_traffic(spilled):
    opcodes = {line.text.split()[0] for excerpt in spilled.code.excerpts for line in excerpt.after if line.share > 0.0}
    assert opcodes <= {"STL", "LDL.LU", "LDL"}
    assert spilled.code.counted == "accesses to local memory"
    assert spilled.stalls[0].name == "lg_throttle"
    local = next(pair for pair in spilled.instructions if pair.name == "local")
    assert (local.before, local.after) == (0.0, pytest.approx(924e6, rel=0.01))
    (to_l1, to_l2, to_dram) = spilled.traffic
    flows = {flow.name: flow for flow in to_l1.flows}
    assert flows["local loads"].before == 0.0
    assert flows["local loads"].after == pytest.approx(59.1e9, rel=0.01)
    assert to_l2.hit_rate.after == pytest.approx(0.985, abs=0.01)
    assert [flow.name for flow in to_dram.flows] == ["read", "written"]
    for side, profile in (("before", spilled.before), ("after", spilled.after)):
        cycles = sum(profile.metrics[f"stall_{stall}_cycles"] for stall in STALLS)
        assert sum(getattr(stall, side) for stall in spilled.stalls) == pytest.approx(cycles), side
    of_all_classes = sum(pair.after for pair in spilled.instructions)
    assert of_all_classes == pytest.approx(spilled.after.metrics["instructions"], rel=0.01)


def test_a_reason_of_the_whole_launch_shows_where_the_warps_were_seen(profiled):
    before, after = (profiled(f"pairs/chase-{name}") for name in ("full", "half"))
    assert picture(before, after, explain(before, after)).code.counted == "samples of warps"


def test_the_code_is_that_of_the_first_independent_reason():
    after = Profile("k", instructions=(Instruction(0, "LDS R1", {"shared_excess_wavefronts": 3.0}),))
    reasons = (Reason(ReasonKind.BANK_CONFLICTS, 0.9, "", (Evidence("shared_bank_conflicts", 0, 1),)),)
    code = picture(NOTHING, after, Explanation(2.0, "", reasons)).code
    assert code.counted == "excess passes"
    assert code.excerpts[0].after[0].text == "LDS R1"


def test_what_was_not_counted_is_unknown_and_not_zero():
    found = picture(NOTHING, NOTHING, SENTENCE)
    assert (found.code, found.stalls, found.instructions) == (None, (), ())
    assert {flow.before for link in found.traffic for flow in link.flows} == {None}
    counted = Profile("k", {"stall_wait_cycles": 2.0}, instructions=(Instruction(0, "FADD R1", {"instructions": 8.0}),))
    (stall,) = stalls(NOTHING, counted)
    assert (stall.before, stall.after, stall.meaning) == (None, 2.0, STALLS["wait"])
    (float32,) = instruction_mix(NOTHING, counted)
    assert (float32.name, float32.before, float32.after) == ("float32", None, 8.0)


def test_small_stalls_are_folded():
    cycles = {"wait": 50.0, "barrier": 40.0, "drain": 0.3, "membar": 0.4}
    profile = Profile("k", {f"stall_{name}_cycles": value for name, value in cycles.items()})
    *shown, others = stalls(profile, profile)
    assert {stall.name for stall in shown} == {"wait", "barrier"}
    assert (others.name, others.before, others.meaning) == (OTHERS, pytest.approx(0.7), "drain, membar")


def test_bytes_that_threads_ask_for_are_a_part_of_the_sectors():
    metrics = {
        "global_load_sectors": 100.0,
        "global_store_sectors": 0.0,
        "global_load_used_bytes_per_sector": 4.0,
        "global_store_used_bytes_per_sector": None,
    }
    flows = {flow.name: flow.after for flow in traffic(NOTHING, Profile("k", metrics))[0].flows}
    assert flows == {"global loads": 3200.0, "global stores": 0.0, "of these, used by threads": 400.0}
