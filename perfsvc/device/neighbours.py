"""Which other processes are at work on a GPU.

The driver often knows processes by other ids than they have in their container, so ours is not simply the one with
our id: it is the one that came when our context did.
"""

import os
from collections.abc import Callable


class Neighbours:
    """The processes on a GPU that are not this one.

    Where it cannot be told which one is ours, none is named: a batch that was rejected for our own work would be worse
    than a neighbour overlooked. For the same reason one has to be on the list of compute processes to be named:
    drivers count utilisation under ids that the list does not know, ours among them. Processes that only draw (a
    desktop) are not on that list.

    Args:
        listed: the compute processes that are on the GPU at this moment; None where nobody can tell.
        worked: those that worked since this was asked last; None where nobody can tell. Then every other process that
            is there counts as one at work.
    """

    def __init__(
        self, listed: Callable[[], frozenset[int] | None], worked: Callable[[], frozenset[int] | None]
    ) -> None:
        self._listed = listed
        self._worked = worked
        self._before = listed() or frozenset()
        self._ours: frozenset[int] = frozenset()
        self._seen: frozenset[int] = frozenset()
        self._unlisted: frozenset[int] = frozenset()

    def claim(self) -> None:
        """Learns which process is ours, now that its context exists.

        It is the one with our id if that is listed, else the one that was not there at first. Others that came in the
        same moment cannot be told from it. What anybody did until now is forgotten.
        """
        self._seen = self._listed() or frozenset()
        own = frozenset({os.getpid()})
        self._ours = own if own <= self._seen else self._seen - self._before
        self._worked()

    def at_work(self) -> tuple[int, ...]:
        """The ids, as the driver knows them, of the others that worked since this was asked last."""
        if not self._ours:
            return ()
        worked = self._worked()
        if worked is None:
            return tuple(sorted((self._listed() or frozenset()) - self._ours))
        if strange := worked - self._ours - self._seen - self._unlisted:
            self._seen |= self._listed() or frozenset()
            self._unlisted |= strange - self._seen
        return tuple(sorted((worked & self._seen) - self._ours))
