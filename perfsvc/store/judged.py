"""What the store remembers of judging: verdicts, baselines, findings."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Engine

from perfsvc.model import Finding, Judgement, Series, Suspect
from perfsvc.store import baselines, findings, reading, writing
from perfsvc.store.engine import transaction
from perfsvc.store.rows import Pin


class Judged:
    """The part of ``Store`` that is about verdicts; each method is one transaction."""

    _engine: Engine

    # --- verdicts and baselines ------------------------------------------------------------------------------------

    def put_verdicts(self, run: int, judgements: Sequence[Judgement]) -> None:
        """Stores what was judged of a run, in place of what was stored of it before."""
        with transaction(self._engine, writes=True) as connection:
            writing.put_verdicts(connection, run, judgements)

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

        A series that has neither borrows: in its place stand the same series on the other boards of its model, each
        with that board's pin or last accepted level. A series that finds none to borrow is absent.
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

    # --- findings --------------------------------------------------------------------------------------------------

    def raise_finding(self, run: int, suspects: Sequence[Suspect], evidence: str) -> list[int]:
        """Raises a finding of a run and returns its number, or those of the findings that know of it already.

        A series that is in a finding which stands (open, acknowledged, ignored) goes there, and so does one that
        recovered from a finding and lost again against the very same baseline: that finding is open again. What is left
        is one new finding. So a series has never two findings of one direction that stand.

        Args:
            run: the run that shows it.
            suspects: one at least; they share device, shift, direction and the judgement's cause.
            evidence: why, in a sentence.
        """
        with transaction(self._engine, writes=True) as connection:
            return findings.raise_finding(connection, run, suspects, evidence)

    def recover(self, run: int, back: Iterable[tuple[int, Series]]) -> list[int]:
        """Notes of findings (by their numbers) which series a run shows at their old levels again.

        Returns the numbers of those that are resolved by it: that stood, and of which no series is left.
        """
        with transaction(self._engine, writes=True) as connection:
            return findings.recover(connection, run, back)

    def accept_finding(self, number: int, *, reason: str, by: str = "") -> Finding:
        """Makes the newest run of each series of a finding its level, but for those that recovered.

        Raises:
            NotMeasuredError: there is no such finding.
            UsageError: it is accepted or resolved already.
        """
        with transaction(self._engine, writes=True) as connection:
            return findings.accept(connection, number, reason=reason, by=by)

    def findings(self, *, every: bool = False) -> list[Finding]:
        """The findings that stand (open, acknowledged, ignored), or every one, newest first."""
        with transaction(self._engine, writes=False) as connection:
            return findings.findings(connection) if every else findings.standing(connection)
