"""Send the message of a night to every target, until it has arrived."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from uuid import uuid4

from perfsvc.config import Settings
from perfsvc.config.settings import NotifySettings
from perfsvc.config.value_types import NEVER
from perfsvc.errors import ConfigError, MissingPackageError, NotSentError, PerfsvcError
from perfsvc.model import Message, MessageText
from perfsvc.notify.notifier import AppriseNotifier, Notifier
from perfsvc.service.notify import weekly, words
from perfsvc.service.notify.background import Backgrounds
from perfsvc.service.notify.news import News, hosts_news, missing_cases, news_of
from perfsvc.service.notify.routes import news_by_target
from perfsvc.store import DeliveryRow, NightRow, StageRow, StageState, Store
from perfsvc.text import inert

PAUSES_S = (0.0, 2.0, 8.0)
"""Seconds to wait before each of a night's attempts to send its messages."""


def notify(
    store: Store,
    night: int,
    settings: Settings,
    report: Callable[[str], object],
    *,
    environment: Mapping[str, str] | None = None,
    notifier: Callable[[], Notifier] = AppriseNotifier,
    sleep: Callable[[float], None] = time.sleep,
    now: datetime | None = None,
) -> str:
    """Send what is new in a night, and earlier messages that have not arrived; return a sentence on what was sent.

    Each target receives one message with the news that its routes take, or no message if its routes take nothing. The
    messages are stored before they are sent. A repeated call, after any interruption, therefore sends the same messages
    with the same keys, and only to targets that have not received them.

    Args:
        store: the database, with the night and its results.
        night: the night's number.
        settings: whom to notify, about what, and where the site is.
        report: receives a sentence about each target that does not accept its message.
        environment: the environment variables with the addresses of targets; None for the variables of this process.
        notifier: makes the notifier; called only if there is something to send.
        sleep: waits, in seconds.
        now: the time, for reminders and digests; by default the current time.

    Raises:
        NotSentError: a target did not accept its message; the next night sends the message again.
        MissingPackageError: there is something to send, and Apprise is not installed.
    """
    targets = settings.notify.targets
    if not targets:
        return "no messages are sent: notify.targets is empty"
    _store_messages(store, store.nights.get(night), settings.notify, now or datetime.now(UTC))
    deliveries = [delivery for delivery in store.messages.undelivered(night) if delivery.target in targets]
    if not deliveries:
        return "nothing new"
    addresses = _addresses(targets, environment)
    return _deliver(deliveries, _Sender(store, notifier(), targets, addresses, report), sleep)


def notify_of_hosts(
    store: Store,
    host: str,
    settings: Settings,
    report: Callable[[str], object],
    *,
    environment: Mapping[str, str] | None = None,
    notifier: Callable[[], Notifier] = AppriseNotifier,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Send messages about hosts that ``perfsvc watchdog`` found overdue or back; return a sentence on what was sent.

    Args:
        store: the database, with the findings as the watchdog left them.
        host: this machine, on which the watchdog runs.
        settings: whom to notify, about what, and where the site is.
        report: receives a sentence about each target that does not accept its message.
        environment: the environment variables with the addresses of targets; None for the variables of this process.
        notifier: makes the notifier; called only if there is something to send.
        sleep: waits, in seconds.

    Raises:
        NotSentError: a target did not accept its message; the next watchdog sends the message again.
        MissingPackageError: there is something to send, and Apprise is not installed.
    """
    targets = settings.notify.targets
    if not targets:
        return "no messages are sent: notify.targets is empty"
    news = hosts_news(store, settings.notify.about)
    texts = {}
    for target, own in news_by_target(targets, settings.notify.route, news).items():
        body = words.body(own, settings.notify.page, begin=f"perfsvc watchdog on {host}")
        texts[target] = MessageText(inert(words.title(own)), inert(body))
    if texts and news.event is not None:
        store.messages.put_of_watchdog(news.event, texts)
    deliveries = [delivery for delivery in store.messages.undelivered_of_watchdog() if delivery.target in targets]
    if not deliveries:
        return f"nothing new for {', '.join(targets)}"
    addresses = _addresses(targets, environment)
    return _deliver(deliveries, _Sender(store, notifier(), targets, addresses, report), sleep)


def notify_of_failure(
    error: PerfsvcError,
    begin: str,
    settings: NotifySettings,
    known: Mapping[str, str],
    report: Callable[[str], object],
    *,
    stage: str = "begin",
    notifier: Callable[[], Notifier] = AppriseNotifier,
) -> None:
    """Send an error with which a command ends before there is a database, or settings, to send messages with.

    Args:
        error: the error.
        begin: the first line of the message.
        settings: whom to notify.
        known: whom the last night notified; they receive the message if the settings name no target.
        report: receives a sentence about each target that does not accept its message.
        stage: the stage of a night that the message names as failed.
        notifier: makes the notifier; called only if there is something to send.
    """
    targets = settings.targets or known
    what = f"{error.where}: {error.what}" if isinstance(error, ConfigError) else error.what
    failed = StageRow(stage, 0, StageState.FAILED, datetime.now(UTC), None, what, error.cure, exit_code=error.exit_code)
    news = News(None, stages=(failed,) if "failed" in settings.about else ())
    deliveries = []
    for target, own in news_by_target(targets, settings.route, news).items():
        body = words.body(own, settings.page, begin=begin)
        message = Message(f"perfsvc-{uuid4().hex}", inert(words.title(own)), inert(body))
        deliveries.append(DeliveryRow(message, None, target))
    try:
        if deliveries:
            _deliver(deliveries, _Sender(None, notifier(), targets, _addresses(targets, None), report), time.sleep)
    except (NotSentError, MissingPackageError) as unsent:
        report(f"warning: {unsent.what}")


def _addresses(targets: Mapping[str, str], environment: Mapping[str, str] | None) -> dict[str, str]:
    variables = os.environ if environment is None else environment
    return {target: variables.get(variable, "").strip() for target, variable in targets.items()}


def _deliver(deliveries: Sequence[DeliveryRow], sender: "_Sender", sleep: Callable[[float], None]) -> str:
    """Send messages in several attempts, and return a sentence on the result.

    Raises ``NotSentError`` if a message did not arrive.
    """
    waiting = {target: [delivery for delivery in deliveries if delivery.target == target] for target in sender.targets}
    for pause in PAUSES_S:
        if any(waiting.values()):
            sleep(pause)
            waiting = {target: sender.send(target, unsent) for target, unsent in waiting.items()}
    if sender.errors:
        raise sender.not_sent("the next watchdog" if deliveries[0].night is None else "the next night")
    return f"sent to {', '.join(dict.fromkeys(delivery.target for delivery in deliveries))}"


def _store_messages(store: Store, night: NightRow, settings: NotifySettings, now: datetime) -> None:
    """Store the message of each target that has news, or that is due for a digest."""
    news = _news(store, night, settings, now)
    backgrounds = cache(Backgrounds(store, night).of)
    texts: dict[str, MessageText] = {}
    reminded: set[int] = set()
    for target, own in news_by_target(settings.targets, settings.route, news).items():
        body = words.body(own, settings.page, backgrounds)
        texts[target] = MessageText(inert(words.title(own)), inert(body))
        reminded.update(reminder.finding.id for reminder in own.reminders)
    if settings.digest != NEVER:
        quiet = weekly.quiet_targets(store, night, settings.targets.keys() - texts.keys(), now)
        for target, since in quiet.items():
            digest = weekly.digest(store, night, since)
            texts[target] = MessageText(
                inert(words.digest_title(digest)), inert(words.digest_body(night, digest, settings.page))
            )
    if texts:
        store.messages.put(night.id, texts, event=news.event, reminded=reminded, now=now)


def _news(store: Store, night: NightRow, settings: NotifySettings, now: datetime) -> News:
    """Return what is new in a night, and the reminders that are due."""
    news = news_of(store, night.id, settings.about)
    if "new" in settings.about and not isinstance(settings.remind, str):
        period = timedelta(seconds=settings.remind)
        news = replace(news, reminders=weekly.reminders(store, night, period, now))
    return replace(news, missing=missing_cases(store)) if settings.route else news


class _Sender:
    """Sends messages to targets, and stores each attempt if there is a store.

    Attributes:
        targets: the targets of the settings, with the variables that hold their addresses.
        errors: the last error of each delivery that has not arrived, by target and key.
    """

    def __init__(
        self,
        store: Store | None,
        notifier: Notifier,
        targets: Mapping[str, str],
        addresses: Mapping[str, str],
        report: Callable[[str], object],
    ) -> None:
        self._store, self._notifier, self._report = store, notifier, report
        self.targets, self._addresses = targets, addresses
        self.errors: dict[tuple[str, str], NotSentError] = {}

    def send(self, target: str, deliveries: Sequence[DeliveryRow]) -> list[DeliveryRow]:
        """Send a target its messages, oldest first, and return the messages to try again soon.

        If a message may still be accepted later, the messages after it wait. Messages do not wait for a message that
        was refused for good.
        """
        for position, delivery in enumerate(deliveries):
            error = self._attempt(target, delivery)
            if self._store:
                self._store.messages.put_attempt(delivery.message.key, target, error=error.what if error else "")
            self.errors.pop((target, delivery.message.key), None)
            if error:
                self.errors[target, delivery.message.key] = error
                sender = (
                    f"night {delivery.night}" if delivery.night else "the watchdog" if self._store else "this failure"
                )
                self._report(f"{target} did not get the message of {sender}: {error.what}")
                if error.again:
                    return list(deliveries[position:])
        return []

    def _attempt(self, target: str, delivery: DeliveryRow) -> NotSentError | None:
        """Try once to send a message to a target; return the error, or None if the target accepted the message."""
        if not self._addresses[target]:
            variable = self.targets[target]
            what = f"the environment variable {variable} is not set"
            return NotSentError(what, cure=f"set {variable} where nights begin", again=False)
        try:
            self._notifier.send(delivery.message, self._addresses[target])
        except NotSentError as error:
            return error
        return None

    def not_sent(self, next_sender: str) -> NotSentError:
        """Return one error that names every target with a message that has not arrived."""
        by_target = {target: error for (target, _), error in self.errors.items()}
        what = "; ".join(f"{target} did not get its message: {error.what}" for target, error in by_target.items())
        target, error = next(iter(by_target.items()))
        cure = error.cure or f'try the address: apprise -vv -b test "${self.targets[target]}"'
        return NotSentError(what, cure=f"{cure}; {next_sender} sends it again", again=True)
