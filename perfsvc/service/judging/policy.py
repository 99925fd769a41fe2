"""What the settings lay down for judging: thresholds by case and metric, and which run is compared with."""

from collections.abc import Collection
from pathlib import Path

from perfsvc.config import Settings
from perfsvc.errors import UsageError
from perfsvc.judge import Asked, Rule, Thresholds, lasting
from perfsvc.model import Case
from perfsvc.service.revisions import BASELINE, run_of
from perfsvc.store import Store
from perfsvc.suite.selection import parse


def thresholds(settings: Settings, asked: float | None = None) -> Thresholds:
    """The rules of the settings, and before them what a command is asked for."""
    rules = (Rule(parse(rule.cases).takes, rule.metric, rule.change) for rule in settings.thresholds)
    return Thresholds(tuple(rules), asked)


def idle(asked: Asked, cases: Collection[Case]) -> list[str]:
    """The rules, as ``config show`` calls them, that take none of a suite's cases: slips of the finger."""
    rules = enumerate(lasting(asked).rules, start=1)
    return [f"thresholds[{number}]" for number, rule in rules if not any(map(rule.takes, cases))]


def against(store: Store, text: str, run: int, folder: Path) -> int | None:
    """The run that another is compared with; None where each series has its own baseline.

    Args:
        store: where the runs are.
        text: ``@baseline``, or what a run is called (``perfsvc.service.revisions``).
        run: the one to be judged.
        folder: where git revisions are looked up.

    Raises:
        NotMeasuredError: there is no such run.
        UsageError: the words are not understood, or name the run itself: its label, or its commit.
    """
    if text == BASELINE:
        return None
    found = run_of(text, store, folder)
    if found == run:
        cure = "name an earlier run in baseline.against: by its number, or by a label that no other run has"
        raise UsageError(f"run {run} is to be compared with {text!r}, which is itself", cure=cure)
    return found
