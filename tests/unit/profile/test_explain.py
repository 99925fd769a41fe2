"""Explanations of two real launches, and of constructed ones whose reason is known."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.errors import ReportError
from perfsvc.model import Explanation, Instruction, Profile, ProfilerRule, ReasonKind
from perfsvc.profile.explain import BRINGS, explain
from perfsvc.profile.metrics import STALLS
from perfsvc.profile.pair import GROUPS, ProfilePair
from perfsvc.profile.reasons import REASONS
from perfsvc.profile.reasons.computing import divergence as divergent_branches
from perfsvc.profile.sentence import WORDS

UNITS, SCHEDULERS, WARPS = 132, 4, 16
DRAM_PEAK, L2_PEAK = 3.35e12, 5.5e12


@dataclass(frozen=True)
class Launch:
    """A launch as its author would describe it, with counters that are consistent like a device's."""

    instructions: float = 40e6
    cycles: Mapping[str, float] = field(default_factory=lambda: {"long_scoreboard": 40.0, "wait": 2.0, "selected": 1.0})
    threads: float = 32.0
    occupancy: float = 1.0
    filled: float = 0.95  # of the occupancy
    active: float = 0.97  # of the time
    clock: float = 1.98e9
    waves: float = 16.0
    asked: float = 256e6  # bytes of global memory, half of them loaded
    used: float = 32.0  # of a sector's bytes
    missed: float = 1.0  # share of its sectors that reach DRAM
    local: float = 0.0
    conflicts: float = 0.0
    shared: float = 4e6
    tensor: float = 0.0  # s
    changes: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        return self.active_cycles / self.active / self.clock

    @property
    def active_cycles(self) -> float:
        work = self.instructions / (UNITS * SCHEDULERS) * sum(self.cycles.values())
        return work / (WARPS * self.occupancy * self.filled)

    def profile(self, rules: tuple[ProfilerRule, ...] = ()) -> Profile:
        time, sectors = self.duration_s, self.asked / self.used
        dram = 32 * (sectors + 4 * self.local) * self.missed
        issued = self.instructions / (UNITS * SCHEDULERS) / (time * self.clock)
        active, half = self.active_cycles, dram / 2
        metrics = {"duration_s": time, "sm_clock_hz": self.clock, "multiprocessors": UNITS, "waves": self.waves}
        metrics |= {"sm_active_cycles": active, "sm_elapsed_cycles": active / self.active}
        metrics |= {"dram_read_bytes": half, "dram_write_bytes": half, "dram_throughput": dram / time / DRAM_PEAK}
        metrics |= {"l2_sectors": sectors + 4 * self.local, "l2_throughput": 32 * sectors / time / L2_PEAK}
        metrics |= {"l2_hit_rate": 1 - self.missed, "l1_hit_rate": 0.0}
        metrics |= {"instructions": self.instructions, "issue_throughput": issued}
        metrics |= {"threads_per_instruction": self.threads, "tensor_throughput": self.tensor / time}
        metrics |= {"theoretical_occupancy": self.occupancy, "achieved_occupancy": self.occupancy * self.filled}
        limits = {"registers": 8.0, "shared": 8.0 * self.occupancy}
        metrics |= {f"occupancy_limit_{name}_blocks": limit for name, limit in limits.items()}
        metrics["shared_bank_conflicts"] = self.conflicts
        for part in ("load", "store"):
            metrics |= {
                f"global_{part}_sectors": sectors / 2,
                f"global_{part}_requests": self.asked / 2 / 128,
                f"global_{part}_used_bytes_per_sector": self.used,
                f"local_{part}_requests": self.local / 2,
                f"shared_{part}_requests": self.shared / 2,
                f"shared_{part}_wavefronts": self.shared / 2 + (self.conflicts if part == "load" else 0.0),
            }
        metrics |= {f"stall_{reason}_cycles": self.cycles.get(reason, 0.0) for reason in STALLS}
        return Profile("made", {**metrics, **self.changes}, rules)


BASE = Launch()
MEMORY_BOUND = replace(BASE, asked=1.2e9, cycles={"long_scoreboard": 120.0, "wait": 2.0, "selected": 1.0})
COMPUTING = replace(BASE, cycles={"wait": 8.0, "math_pipe_throttle": 4.0, "not_selected": 6.0, "selected": 1.0})


def cycles(launch: Launch, **more: float) -> Mapping[str, float]:
    return {**launch.cycles, **{reason: launch.cycles.get(reason, 0.0) + each for reason, each in more.items()}}


PAIRS: Mapping[str, tuple[ReasonKind, Launch, Launch]] = {
    "32-way conflicts": (
        ReasonKind.BANK_CONFLICTS,
        BASE,
        replace(BASE, conflicts=62e6, shared=4e6, cycles=cycles(BASE, mio_throttle=80, short_scoreboard=20, barrier=9)),
    ),
    "strided, of DRAM": (
        ReasonKind.UNCOALESCED,
        MEMORY_BOUND,
        replace(MEMORY_BOUND, used=4.0, cycles=cycles(MEMORY_BOUND, long_scoreboard=800, lg_throttle=40)),
    ),
    "strided, of the L1 cache": (
        ReasonKind.UNCOALESCED,
        BASE,
        replace(BASE, used=8.0, missed=0.25, cycles=cycles(BASE, lg_throttle=70, long_scoreboard=30)),
    ),
    "spilled registers": (
        ReasonKind.SPILLS,
        COMPUTING,
        replace(
            COMPUTING,
            local=30e6,
            instructions=80e6,
            cycles=cycles(COMPUTING, long_scoreboard=20, lg_throttle=20, short_scoreboard=1),
        ),
    ),
    "half the occupancy": (ReasonKind.OCCUPANCY, BASE, replace(BASE, occupancy=0.5)),
    "half the occupancy, half of it hidden": (
        ReasonKind.OCCUPANCY,
        BASE,
        replace(BASE, occupancy=0.5, cycles={**BASE.cycles, "long_scoreboard": 28.0}),
    ),
    "twice the arithmetic": (ReasonKind.INSTRUCTIONS, COMPUTING, replace(COMPUTING, instructions=80e6)),
    "twice the arithmetic, waiting for each result": (
        ReasonKind.INSTRUCTIONS,
        BASE,
        replace(BASE, instructions=80e6, cycles={"long_scoreboard": 20.0, "wait": 22.0, "selected": 1.0}),
    ),
    "twice the traffic": (
        ReasonKind.TRAFFIC,
        MEMORY_BOUND,
        replace(MEMORY_BOUND, asked=2.4e9, instructions=78e6),
    ),
    "twice the traffic of DRAM alone, by its latency": (
        ReasonKind.TRAFFIC,
        BASE,
        replace(BASE, asked=512e6, instructions=75e6),
    ),
    "misses of the L2 cache": (
        ReasonKind.HIT_RATE,
        replace(MEMORY_BOUND, missed=0.2),
        replace(MEMORY_BOUND, missed=0.9, cycles=cycles(MEMORY_BOUND, long_scoreboard=200)),
    ),
    "lower clocks": (ReasonKind.CLOCKS, COMPUTING, replace(COMPUTING, clock=1.4e9)),
    "one block more than a wave": (
        ReasonKind.TAIL,
        replace(BASE, waves=1.0),
        replace(BASE, waves=1.01, active=0.5, instructions=40.4e6),
    ),
    "a wave that is hardly filled": (ReasonKind.TAIL, BASE, replace(BASE, waves=1.1, filled=0.55)),
    "more barriers": (ReasonKind.BARRIERS, BASE, replace(BASE, instructions=42e6, cycles=cycles(BASE, barrier=60))),
    "another latency": (ReasonKind.STALLS, BASE, replace(BASE, cycles=cycles(BASE, long_scoreboard=40))),
    "no tensor cores": (
        ReasonKind.TENSOR,
        replace(COMPUTING, tensor=20e-6),
        replace(COMPUTING, instructions=400e6, asked=300e6, cycles=cycles(COMPUTING, short_scoreboard=3)),
    ),
    "atomics on a few addresses": (
        ReasonKind.ATOMICS,
        replace(BASE, changes={"atomics_time": 0.0, "global_atomics": 0.0, "shared_atomics": 4e6}),
        replace(
            BASE,
            asked=512e6,
            cycles=cycles(BASE, lg_throttle=160),
            changes={"atomics_time": 0.8, "global_atomics": 4e6, "shared_atomics": 0.0},
        ),
    ),
    "as many atomics, but on one address": (
        ReasonKind.ATOMICS,
        replace(BASE, changes={"atomics_time": 0.1, "shared_atomics": 4e6}),
        replace(BASE, cycles=cycles(BASE, mio_throttle=60), changes={"atomics_time": 0.6, "shared_atomics": 4e6}),
    ),
    "constants at a computed address": (
        ReasonKind.CONSTANTS,
        replace(BASE, changes={"constants_time": 0.1, "constants_throughput": 0.3, "indexed_constant_loads": 1e6}),
        replace(
            BASE,
            cycles=cycles(BASE, short_scoreboard=60),
            changes={"constants_time": 0.6, "constants_throughput": 0.7, "indexed_constant_loads": 1e6},
        ),
    ),
    "double instead of float, which adds a tenth of the instructions": (
        ReasonKind.FP64,
        replace(BASE, changes={"fp64_time": 0.0, "fp64_instructions": 0.0}),
        replace(
            BASE,
            instructions=44e6,
            cycles=cycles(BASE, math_pipe_throttle=9),
            changes={"fp64_time": 0.25, "fp64_instructions": 8e6},
        ),
    ),
    "more roots": (
        ReasonKind.SPECIAL,
        replace(COMPUTING, changes={"special_time": 0.05, "special_instructions": 1e6}),
        replace(
            COMPUTING,
            instructions=44e6,
            cycles=cycles(COMPUTING, mio_throttle=20),
            changes={"special_time": 0.5, "special_instructions": 8e6},
        ),
    ),
    "eight blocks": (
        ReasonKind.SMALL_LAUNCH,
        replace(BASE, waves=2.0, changes={"blocks": 2112.0}),
        replace(BASE, waves=0.01, active=0.06, changes={"blocks": 8.0}),
    ),
    "tensor cores wait for operands": (
        ReasonKind.TENSOR_WAIT,
        replace(BASE, changes={"tensor_operands_time": 0.05}),
        replace(BASE, cycles=cycles(BASE, short_scoreboard=40), changes={"tensor_operands_time": 0.5}),
    ),
    "a loop that is not unrolled": (
        ReasonKind.UNROLLING,
        replace(COMPUTING, changes={"branches": 1e6, "payload_instructions": 20e6, "code_bytes": 4e3}),
        replace(
            COMPUTING,
            instructions=60e6,
            cycles=cycles(COMPUTING, wait=6),
            changes={"branches": 9e6, "payload_instructions": 20e6, "code_bytes": 2e3},
        ),
    ),
    "code beyond the instruction caches": (
        ReasonKind.INSTRUCTION_CACHE,
        replace(COMPUTING, changes={"code_bytes": 4_000.0}),
        replace(COMPUTING, cycles=cycles(COMPUTING, no_instruction=40), changes={"code_bytes": 400_000.0}),
    ),
    "branches that part warps": (ReasonKind.DIVERGENCE, COMPUTING, replace(COMPUTING, instructions=80e6, threads=16.0)),
}
"""The expected first reason between two launches."""


def kinds(explanation: Explanation) -> list[ReasonKind]:
    return [reason.kind for reason in explanation.reasons]


def test_the_first_reason_is_the_known_one_and_among_the_first_two_without_stalls():
    assert {expected for expected, _, _ in PAIRS.values()} == set(ReasonKind) == set(REASONS) == set(WORDS)
    of_stalls = {ReasonKind.STALLS, ReasonKind.BARRIERS, ReasonKind.INSTRUCTION_CACHE}
    uncounted = {f"stall_{reason}_cycles": None for reason in STALLS}
    for name, (expected, fast, slow) in PAIRS.items():
        explanation = explain(fast.profile(), slow.profile())
        assert explanation.factor > 1.1, name
        assert kinds(explanation)[0] is expected, explanation.reasons
        assert explanation.reasons[0].share >= 0.5, name
        assert explanation.reasons[0].evidence, name
        blind = (replace(each, changes={**each.changes, **uncounted}).profile() for each in (fast, slow))
        assert expected in of_stalls or expected in kinds(explain(*blind))[:2], name


def test_the_reverse_comparison_is_faster_for_the_same_reasons_which_show_numbers_that_differ():
    for name, (_, fast, slow) in PAIRS.items():
        slower, faster = explain(fast.profile(), slow.profile()), explain(slow.profile(), fast.profile())
        assert faster.factor == pytest.approx(1 / slower.factor), name
        assert (" slower: " in slower.sentence, " faster: " in faster.sentence) == (True, True), name
        for there, back in zip(slower.reasons, faster.reasons, strict=True):
            assert (there.kind, there.share, there.follows) == (back.kind, back.share, back.follows), name
            assert [(metric.metric, metric.before, metric.after) for metric in there.evidence] == [
                (metric.metric, metric.after, metric.before) for metric in back.evidence
            ]
            changes = re.findall(r"(\S+)(?: \S+)? → (\S+)", there.detail)
            assert changes, there.detail
            assert all(before != after for before, after in changes), there.detail


def test_a_reason_comes_before_what_it_brings_about_and_a_few_spills_do_not_hide_the_main_reason():
    reasons = {name: explain(PAIRS[name][1].profile(), PAIRS[name][2].profile()).reasons for name in PAIRS}
    brought = {reason.kind: reason.follows for reason in reasons["spilled registers"][1:]}
    assert brought[ReasonKind.INSTRUCTIONS] is brought[ReasonKind.STALLS] is ReasonKind.SPILLS
    assert all(reason.follows is not None for reason in reasons["strided, of DRAM"][1:])
    assert reasons["half the occupancy"][0].detail == "100 % → 50 %, limited by shared memory"
    slow = replace(COMPUTING, instructions=80e6, local=0.5e6)
    assert kinds(explain(COMPUTING.profile(), slow.profile()))[0] is ReasonKind.INSTRUCTIONS
    slow = replace(COMPUTING, instructions=80e6)  # each stall takes as long as before
    assert ReasonKind.STALLS not in kinds(explain(COMPUTING.profile(), slow.profile()))
    fast, slow = (replace(BASE, clock=clock, changes={"instructions": 0.0}).profile() for clock in (2e9, 1e9))
    assert kinds(explain(fast, slow)) == [ReasonKind.CLOCKS]


def test_a_tail_of_equal_waves_shows_what_differs():
    slow = replace(BASE, waves=2.0, active=0.93)
    (tail,) = explain(replace(BASE, waves=2.0).profile(), slow.profile()).reasons
    assert tail.kind is ReasonKind.TAIL
    assert tail.detail == "multiprocessors at work 97 % → 93 % of the time"


def test_close_numbers_are_written_with_enough_digits_to_differ():
    fast, slow = (replace(BASE, threads=threads, instructions=count) for threads, count in ((10.4, 40e6), (9.6, 43e6)))
    divergence = divergent_branches(ProfilePair(fast.profile(), slow.profile()))
    assert divergence
    assert divergence.detail.startswith("10.4 → 9.6 of 32 threads")
    pair = ProfilePair(fast.profile(), slow.profile())
    assert pair.change((0.9701, 0.9702), lambda share, further: f"{100 * share:.{further}f} %") == "97.01 % → 97.02 %"
    assert not pair.change((5.0, 5.0), lambda value, further: f"{value:.{further}f}")


def test_equal_instructions_that_take_a_little_longer_have_no_varying_reason():
    instructions = (Instruction(0, "LDG.E R2, desc[UR6][R2.64]", {"instructions": 8.0}),)
    fast, slow, slower, clocked = (
        replace(launch.profile(), instructions=instructions)
        for launch in (BASE, replace(BASE, active=0.93), replace(BASE, active=0.5), replace(BASE, clock=1.9e9))
    )
    assert kinds(explain(fast, slow)) == []
    assert kinds(explain(fast, replace(slow, instructions=()))) == [ReasonKind.TAIL]
    assert kinds(explain(fast, slower)) == [ReasonKind.TAIL]
    assert kinds(explain(fast, clocked)) == [ReasonKind.CLOCKS]


def test_the_padded_transpose_has_no_conflicts_and_the_tiled_one_has_32_way_ones(profiled):
    padded, tiled = (profiled(f"transpose-{name}") for name in ("padded", "tiled"))
    slower, faster = explain(padded, tiled), explain(tiled, padded)
    assert slower.sentence == (
        "2.0 × slower: shared-memory bank conflicts (loads 1-way → 32-way) can account for all of it."
    )
    assert faster.sentence == (
        "2.0 × faster: fewer shared-memory bank conflicts (loads 32-way → 1-way) can account for all of it."
    )
    first = slower.reasons[0]
    assert {rule.name for rule in first.rules} == {"SharedMemoryConflicts", "UncoalescedSharedAccess"}
    assert ("shared_bank_conflicts", 32_645, 16_420_551) in {(e.metric, e.before, e.after) for e in first.evidence}
    assert {reason.follows for reason in slower.reasons[1:]} == {ReasonKind.BANK_CONFLICTS}


def test_two_profiles_of_one_kernel_take_as_long(profiled):
    full, small = (profiled(name) for name in ("transpose-padded", "transpose-padded-small"))
    explanation = explain(full, small)
    assert explanation.reasons == ()
    assert explanation.sentence == "Both take equally long: 43.65 µs before, 43.68 µs after."


def test_local_memory_without_spilled_registers_is_described_as_arrays():
    for spilled, expected in [(None, "memory"), (30e6, "memory"), (0.0, "for arrays and not for registers")]:
        _, fast, slow = PAIRS["spilled registers"]
        first = explain(fast.profile(), replace(slow, changes={"spill_requests": spilled}).profile()).reasons[0]
        assert first.kind is ReasonKind.SPILLS, (spilled, expected)
        assert first.detail.endswith(expected), (spilled, expected)


def test_traffic_without_loads_or_stores_is_traffic_and_no_miss():
    counted = BASE.profile().metrics
    slow = replace(BASE, cycles=cycles(BASE, lg_throttle=40), changes={"l2_sectors": 4 * counted["l2_sectors"]})
    first = explain(BASE.profile(), slow.profile()).reasons[0]  # such as atomics
    assert first.kind is ReasonKind.TRAFFIC
    assert first.detail == "256 MB → 1.02 GB of the L2 cache"


def test_two_independent_reasons_are_both_named():
    explanation = explain(COMPUTING.profile(), replace(COMPUTING, clock=1.4e9, instructions=60e6).profile())
    assert kinds(explanation)[:2] == [ReasonKind.INSTRUCTIONS, ReasonKind.CLOCKS]
    assert explanation.sentence == (
        "2.1 × slower: more instructions (40 M → 60 M instructions) can account for 54 % of it; "
        "lower clocks (multiprocessors 1980 → 1400 MHz) for 46 % of it."
    )


def test_a_difference_in_time_alone_has_no_explanation_and_a_small_one_is_given_in_per_cent():
    slower = replace(BASE, changes={"duration_s": 1.3 * BASE.duration_s})
    explanation = explain(BASE.profile(), slower.profile())
    assert explanation.sentence == "1.3 × slower, and nothing that was counted can account for it."
    assert explain(Profile("fast", {"duration_s": 1.0}), Profile("slow", {"duration_s": 2.0})).reasons == ()
    explanation = explain(COMPUTING.profile(), replace(COMPUTING, clock=1.9e9).profile())
    assert explanation.sentence.startswith("4.2 % slower: lower clocks")


def test_of_two_equal_reasons_the_one_with_an_agreeing_rule_comes_first():
    slow = replace(BASE, occupancy=0.75, filled=0.95 * 0.75)
    assert kinds(explain(BASE.profile(), slow.profile()))[:2] == [ReasonKind.OCCUPANCY, ReasonKind.TAIL]
    agreeing = slow.profile((ProfilerRule("WorkloadImbalance", "One multiprocessor works longest.", 0.3),))
    assert kinds(explain(BASE.profile(), agreeing))[:2] == [ReasonKind.TAIL, ReasonKind.OCCUPANCY]


def test_a_rule_with_the_same_estimate_before_does_not_agree():
    rule = ProfilerRule("TheoreticalOccupancy", "More would fit.", 0.3)
    explanation = explain(BASE.profile((rule,)), replace(BASE, occupancy=0.5).profile((replace(rule, speedup=0.32),)))
    assert not explanation.reasons[0].rules


def test_a_profile_without_a_duration_is_refused():
    with pytest.raises(ReportError, match="the profile of made has no duration of the launch"):
        explain(BASE.profile(), replace(BASE, changes={"duration_s": None}).profile())


def test_a_reason_is_ranked_before_those_it_brings_about():
    order = list(REASONS)
    assert all(order.index(kind) < order.index(brought) for kind, many in BRINGS.items() for brought in many)
    assert sorted(reason for group in GROUPS for reason in group) == sorted(STALLS)


sizes = st.floats(0.3, 3.0)


@st.composite
def launches(draw):
    wait, load, bank = draw(sizes), draw(sizes), draw(sizes)
    return Launch(
        instructions=40e6 * draw(sizes),
        cycles={"wait": 4 * wait, "long_scoreboard": 30 * load, "mio_throttle": 5 * bank, "selected": 1.0},
        occupancy=draw(st.floats(0.1, 1.0)),
        asked=256e6 * draw(sizes),
        used=draw(st.floats(4.0, 32.0)),
        missed=draw(st.floats(0.05, 1.0)),
        local=draw(st.floats(0.0, 1e7)),
        conflicts=4e6 * bank,
        clock=1.98e9 * draw(st.floats(0.5, 1.0)),
    )


@settings(max_examples=20)
@given(launches(), launches())
def test_shares_lie_within_0_and_1_both_directions_agree_and_an_equal_launch_has_no_reasons(before, after):
    there, back = explain(before.profile(), after.profile()), explain(after.profile(), before.profile())
    assert explain(before.profile(), before.profile()).reasons == ()
    assert all(0 < reason.share <= 1 and isfinite(reason.share) for reason in there.reasons)
    assert [(each.kind, each.share) for each in there.reasons] == [(each.kind, each.share) for each in back.reasons]


@settings(max_examples=20)
@given(launches(), launches(), st.floats(0.1, 10.0))
def test_a_device_that_is_faster_throughout_changes_no_reason(before, after, scale):
    def scaled(launch: Launch) -> Profile:
        counted = launch.profile().metrics
        times = {"duration_s": counted["duration_s"] / scale, "sm_clock_hz": counted["sm_clock_hz"] * scale}
        return Profile("made", {**counted, **times})

    plain, faster = explain(before.profile(), after.profile()), explain(scaled(before), scaled(after))
    assert {each.kind: each.share for each in plain.reasons} == pytest.approx(
        {each.kind: each.share for each in faster.reasons}
    )


@settings(max_examples=20)
@given(launches(), launches(), st.sets(st.sampled_from(sorted(BASE.profile().metrics)), max_size=12))
def test_missing_metrics_still_give_an_explanation(before, after, missing):
    changes = dict.fromkeys(missing - {"duration_s"})
    explanation = explain(replace(before, changes=changes).profile(), replace(after, changes=changes).profile())
    assert explanation.sentence
    assert all(0 < reason.share <= 1 for reason in explanation.reasons)
