"""The reasons for a slower launch, one function each: how much of the time difference it explains, with evidence.

Each function is pure and independent of the others; ``explain`` ranks their results.
docs/explanation/why-it-is-slower.md describes which metrics show what, and why a share is computed as it is.
"""

from collections.abc import Callable, Mapping

from perfsvc.model import ReasonKind as Kind
from perfsvc.profile.pair import ProfilePair
from perfsvc.profile.reasons import computing, launch, memory
from perfsvc.profile.reasons.contribution import Contribution

REASONS: Mapping[Kind, Callable[[ProfilePair], Contribution | None]] = {
    Kind.TENSOR: computing.tensor,
    Kind.SPILLS: memory.spills,
    Kind.ATOMICS: memory.atomics,
    Kind.BANK_CONFLICTS: memory.bank_conflicts,
    Kind.UNCOALESCED: memory.uncoalesced,
    Kind.CONSTANTS: memory.constants,
    Kind.FP64: computing.double_precision,
    Kind.SPECIAL: computing.special_functions,
    Kind.DIVERGENCE: computing.divergence,
    Kind.SMALL_LAUNCH: launch.small_launch,
    Kind.OCCUPANCY: launch.occupancy,
    Kind.TAIL: launch.tail,
    Kind.BARRIERS: computing.barriers,
    Kind.TENSOR_WAIT: computing.tensor_wait,
    Kind.UNROLLING: computing.unrolling,
    Kind.INSTRUCTION_CACHE: computing.instruction_cache,
    Kind.HIT_RATE: memory.hit_rate,
    Kind.TRAFFIC: memory.traffic,
    Kind.INSTRUCTIONS: computing.instructions,
    Kind.CLOCKS: launch.clocks,
    Kind.STALLS: computing.stalls,
}
"""The function of each reason. If two reasons explain equal shares, the earlier one more likely caused the later."""
