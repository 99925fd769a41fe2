"""What the store remembers of judging: verdicts and baselines."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Engine

from perfsvc.model import Judgement, Series
from perfsvc.store import baselines, reading, writing
from perfsvc.store.engine import transaction
from perfsvc.store.known import Known
from perfsvc.store.rows import Pin


class Judged:
    """The part of ``Store`` that is about verdicts; each method is one transaction."""

    _engine: Engine
    _known: Known

    # --- verdicts and baselines ------------------------------------------------------------------------------------

    def put_verdicts(self, run: int, judgements: Sequence[Judgement]) -> None:
        """Stores what was judged of a run, in place of what was stored of it before."""
        with transaction(self._engine, writes=True) as connection:
            writing.put_verdicts(connection, run, judgements, self._known)

    def verdicts(self, run: int) -> list[Judgement]:
        """What was judged of a run when it ended."""
        with transaction(self._engine, writes=False) as connection:
            return reading.verdicts(connection, run)

    def accepted_levels(self, series: Iterable[Series], before_run: int) -> dict[Series, int]:
        """The run that holds the last accepted level of each series, among earlier ones.

        That is the newest whose stored verdict was new, or an improvement that the code may have brought: of the same
        code a faster night is the environment's or noise. A regression moves nothing until a person accepts it, and
        unchanged or inconclusive keep the level: else a slow drift would walk it away. A run with uncommitted changes
        never accepts a level, whatever its verdict: an experiment that is thrown away would be a bar for every night
        after it.

        Where no verdict took a level, it is that of the earliest run with a right result: of those without uncommitted
        changes, or of all where each has some. A series that has neither is absent.

        A level that a person accepted with a finding counts like one that a verdict took. A segment has levels of its
        own: those of earlier ones count only for the night that begins it.
        """
        with transaction(self._engine, writes=False) as connection:
            return baselines.accepted_levels(connection, series, before_run)

    def baselines(self, series: Iterable[Series], before_run: int) -> dict[Series, int]:
        """The run that each series is compared with: its pin, else its last accepted level.

        A series that has neither borrows: in its place stand the same series on the other GPUs of its model, each
        with that GPU's pin or last accepted level. A series that finds none to borrow is absent.
        """
        with transaction(self._engine, writes=False) as connection:
            return baselines.baselines(connection, series, before_run)

    def pins(self) -> list[Pin]:
        """All pins, under the present names of their cases."""
        with transaction(self._engine, writes=False) as connection:
            return baselines.pins(connection)

    def pin(self, run: int, series: Iterable[Series], *, by: str = "", comment: str = "") -> None:
        """Makes a run the baseline of each series until it is unpinned or pinned anew.

        Raises ``NotMeasuredError``, and pins none, where the run holds no right result of one of them.
        """
        with transaction(self._engine, writes=True) as connection:
            baselines.pin(connection, run, series, by=by, comment=comment)

    def unpin(self, series: Iterable[Series] | None = None) -> int:
        """Takes the pins of some series, or all, away; returns how many there were."""
        with transaction(self._engine, writes=True) as connection:
            return baselines.unpin(connection, series)
