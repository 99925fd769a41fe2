"""The plan of a simulated year."""

from simulated.planted import Commit, Plan, drift, driver, improvement, rebuilt, slow_gpu, spike, step

NIGHTS = 365
BENCHMARKS, VARIANTS = 10, 10
LEAST = 75
"""The fewest nights in which each planted thing still has a night of its own and the nights around it that it needs."""
DRIFT_COMMITS = 12
SMALL_STEP = 1.012


def a_year(nights: int = NIGHTS) -> Plan:
    """Return the plan of a year, or of fewer nights (at least ``LEAST``) with everything closer together."""

    def at(night: int) -> int:
        return max(2, round(night * nights / NIGHTS))

    drifting = [at(120) + number for number in range(DRIFT_COMMITS)]
    late = [Commit(at(300), "b6/second.cu", "b6/v[5-7]", 1.03), Commit(at(300), "b7/first.cu", "b7/v0", 1.2)]
    planted = (
        rebuilt("a commit without speed", at(30), "b0/second.cu", "b0/v[5-9]"),
        step("a step", [Commit(at(60), "b1/first.cu", "b1/v[0-4]", 1.05)], back=at(75)),
        step("a small step", [Commit(at(100), "b2/first.cu", "b2/v[0-4]", SMALL_STEP)], delay=6, accepted=at(100) + 8),
        spike("a spike", at(110), "b3/*", 1.1),
        drift(
            "a drift", drifting, Commit(at(120), "b4/second.cu", "b4/v[5-9]", 1.003), latest=at(190), accepted=at(188)
        ),
        driver("a driver", at(190), "590.12", 1.04, accepted=at(195)),
        improvement("an improvement", Commit(at(220), "b5/first.cu", "b5/v[0-4]", 0.94)),
        slow_gpu("a slow GPU", at(250), 5, 1.08),
        step("a late step", late, accepted=at(310)),
    )
    return Plan(nights, BENCHMARKS, VARIANTS, planted)
