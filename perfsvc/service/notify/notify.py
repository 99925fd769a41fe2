"""Send the message of a night to every target, until it has arrived."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from uuid import uuid4

from perfsvc.config import Settings
from perfsvc.config.settings import NotifySettings, RouteSettings
from perfsvc.config.value_types import NEVER, Severity
from perfsvc.errors import ConfigError, MissingPackageError, NotSentError, PerfsvcError
from perfsvc.model import Case, Direction, Finding, Message, MessageText, MovedSeries
from perfsvc.notify.notifier import AppriseNotifier, Notifier
from perfsvc.selection import Glob, parse
from perfsvc.service.notify import weekly, words
from perfsvc.service.notify.background import Backgrounds
from perfsvc.service.notify.news import News, hosts_news, missing_cases, news_of
from perfsvc.store import DeliveryRow, NightRow, StageRow, StageState, Store
from perfsvc.text import inert

ALARMS: Collection[Severity] = ("regression", "failed", "missing")
"""The kinds of news that have to reach a person."""


def news_by_target(targets: Iterable[str], routes: Sequence[RouteSettings], news: News) -> dict[str, News]:
    """Return the news that each target receives; a target that receives nothing is absent.

    If every target has a route, an alarm that no route takes goes to every target.
    """
    of_target = {target: [route for route in routes if target in route.targets] for target in targets}
    every = [route.model_copy(update={"at_least": None}) for route in routes] if all(of_target.values()) else []
    received = {target: news_for(own, news, every) for target, own in of_target.items()}
    return {target: own for target, own in received.items() if own}


def news_for(routes: Sequence[RouteSettings], news: News, every: Sequence[RouteSettings] = ()) -> News:
    """Return the part of the news that any of a target's routes takes; all news if the target has no route.

    A finding is taken as a whole. A failed stage concerns every case, so it goes to every route that takes failures.

    Args:
        routes: the routes of the target.
        news: what is new.
        every: the routes of all targets. The target also receives the alarms that no route takes at all, and the news
            that the findings of these alarms are resolved.
    """
    if not routes:
        return news

    def takes(finding: Finding, severity: Severity | None = None) -> bool:
        """Return whether the target receives a finding; without ``severity``, the finding's own severity counts."""
        alarm = _severity(finding)
        if any(_takes(route, finding, severity or alarm, news.missing) for route in routes):
            return True
        is_known = any(_takes(route, finding, alarm, news.missing) for route in every)
        return bool(every) and alarm in ALARMS and not is_known

    takes_stages = any("failed" in route.severity for route in routes)
    no_route_takes_stages = bool(every) and not any("failed" in route.severity for route in every)
    return replace(
        news,
        raised=tuple(filter(takes, news.raised)),
        reopened=tuple(filter(takes, news.reopened)),
        stepped=tuple(stepped for stepped in news.stepped if takes(replace(stepped.finding, moved=stepped.steps))),
        extended=tuple(extended for extended in news.extended if takes(extended.finding)),
        reminders=tuple(reminder for reminder in news.reminders if takes(reminder.finding)),
        returned=tuple(returned for returned in news.returned if takes(returned.finding, "resolved")),
        resolved=tuple(finding for finding in news.resolved if takes(finding, "resolved")),
        stages=news.stages if takes_stages or no_route_takes_stages else (),
    )


def _severity(finding: Finding) -> Severity:
    if not finding.moved:
        return "missing"
    if finding.direction is Direction.BROKEN:
        return "failed"
    return "regression" if finding.direction is Direction.SLOWER else "improvement"


def _takes(route: RouteSettings, finding: Finding, severity: Severity, missing: Mapping[int, Collection[Case]]) -> bool:
    """Return whether a route takes a finding: its severity and owner fit, and a case matches and moved far enough."""
    if severity not in route.severity or (route.owner and finding.owner != route.owner):
        return False
    glob = _glob(route)
    if finding.moved:
        moved_series = finding.standing or finding.moved
        return any(glob.matches(moved.series.case) and _is_large(moved, route.at_least) for moved in moved_series)
    cases = missing.get(finding.id, ())  # none for a GPU or a host, which concern every case
    return not cases or any(map(glob.matches, cases))


def _glob(route: RouteSettings) -> Glob:
    return parse(route.cases)


def _is_large(moved: MovedSeries, at_least: float | None) -> bool:
    """Return whether a series moved by a share or more; a change of unknown size counts as large."""
    return at_least is None or moved.ratio is None or abs(moved.ratio - 1) >= at_least


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
