"""Reasons in what warps execute, and in what they wait for other than memory."""

from perfsvc.profile.metrics import STALLS
from perfsvc.profile.pair import COMPUTING, MEMORY, ProfilePair, clamp
from perfsvc.profile.reasons.contribution import (
    MIN_GROWTH,
    WARP,
    Contribution,
    bytes_text,
    count,
    grew,
    percent,
    rounded,
)

MIN_TENSOR = 0.01
"""The smallest share of the tensor cores' peak at which a kernel depends on them."""
MIN_BRANCHES = 0.25
"""The smallest growth of the branches, as a logarithm, by which a loop lost its unrolling."""
MIN_LOOPING = 0.01
"""Fewer additional branches than this share of all instructions are ignored."""
SAME_PAYLOAD = 0.1
"""Memory accesses and floating-point operations count as equal if their logarithms differ by less than this."""
SMALL_CODE = 16_384
"""Code of fewer bytes fits every instruction cache."""
PIPES = ("issue_throughput", "alu_throughput", "fma_throughput", "fp64_throughput", "xu_throughput")


def tensor(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by idle tensor cores: they are used less or not at all, and other pipes do their work."""
    throughput = pair.both("tensor_throughput")
    if throughput is None or throughput[0] < MIN_TENSOR:
        return None
    fast, slow = throughput
    lost = clamp(1 - slow * pair.durations_s[1] / (fast * pair.durations_s[0]))
    detail = f"tensor pipe busy {pair.change((fast, slow), percent)}"
    return Contribution(lost * pair.share_of_work, detail, ("tensor_throughput", "fma_throughput", "instructions"))


def double_precision(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by arithmetic in double precision, and by conversions to and from it."""
    return _by_class(pair, "fp64", "instructions in double precision", ("fp64_throughput",))


def special_functions(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by special functions, such as sines, exponentials and roots."""
    return _by_class(pair, "special", "special functions", ("xu_throughput",))


def _by_class(pair: ProfilePair, name: str, words: str, pipes: tuple[str, ...]) -> Contribution | None:
    """Explain a slowdown by more instructions of a class, for which warps wait.

    Args:
        pair: the two profiles.
        name: the class, as in the names of its metrics.
        words: the class in the sentence.
        pipes: the metrics of the pipes that execute the class.
    """
    counts = pair.both(f"{name}_instructions")
    if not grew(counts):
        return None
    assert counts is not None  # noqa: S101 - they grew
    share = max(pair.share_of_waiting(f"{name}_time"), pair.share_of_busy(pipes))
    evidence = (f"{name}_instructions", f"{name}_time", *pipes, "instructions")
    return Contribution(share, f"{pair.change(counts, count)} {words}", evidence)


def divergence(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by divergence: threads of a warp take different branches, which run one after the other."""
    threads = pair.both("threads_per_instruction")
    growth = min(-pair.growth("threads_per_instruction"), pair.growth("instructions"))
    if threads is None or growth < MIN_GROWTH:
        return None
    detail = f"{pair.change(threads, rounded)} of {WARP} threads take part in an instruction"
    evidence = ("threads_per_instruction", "divergent_branches", "instructions", "issue_throughput")
    return Contribution(min(pair.share_of_log(growth), _share_of_computing(pair)), detail, evidence)


def instructions(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by more instructions that keep pipes or schedulers busy, except those due to divergence."""
    counts = pair.both("instructions")
    growth = pair.growth("instructions") + min(pair.growth("threads_per_instruction"), 0.0)
    if counts is None or growth < MIN_GROWTH:
        return None
    detail = f"{pair.change(counts, count)} instructions"
    share = min(pair.share_of_log(growth), _share_of_computing(pair))
    return Contribution(share, detail, ("instructions", *PIPES))


def barriers(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by warps that wait for other warps at a barrier."""
    share = pair.stall_shares.get("barrier", 0.0)
    cycles = pair.both("stall_barrier_cycles")
    change = pair.change(cycles, _cycles) if cycles and cycles[1] > cycles[0] else ""
    if not change:
        return None
    detail = f"warps wait {change} cycles an instruction"
    executed = pair.both("barriers")
    if executed and (more := pair.change(executed, count)):
        detail += f", {more} barriers"
    return Contribution(share, detail, ("stall_barrier_cycles", "barriers", "threads_per_block"))


def tensor_wait(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by tensor cores that wait for their operands from shared memory."""
    times = pair.both("tensor_operands_time")
    change = pair.change(times, percent) if times and grew(times) else ""
    if not change:
        return None
    evidence = (
        "tensor_operands_time",
        "tensor_throughput",
        "shared_load_requests",
        "shared_load_wavefronts",
        "stall_short_scoreboard_cycles",
    )
    detail = f"tensor instructions wait for it {change} of the warps' time"
    return Contribution(pair.share_of_waiting("tensor_operands_time"), detail, evidence)


def unrolling(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by a loop that is no longer unrolled: more branches around the same work.

    Each pass then waits for the pass before, for a result or for a load.
    """
    branches, payload = pair.both("branches"), pair.both("payload_instructions")
    if branches is None or payload is None or min(payload) <= 0:
        return None
    if pair.growth("branches") < MIN_BRANCHES or abs(pair.growth("payload_instructions")) > SAME_PAYLOAD:
        return None
    code, instructions_of_slow = pair.both("code_bytes"), pair.slow.metrics.get("instructions") or 0.0
    if code is None or branches[1] - branches[0] < MIN_LOOPING * instructions_of_slow:
        return None
    if pair.growth("code_bytes") >= MIN_GROWTH:  # a loop that is no longer unrolled has less code
        return None
    share = clamp(pair.share_of_group(COMPUTING) + pair.share_of_group(MEMORY))
    evidence = (
        "branches",
        "payload_instructions",
        "code_bytes",
        "stall_wait_cycles",
        "stall_branch_resolving_cycles",
        "stall_long_scoreboard_cycles",
    )
    return Contribution(share, f"{pair.change(branches, count)} branches around the same work", evidence)


def instruction_cache(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by code that does not fit the instruction caches."""
    code = pair.both("code_bytes")
    if code is None or code[1] < SMALL_CODE or pair.growth("code_bytes") < MIN_GROWTH:
        return None
    detail = f"{pair.change(code, bytes_text)} of executed code"
    return Contribution(
        pair.stall_shares.get("no_instruction", 0.0),
        detail,
        ("code_bytes", "stall_no_instruction_cycles", "instructions"),
    )


def stalls(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by the stall on which warps spend the most additional cycles."""
    shares = {stall: share for stall, share in pair.stall_shares.items() if stall not in {"selected", "barrier"}}
    ranked = sorted(shares, key=lambda stall: -shares[stall])
    cycles = pair.both(f"stall_{ranked[0]}_cycles") if ranked else None
    change = pair.change(cycles, _cycles) if cycles and cycles[1] > cycles[0] else ""
    if not change:  # the stall is as long as before, and more instructions wait
        return None
    detail = f"{STALLS[ranked[0]]}, {change} cycles an instruction"
    return Contribution(shares[ranked[0]], detail, tuple(f"stall_{stall}_cycles" for stall in ranked[:3]))


def _share_of_computing(pair: ProfilePair) -> float:
    return max(pair.share_of_group(COMPUTING), pair.share_of_busy(PIPES))


def _cycles(number: float, further: int) -> str:
    return f"{number:.{1 + further}f}"
