"""Telling people of a night."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfsvc.config import Settings
from perfsvc.errors import NotSentError
from perfsvc.notify.notifier import AppriseNotifier, Notifier
from perfsvc.service.notify import words
from perfsvc.service.notify.news import news_of
from perfsvc.store import DeliveryRow, Store

PAUSES_S = (0.0, 2.0, 8.0)
"""Seconds to wait before each attempt of a night at what may yet arrive."""


@dataclass(frozen=True, slots=True)
class Means:
    """What messages are sent with.

    Attributes:
        environment: the variables that hold the addresses of targets, by their names.
        notifier: makes what sends; asked only where there is anything to send.
        rest: waits so many seconds.
    """

    environment: Mapping[str, str]
    notifier: Callable[[], Notifier] = AppriseNotifier
    rest: Callable[[float], None] = time.sleep


def notify(
    store: Store, night: int, settings: Settings, say: Callable[[str], object], means: Means | None = None
) -> str:
    """Tells people of what is new of a night, and of what could not be delivered before; returns what was done.

    The message is stored before it is sent, so that doing this again, after whatever ended it, sends the same message
    with the same key, and only where it has not arrived. A night without news has no message.

    Args:
        store: holds the night and all that came of it.
        night: its number.
        settings: whom to tell, of what, and where the site is.
        say: is told of each target that does not take its message.
        means: what to send with; by default Apprise, to the addresses in this process's environment.

    Raises:
        NotSentError: a target did not take its message; it is kept, and sent again with the next night.
        MissingPackageError: there is something to send, and Apprise is not installed.
    """
    targets = settings.notify.targets
    if not targets:
        return "nobody is told: notify.targets names no one"
    news = news_of(store, night, settings.notify.about)
    if news:
        body = words.body(news, settings.notify.page)
        store.messages.put(night, title=words.title(news), body=body, targets=list(targets))
    left = [one for one in store.messages.undelivered(night) if one.target in targets]
    if not left:
        return "nothing new"
    failed = _Delivering(store, targets, say, means or Means(os.environ)).deliver(left)
    if failed:
        raise _not_sent(failed, targets)
    return f"told {', '.join(dict.fromkeys(one.target for one in left))}"


class _Delivering:
    """Sends messages to targets, each target's oldest first."""

    def __init__(self, store: Store, targets: Mapping[str, str], say: Callable[[str], object], means: Means) -> None:
        self._store, self._targets, self._say, self._means = store, targets, say, means
        self._notifier = means.notifier()
        self._errors: dict[tuple[str, int], NotSentError] = {}

    def deliver(self, left: Sequence[DeliveryRow]) -> dict[str, NotSentError]:
        """Sends what is left, again where that may help; returns the targets that something is left of, and why."""
        waiting: Mapping[str, Sequence[DeliveryRow]] = {
            target: [one for one in left if one.target == target] for target in self._targets
        }
        for pause in PAUSES_S:
            if not any(waiting.values()):
                break
            self._means.rest(pause)
            waiting = {target: self._send(rows) for target, rows in waiting.items()}
        return {target: error for (target, _), error in self._errors.items()}

    def _send(self, rows: Sequence[DeliveryRow]) -> Sequence[DeliveryRow]:
        """Sends a target its messages, and returns those to send again soon: all from the first that may yet arrive.

        What a target refuses for good does not keep the later ones from it.
        """
        for place, row in enumerate(rows):
            error = self._attempt(row)
            self._store.messages.put_attempt(row.message.key, row.target, error=error.what if error else "")
            self._errors.pop((row.target, row.night), None)
            if error:
                self._errors[row.target, row.night] = error
                self._say(f"{row.target} was not told of night {row.night}: {error.what}")
                if error.again:
                    return rows[place:]
        return ()

    def _attempt(self, row: DeliveryRow) -> NotSentError | None:
        variable = self._targets[row.target]
        address = self._means.environment.get(variable, "").strip()
        if not address:
            return NotSentError(
                f"the environment variable {variable} is not set",
                cure=f"set {variable} where nights begin",
                again=False,
            )
        try:
            self._notifier.send(row.message, address)
        except NotSentError as error:
            return error
        return None


def _not_sent(failed: Mapping[str, NotSentError], targets: Mapping[str, str]) -> NotSentError:
    """What to say of targets that something is left of."""
    told = "; ".join(f"{target} was not told: {error.what}" for target, error in failed.items())
    target, error = next(iter(failed.items()))
    cure = error.cure or f'try the address: apprise -vv -b test "${targets[target]}"'
    return NotSentError(told, cure=f"{cure}; the next night sends it again", again=True)
