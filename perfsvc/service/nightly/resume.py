"""Which night is done: a new one, or the one that was stopped before its end."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from perfsvc.errors import UsageError
from perfsvc.service.nightly.request import NightRequest, placed, restored
from perfsvc.service.nightly.snapshot import refuse_changed
from perfsvc.store import NightRow, StageState, Store

MEASURES = "run"
"""The last stage that needs the suite as it was."""


def begin(store: Store, host: str, request: NightRequest, say: Callable[[str], object]) -> NightRow:
    """Begins a night; one that was stopped and that nobody went on with stays interrupted, and that is said."""
    left = store.unfinished_night(host)
    if left:
        say(f"night {left.id} was stopped after {last(left)}, and nobody went on with it: it stays interrupted")
    settings = placed(request.settings)
    number = store.begin_night(
        host=host,
        started=datetime.now(UTC),
        suite=str(settings.suite),
        command_line=request.command_line,
        settings=settings.public(),
    )
    return store.night(number)


def go_on(store: Store, host: str, request: NightRequest) -> NightRow:
    """Goes on with the newest night of this host.

    Raises:
        UsageError: it has ended by itself, there is none, its suite is another one by now than it has measured, or
            another perfsvc stored its settings.
    """
    night = store.unfinished_night(host)
    if night is None:
        newest = next((one.id for one in store.nights_held() if one.host == host), None)
        what = f"night {newest} is the newest of this host, and was not stopped before its end"
        what = "no night was begun on this host" if newest is None else what
        raise UsageError(f"{what}: there is none to go on with", cure="begin one: perfsvc nightly")
    if MEASURES not in ended(night):
        refuse_changed(night, Path(night.suite))
    restored(night.settings, request.settings.database)  # what refuses them leaves the night as it is
    store.resume_night(night.id)
    return night


def last(night: NightRow) -> str:
    """How far a night came."""
    done = [stage.name for stage in night.stages if stage.name in ended(night)]
    return f"its stage {done[-1]}" if done else "its first moment"


def ended(night: NightRow) -> set[str]:
    """The stages of a night that need not be done any more."""
    return {stage.name for stage in night.stages if stage.state is not StageState.RUNNING}
