"""Nights that notify people of their failures and findings, for tests of messages."""

from datetime import UTC, datetime, timedelta

from perfsvc.config import Settings
from perfsvc.model import (
    Case,
    Cause,
    ChangeKind,
    DeviceInfo,
    Direction,
    Environment,
    Judgement,
    Measurement,
    Provenance,
    RootCause,
    Series,
    Status,
    Suspect,
    Verdict,
    Work,
)
from perfsvc.notify.fake import FakeNotifier
from perfsvc.service.findings.update import update_findings
from perfsvc.service.notify.notify import notify
from perfsvc.store import MeasurementEntry, RunState, StageRow, StageState

STARTED = datetime(2026, 1, 1, 2, tzinfo=UTC)
TARGETS = {"team": "TEAM_URL", "me": "MY_URL"}
GPU = DeviceInfo("cuda", "cuda:0", "GPU-1", "NVIDIA H100", "sm_90")
EVERY = [Series(Case("scale", variant, (("n", 100),)), GPU.uuid, GPU.model) for variant in ("alpha", "beta")]
SERIES = EVERY[1]
ADDRESSES = {"TEAM_URL": "fake://team", "MY_URL": "fake://me"}
SENT = "sent to me, team"
WEEK = timedelta(days=7)


def cause(judged):
    return RootCause("", "it is slower", (Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER),))


class Nights:
    """Nights whose only news are failed stages, unless they measure."""

    def __init__(self, store):
        self.store, self.reported, self.sleeps = store, [], []

    def begin(self, failed="the disk is full", *, day=0, host="host", stages=True):
        """Begin a night, with a stage; it has failed if there is a message of the failure."""
        night = self.store.nights.begin(
            host=host, started=STARTED + timedelta(days=day), suite="kernels", command_line="", settings={}
        )
        state = StageState.FAILED if failed else StageState.DONE
        if stages:
            self.store.nights.put_stage(night, StageRow("page", 10, state, STARTED, 1.0, failed, ""))
        return night

    def end(self, night):
        """End a night that has notified people."""
        self.store.nights.put_stage(night, StageRow("notify", 11, StageState.DONE, datetime.now(UTC), 1.0, "", ""))
        self.store.nights.end(night, RunState.FINISHED, 0)

    def kill(self, night, stage=None):
        """End a night as if it was killed, perhaps at a stage."""
        if stage is not None:
            self.store.nights.put_stage(night, StageRow(*stage, StageState.RUNNING, STARTED))
        self.store.nights.end(night, RunState.INTERRUPTED, None)

    def outcomes(self, *days, failed="", host="host"):
        """Let nights of these days notify two targets; return the outcome of each."""
        outcomes = []
        for day in days:
            night = self.begin(failed, day=day, host=host)
            outcomes.append(self.notify(night, FakeNotifier()))
            self.end(night)
        return outcomes

    def bodies(self, *days, failed="", then=None):
        """Let nights of these days notify one target; return the text of each message, "" if there is none.

        ``then`` is called with each night after its end.
        """
        bodies = []
        for day in days:
            night, notifier = self.begin(failed, day=day), FakeNotifier()
            self.notify(night, notifier, {"me": "MY_URL"})
            self.end(night)
            if then:
                then(night)
            (body,) = [message.body for _, message in notifier.sent] or [""]
            bodies.append(body)
        return bodies

    def measure(self, night, verdict, *, finding=False, series=SERIES):
        """Store a run of a night with a verdict on one case, and with a finding if wanted."""
        run = self.store.runs.begin(Provenance(started=STARTED, command_line="", suite="kernels"), night=night)
        self.store.devices.put(GPU)
        result = Measurement(series.case, GPU.uuid, 0, Status.FAILED, reason="it fails")
        environment = Environment("580.1", "nvcc 13.0", 700.0)
        self.store.measurements.put(run, [MeasurementEntry(result, environment, Work())])
        is_broken = verdict is Verdict.BROKEN
        judged = Judgement(
            series, verdict, *(() if is_broken else ("", 1.1)), cause=None if is_broken else Cause.KERNEL
        )
        self.store.verdicts.put(run, [judged])
        if finding:
            self.store.findings.update(run, [], [cause(judged)])
        self.store.runs.end(run, RunState.FINISHED)
        if is_broken:
            update_findings(self.store, run)

    def notify(self, night, notifier, targets=TARGETS, *, addresses=ADDRESSES, now=None, **settings):
        settings = Settings(notify={"targets": targets, **settings})
        fakes = {"environment": addresses, "notifier": lambda: notifier, "sleep": self.sleeps.append}
        return notify(self.store, night, settings, self.reported.append, now=now, **fakes)


class Weeks(Nights):
    """A night a day, whose run begins at its time; some of them raise a finding."""

    def __init__(self, store):
        super().__init__(store)
        self.notifier = FakeNotifier()

    def night(self, day, *, slow=(), suite="kernels", fails=False, **notify_settings):
        """Store a night, and return the title and the target of each message that it sends."""
        now = STARTED + timedelta(days=day)
        number = self.store.nights.begin(host="host", started=now, suite=suite, command_line="", settings={})
        run = self.store.runs.begin(Provenance(started=now, command_line="", suite=suite), night=number)
        self.store.devices.put(GPU)
        self.store.verdicts.put(run, [Judgement(series, Verdict.UNCHANGED, ratio=1.0) for series in EVERY])
        causes = [cause(Judgement(series, Verdict.REGRESSION, ratio=1.1, cause=Cause.KERNEL)) for series in slow]
        self.store.findings.update(run, [], causes, now=now)
        self.store.runs.end(run, RunState.FINISHED)
        state = StageState.FAILED if fails else StageState.DONE
        self.store.nights.put_stage(number, StageRow("page", 10, state, now, 1.0, "the disk is full"))
        before = len(self.notifier.sent)
        # The message is a little earlier than a week after that of a night which took longer.
        moment = now + timedelta(minutes=60 - day)
        self.notify(number, self.notifier, now=moment, **notify_settings)
        self.store.nights.put_stage(number, StageRow("notify", 11, StageState.DONE, moment, 0.0, ""))
        self.store.nights.end(number, RunState.FAILED if fails else RunState.FINISHED, 0)
        return sorted((address.removeprefix("fake://"), sent.title) for address, sent in self.notifier.sent[before:])

    def days(self, days, **settings):
        """The days of some nights that send anything, with the titles that the team gets."""
        sent = {day: self.night(day, **settings) for day in days}
        return {day: dict(titles)["team"] for day, titles in sent.items() if titles}

    def body(self):
        """The body of the newest message."""
        return self.notifier.sent[-1][1].body
