"""Working off the stages of a night: whatever ends one of them, the others are done, and all of it is stored."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from perfsvc.errors import PerfsvcError
from perfsvc.service.nightly.tonight import Said, ToldToStopError, Tonight
from perfsvc.store import StageRow, StageState, State

FAULT = 5
"""The exit code of what nobody foresaw."""
GRAVEST = (5, 2, 4, 1)
"""Exit codes, what has to be cured first before others: a night with holes has not been judged in full."""
CORRECTS = {"confirm": "judge"}
"""Stages whose exit code, once they are done, stands for that of another."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of every night; it is skipped where the one that it needs is not done."""

    name: str
    do: Callable[[Tonight], Said]
    needs: str = ""


def work_off(stages: Sequence[Stage], tonight: Tonight) -> None:
    """Does the stages that are not done yet, until the end or until the night is told to stop."""
    known = {stage.name: stage for stage in tonight.row.stages if stage.state is not StageState.RUNNING}
    for place, stage in enumerate(stages):
        if stage.name in known:
            continue
        try:
            known[stage.name] = _done(stage, place, tonight, known)
        except ToldToStopError:
            tonight.log.say(
                f"night {tonight.number} was told to stop at its stage {stage.name}",
                cure="go on with it: perfsvc nightly --resume",
            )
            tonight.store.end_night(tonight.number, State.INTERRUPTED, None)
            return
    failed = any(stage.state is StageState.FAILED for stage in known.values())
    tonight.store.end_night(tonight.number, State.FAILED if failed else State.FINISHED, _exit_code(known))


def _done(stage: Stage, place: int, tonight: Tonight, known: Mapping[str, StageRow]) -> StageRow:
    """Does one stage and stores what came of it."""
    if tonight.stopping():
        raise ToldToStopError
    row = StageRow(stage.name, place, StageState.RUNNING, datetime.now(UTC))
    if stage.needs and known[stage.needs].state is not StageState.DONE:
        row = replace(row, state=StageState.SKIPPED, wall_s=0.0, said=f"the stage {stage.needs} was not done")
    else:
        tonight.store.put_stage(tonight.number, row)
        tonight.log.bind(stage=stage.name)
        began = time.monotonic()
        row = replace(_outcome(stage, tonight, row), wall_s=time.monotonic() - began)
    tonight.store.put_stage(tonight.number, row)
    if row.state is not StageState.FAILED:
        tonight.log.say(f"{row.name}: {row.said}", state=row.state, wall_s=row.wall_s)
    return row


def _outcome(stage: Stage, tonight: Tonight, row: StageRow) -> StageRow:
    """What a stage says; an error costs no other stage."""
    try:
        said = stage.do(tonight)
    except PerfsvcError as error:
        tonight.log.fail(error)
        return replace(row, state=StageState.FAILED, said=error.what, cure=error.cure, exit_code=error.exit_code)
    except OSError as error:
        tonight.log.fail(error)
        what = f"{error.filename or stage.name}: {error.strerror or error}"
        return replace(row, state=StageState.FAILED, said=what, cure="make room, or let it be written", exit_code=FAULT)
    except ToldToStopError:
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours in one stage must not cost the night the others
        tonight.log.fail(error)
        what, cure = f"{type(error).__name__}: {error}", f"report it, with {tonight.log_file}"
        return replace(row, state=StageState.FAILED, said=what, cure=cure, exit_code=FAULT)
    state = StageState.SKIPPED if said.skipped else StageState.DONE
    return replace(row, state=state, said=said.text, exit_code=said.exit_code)


def _exit_code(known: Mapping[str, StageRow]) -> int:
    """The night's exit code, by those of its stages."""
    corrected = {other for stage, other in CORRECTS.items() if known[stage].state is StageState.DONE}
    codes = {stage.exit_code for stage in known.values() if stage.name not in corrected}
    return next((code for code in GRAVEST if code in codes), 0)
