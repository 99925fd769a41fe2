"""What is wrong with a benchmark file, before it is known which file that is."""

from pathlib import Path

from perfsvc.errors import SuiteError


class Problem(Exception):  # noqa: N818 - raised and collected alike; it becomes a SuiteError at the room's door
    """Something wrong at a line of a benchmark file.

    Args:
        what: what is wrong, as a sentence without its full stop.
        line: the line, 1-based; 0 where no single line is at fault.
        cure: what to change.
    """

    def __init__(self, what: str, line: int, cure: str) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.cure = cure

    def at(self, path: Path) -> SuiteError:
        """The problem as the error that perfsvc reports."""
        return SuiteError(self.what, path=str(path), line=self.line, cure=self.cure)
