"""All tales, and the chapters of each."""

from tests.golden import nights, story
from tests.golden.place import Tale

TALES: dict[str, tuple[Tale, tuple[str, ...]]] = {
    "suite": (
        story.of_a_suite,
        (
            *("first-runs", "regression", "faults", "rename", "exclusion", "findings"),
            *("compare", "report", "frames", "dashboard", "server", "database"),
        ),
    ),
    "imports": (story.of_imports, ("imports",)),
    "bisect": (story.of_a_search, ("bisect",)),
    "check": (story.of_a_check, ("check",)),
    "cpu": (story.of_the_cpu, ("cpu",)),
    "nightly": (story.of_three_nights, ("nightly",)),
    "nights": (nights.of_thirty_nights, ("nights",)),
}
"""By name: how to tell a tale, and its chapters."""
