"""Every setting, with its type, its default and its meaning; ``docs/reference/configuration.md`` lists them.

A ``ValueError`` of a type says what is wrong with a value and how to write it; the caller puts the key before it.
"""

import ipaddress
import math
import re
from collections.abc import Callable
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from perfsvc import units
from perfsvc.config.addresses import header, network, page, variable
from perfsvc.model import PARTS
from perfsvc.text import url_without_password, without_password

PREFIX = "PERFSVC_"
BETWEEN = "__"
BASELINE = "@baseline"

NEVER = "never"

LARGEST_CHANGE = 10
"""The largest threshold, a tenfold time: a larger one is a typing error."""


class NumberUnit(StrEnum):
    """What a number counts, so that it is written as people write it."""

    DURATION = "duration"
    SHARE = "share"


# --- types -----------------------------------------------------------------------------------------------------------


def has_password(url: str) -> bool:
    """Return whether a URL carries a password, also in the forms that databases accept beyond RFC 3986."""
    return url_without_password(url) != url


def _number(value: object, *, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no {unit}")  # noqa: TRY004 - pydantic catches ValueError only
    return float(value)


def _seconds(value: object, *, zero: bool) -> float:
    """Return the seconds of a duration such as ``1h30m`` or 90; raise ``ValueError`` for any other value.

    Args:
        value: the setting as the user wrote it.
        zero: whether 0 is allowed.
    """
    if isinstance(value, str) and not re.fullmatch(r"[+-]?\d+(?:\.\d+)?", value.strip(), re.ASCII):
        return units.parse_duration(value, zero=zero)
    seconds = _number(float(value) if isinstance(value, str) else value, unit="duration; write 90s, 20m or 1h30m")
    if not 0 <= seconds < math.inf or (seconds == 0 and not zero):
        raise ValueError(f"{value} is no possible duration; write 90s, 20m or 1h30m")
    return seconds


def _share(below: float, example: str) -> Callable[[object], float]:
    """Return a function that reads a share (``1%`` or 0.01) as a fraction below a limit; ``example`` is for errors."""

    def read(value: object) -> float:
        text = value if isinstance(value, str) else f"{_number(value, unit=f'share; write {example}'):.12g}"
        return units.parse_share(text, below=below, example=example)

    return read


def _written_share(fraction: float) -> float | str:
    """Return a share as JSON that ``_share`` reads again: from 1 on it has its unit."""
    return fraction if fraction < 1 else f"{100 * fraction:.12g}%"


def _seconds_or_never(value: object) -> object:
    """Return a duration in seconds, or ``never``; raise ``ValueError`` for anything else."""
    if value == NEVER:
        return value
    try:
        return _seconds(value, zero=False)
    except ValueError as error:
        raise ValueError(f"{error}, or {NEVER}") from None


def _words(value: object) -> object:
    """Return an array as a tuple; a single word counts as an array of one."""
    return (value,) if isinstance(value, str) else _tuple(value)


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _path(value: object) -> object:
    return units.parse_path(value) if isinstance(value, str) else value


def _glob(text: str) -> str:
    """Return a glob of cases unchanged; raise ``ValueError`` if it is malformed."""
    from perfsvc.errors import UsageError
    from perfsvc.suite.selection import parse

    try:
        parse(text)
    except UsageError as error:
        raise ValueError(f"{error.what}; {error.cure}") from None
    return text


def _device(text: str) -> str:
    """Return the specification of a device unchanged; raise ``ValueError`` if it is malformed."""
    kind, colon, names = text.partition(":")
    if text in {"auto", "cpu", "cuda"} or (kind in {"cuda", "fake"} and colon and names):
        return text
    shown = without_password(text)
    raise ValueError(f"{shown!r} is no device; write auto, cpu, cuda, cuda:0, cuda:0,2, cuda:GPU-… or cuda:MIG-…")


def _cluster(text: str) -> str:
    """Return the address of a cluster unchanged; raise ``ValueError`` if it names none."""
    if not text or re.fullmatch(r"ray://[^\s/@:]+:\d+", text, re.ASCII):
        return text
    raise ValueError(f"{without_password(text)!r} is no cluster; write ray://head:10001")


def _architecture(text: str) -> str:
    if not re.fullmatch(r"sm_\d+[af]?", text, re.ASCII):
        raise ValueError(f"{text!r} is no architecture; write sm_90")
    return text


def _part(glob: str) -> str:
    """Return a glob of parts of the environment unchanged; raise ``ValueError`` if it can match none."""
    group, dot, _ = glob.partition(".")
    names = [name for name in PARTS if name.startswith(f"{group}.")]
    open_ended = f"{group}.*" in PARTS
    if (dot and open_ended) or any(fnmatchcase(name, glob) for name in PARTS if not name.endswith("*")):
        return glob
    known = ", ".join(names) or "gpu.ecc, host.kernel, package.NAME or variable.NAME (perfsvc runs environment latest)"
    raise ValueError(f"{glob!r} matches no part of the environment; write {known}")


def _run(value: object) -> object:
    """Return the name of a run as text, also for a number; raise ``ValueError`` for ``latest``."""
    if isinstance(value, str) and value.startswith("latest"):
        raise ValueError(
            f"{value!r} moves every night, so a regression would become the next baseline; write @baseline"
        )
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Networks = Annotated[tuple[Annotated[str, AfterValidator(network)], ...], BeforeValidator(_words)]
Count = Annotated[int, Field(ge=1)]
Folder = Annotated[Path, BeforeValidator(_path)]
Places = Annotated[int, Field(ge=1, le=100)]
Seconds = Annotated[float, BeforeValidator(lambda value: _seconds(value, zero=False)), NumberUnit.DURATION]
SecondsOrZero = Annotated[float, BeforeValidator(lambda value: _seconds(value, zero=True)), NumberUnit.DURATION]
SecondsOrNever = Annotated[float | Literal["never"], PlainValidator(_seconds_or_never), NumberUnit.DURATION]
Precision = Annotated[float, BeforeValidator(_share(1, "0.2%")), NumberUnit.SHARE]
Threshold = Annotated[
    float,
    BeforeValidator(_share(LARGEST_CHANGE, "1%")),
    PlainSerializer(_written_share, when_used="json"),
    NumberUnit.SHARE,
]
Glob = Annotated[str, AfterValidator(_glob)]
Globs = Annotated[tuple[Glob, ...], BeforeValidator(_tuple)]
Devices = Annotated[tuple[Annotated[str, AfterValidator(_device)], ...], BeforeValidator(_tuple), Field(min_length=1)]
Architectures = Annotated[tuple[Annotated[str, AfterValidator(_architecture)], ...], BeforeValidator(_tuple)]
Run = Annotated[str, BeforeValidator(_run), Field(min_length=1)]
Parts = Annotated[tuple[Annotated[str, AfterValidator(_part)], ...], BeforeValidator(_words)]
Page = Annotated[str, AfterValidator(page)]
Variable = Annotated[str, AfterValidator(variable)]
About = Literal["new", "resolved", "failed"]
Severity = Literal["regression", "improvement", "failed", "missing", "resolved"]
Severities = Annotated[tuple[Severity, ...], BeforeValidator(_words), Field(min_length=1)]
Names = Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1)]


# --- settings --------------------------------------------------------------------------------------------------------


class SettingsTable(BaseModel):
    """A table of the file: immutable, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class RunSettings(SettingsTable):
    """What a run measures, and how. `perfsvc run` has the same options."""

    devices: Devices = ("auto",)
    """Where to measure: auto (every GPU, else the CPU), cpu, cuda (every GPU), cuda:0,2, or cuda:GPU-… (a UUID)."""
    on: Annotated[str, AfterValidator(_cluster)] = Field(default="", examples=["ray://head:10001"])
    """The Ray cluster on whose GPUs `perfsvc run` measures; by default this host. A night measures on its own host."""
    select: Globs = Field(default=(), examples=[["transpose", "*/tiled*"]])
    """Patterns of the cases to measure; by default all."""
    exclude: Globs = Field(default=(), examples=[["*[n=16384]"]])
    """Patterns of the cases not to measure."""
    points: Literal["smoke", "full"] | None = Field(default=None, examples=["full"])
    """smoke: one small size of each benchmark. full: all sizes. By default full on a GPU, smoke elsewhere."""
    replicas: Count = 3
    """How many fresh processes measure each case."""
    precision: Precision | None = Field(default=None, examples=["0.2%"])
    """Stop timing a case when half the width of the 95 % interval of its median is at most this share of the median. By
    default 0.2%."""
    samples: Count | None = Field(default=None, examples=[1000])
    """Also stop when a process has timed a case this often. By default 1000 on a GPU, 20 on the CPU device."""
    seconds: Seconds | None = Field(default=None, examples=["2s"])
    """Also stop when a process has timed a case for this long. By default 2s on a GPU, 0.15s on the CPU device."""
    places: Places | None = Field(default=None, examples=[8])
    """At how many places in the device's memory the arrays of a case lie in turn while it is timed. By default 8 on a
    GPU, 1 on the CPU device. Another number begins a new baseline for every case."""
    energy: bool = False
    """Also measure the energy of a launch, which takes a second or more for each case."""
    spread: Literal["each-device", "each-model"] = "each-device"
    """each-device: measure every case on each GPU. each-model: measure each case on one GPU of each model."""
    budget: Seconds | None = Field(default=None, examples=["1h30m"])
    """The most time that a run may take on each device; by default without limit."""
    limit: Seconds = 60.0
    """The most time that a process may spend on one case. After this time perfsvc kills the process."""


class ThresholdSettings(SettingsTable):
    """The smallest relevant change of some cases and metrics. The last rule that matches a series decides."""

    cases: Glob = "*"
    """A pattern of the cases."""
    metric: Annotated[str, Field(min_length=1)] = "*"
    """A pattern of the metrics: time, energy_j, max_error, or a number that a variant returns. * does not match
    max_error."""
    change: Threshold = Field(examples=["3%"])
    """The smallest change that matters, as a share of the baseline."""


def _without_duplicates(rules: tuple[ThresholdSettings, ...]) -> tuple[ThresholdSettings, ...]:
    """Return the rules unchanged; raise ``ValueError`` if two rules are for the same cases and metric."""
    numbers: dict[tuple[str, str], int] = {}
    for number, rule in enumerate(rules, start=1):
        first = numbers.setdefault((rule.cases, rule.metric), number)
        if first != number:
            what = f"the cases {rule.cases!r} and the metric {rule.metric!r}"
            raise ValueError(f"rules {first} and {number} are both for {what}; keep one")
    return rules


class BaselineSettings(SettingsTable):
    """The baseline that new measurements are compared with."""

    against: Run = BASELINE
    """@baseline: each series has a baseline of its own. The number, the label or the git revision of a run: all series
    are compared with this run. A baseline that you chose with `perfsvc baseline set` takes precedence."""


class SegmentSettings(SettingsTable):
    """Which changes of the environment begin a new baseline for every case."""

    parts: Parts = Field(default=(), examples=[["gpu.ecc", "variable.NCCL_*"]])
    """Patterns of further parts of the environment (`perfsvc runs environment latest` lists them) whose change begins a
    new baseline. The driver, the CUDA toolkit, the power limit and the number of places always do. A change of this
    setting itself begins a new baseline too."""


class CheckSettings(SettingsTable):
    """Comparing compiled kernels at night, without running them."""

    enabled: bool = True
    """Whether a night compares properties of compiled kernels, such as registers, with those of earlier versions."""
    architectures: Architectures = Field(default=(), examples=[["sm_90"]])
    """The GPU architectures to compile for. By default a night compiles for the GPUs that it measures."""


class ConfirmSettings(SettingsTable):
    """Measuring suspects again before a finding is raised."""

    enabled: bool = True
    """Whether a night measures its suspects again. If not, a change becomes a finding only when two nights show it."""
    budget: Seconds = 600.0
    """The most time for measuring all suspects again, on each device. New suspects come first, the largest change
    first. The next night measures the suspects for which no time is left."""


class ProfileSettings(SettingsTable):
    """Explaining regressions with Nsight Compute, NVIDIA's profiler."""

    enabled: bool = True
    """Whether a night profiles confirmed regressions, if Nsight Compute is installed."""
    budget: Seconds = 300.0
    """The most time for profiling the regressions of a run, the largest first. A launch that has begun is finished. The
    next night profiles what is left over."""


class NightlySettings(SettingsTable):
    """Where the files of nights are, and how nights start."""

    folder: Folder = Path("nights")
    """The folder for the files of nights. Each night makes a folder in it, with the log and the report of this
    night."""
    wait: SecondsOrZero = 0.0
    """How long a night waits for another night on this host to end. With 0s the new night exits at once."""
    label: str = "nightly"
    """The label of the runs of nights."""
    heartbeat: Annotated[str, AfterValidator(lambda name: name and variable(name))] = Field(
        default="", examples=["HEARTBEAT_URL"]
    )
    """The environment variable with the URL that perfsvc calls when a night begins (URL/start), ends (URL) or fails
    (URL/fail). Write the name of the variable here, never the URL."""


class ExpectSettings(SettingsTable):
    """When perfsvc reports that a host no longer runs nights."""

    every: SecondsOrZero = 86400.0
    """How often each host should begin a night. A host is overdue when its last night began one and a half times this
    duration ago: 36 hours with 1d. With 0s no host is ever overdue."""


class RouteSettings(SettingsTable):
    """A route: which news its targets receive."""

    targets: Names = Field(examples=[["team"]])
    """The targets, by their names."""
    cases: Glob = "*"
    """Only news about cases that match this pattern."""
    owner: str = Field(default="", examples=["jane"])
    """Only findings that are assigned to this person; by default all findings."""
    severity: Severities = ("regression", "improvement", "failed", "missing", "resolved")
    """What to send. regression: findings with a slower case. improvement: findings with only faster cases. failed:
    cases and stages that failed. missing: GPUs, hosts and cases that are gone, and GPUs that are slower than others of
    their model. resolved: findings that are over."""
    at_least: Threshold | None = Field(default=None, examples=["10%"])
    """Of the findings about slower or faster cases, only those with a change of at least this size, or of unknown
    size."""


class NotifySettings(SettingsTable):
    """Which messages perfsvc sends, and to whom."""

    targets: dict[str, Variable] = Field(default={}, examples=[{"team": "TEAM_URL"}])
    """The names of targets, each with the environment variable that holds its address. Never write the address here."""
    about: Annotated[tuple[About, ...], BeforeValidator(_tuple)] = ("new", "resolved", "failed")
    """What to report. new: new findings. resolved: findings that are over. failed: cases and stages that failed."""
    page: Page = Field(default="", examples=["https://perf.example.org/"])
    """The address of the web pages, for the links in a message."""
    remind: SecondsOrNever = 7 * 86400.0
    """After how long a message reminds people of an open finding that no person has answered; or never."""
    digest: Literal["weekly", "never"] = "never"
    """weekly: a target that has received no message for a week receives a summary of the week."""
    route: Annotated[tuple[RouteSettings, ...], BeforeValidator(_tuple)] = ()
    """A route: which news its targets receive; one table for each route. A target receives the news that matches one of
    its routes. A target without a route receives all news. If every target has a route, news of a regression, a failure
    or something missing that matches no route goes to all targets."""

    @model_validator(mode="after")
    def _require_known_targets(self) -> Self:
        """Raise ``ValueError`` if a route names a target that does not exist."""
        for number, route in enumerate(self.route, start=1):
            for name in route.targets:
                if name not in self.targets:
                    known = ", ".join(self.targets) or "one of [notify] targets"
                    raise ValueError(f"route {number} names {name!r}, which is no target; write {known}")
        return self


class DashboardSettings(SettingsTable):
    """The web pages."""

    enabled: bool = True
    """Whether a night builds the web pages."""
    folder: Folder = Path("site")
    """The folder of the web pages."""


class ServerSettings(SettingsTable):
    """The web server, `perfsvc serve`."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen at. 127.0.0.1: only this machine can read. 0.0.0.0: every machine that reaches this one."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8350
    """The port to listen at; 0 for any free port."""
    anonymous: bool | None = Field(default=None, examples=[True])
    """Whether visitors whom the server does not know may read. By default only if the server listens at an address of
    this machine alone, such as 127.0.0.1, and has no trusted_header."""
    trusted_header: Annotated[str, AfterValidator(header)] = Field(default="", examples=["X-Forwarded-User"])
    """The header in which a proxy in front of the server puts the name of the visitor. The server believes it only if
    it comes from one of trusted_proxies. The proxy must remove the header from what visitors send."""
    trusted_proxies: Networks = ("127.0.0.1", "::1")
    """The addresses or networks of the proxies whose trusted_header and X-Forwarded-For the server believes."""
    changes: bool = False
    """Whether hosts with a token may send runs, and people who are signed in may act on findings. By default the server
    only reads the database."""
    requests_a_minute: Count = 60_000
    """How many requests an address may send in a minute."""
    changes_a_minute: Count = 120
    """How many runs and actions on findings a token, or a person, may send in a minute."""
    largest_run_mib: Count = 64
    """The most MiB of a run that a host sends, as sent."""
    largest_run_unpacked_mib: Count = 512
    """The most MiB of a run that a host sends, after decompression."""
    upload: Seconds = 120.0
    """How long a host may take to send a run."""
    public_url: Page = Field(default="", examples=["https://perf.example.org/"])
    """The address that people type, for the links in feeds and for the check of the header Host."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def lets_anonymous_read(self) -> bool:
        """Whether visitors whom the server does not know may read."""
        return self.is_local and not self.trusted_header if self.anonymous is None else self.anonymous


class RetentionSettings(SettingsTable):
    """How long to keep data that perfsvc no longer needs; by default for ever."""

    samples: Seconds | None = Field(default=None, examples=["90d"])
    """The samples of measurements; medians and verdicts stay."""
    binaries: Seconds | None = Field(default=None, examples=["365d"])
    """Compiled kernels, and the files that are needed to run them again."""
    profiles: Seconds | None = Field(default=None, examples=["365d"])
    """The reports of Nsight Compute; their counters stay."""
    nights: Seconds | None = Field(default=None, examples=["365d"])
    """The files, stages and messages of nights; their runs stay."""
    audit: Seconds | None = Field(default=None, examples=["365d"])
    """The entries of the server's audit log."""


class Settings(BaseSettings):
    """All settings. ``perfsvc.config.load`` reads the file and the environment; the constructor reads neither."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        env_prefix=PREFIX,
        env_nested_delimiter=BETWEEN,
        env_ignore_empty=True,
    )

    suite: Folder = Path("kernels")
    """The folder of benchmarks; by default ./kernels, else the built-in suite."""
    database: Annotated[str, Field(min_length=1, repr=False)] = "perfsvc.db"
    """A SQLite file, or the URL of a PostgreSQL server. Put a URL with a password into PERFSVC_DB, never here."""
    run: RunSettings = RunSettings()
    thresholds: Annotated[
        tuple[ThresholdSettings, ...], BeforeValidator(_tuple), AfterValidator(_without_duplicates)
    ] = ()
    """A rule: the smallest change that matters, for some cases and metrics; one table for each rule. If several rules
    match, the last one decides. Without a rule the threshold is 1% on a GPU and 50% on the CPU device."""
    baseline: BaselineSettings = BaselineSettings()
    segments: SegmentSettings = SegmentSettings()
    check: CheckSettings = CheckSettings()
    confirm: ConfirmSettings = ConfirmSettings()
    profile: ProfileSettings = ProfileSettings()
    nightly: NightlySettings = NightlySettings()
    expect: ExpectSettings = ExpectSettings()
    notify: NotifySettings = NotifySettings()
    dashboard: DashboardSettings = DashboardSettings()
    server: ServerSettings = ServerSettings()
    retention: RetentionSettings = RetentionSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources that pydantic reads: the constructor's arguments only, not the environment."""
        return (init_settings,)

    def public(self) -> dict[str, Any]:
        """Return all settings as JSON values, without the password of the database."""
        return self.model_dump(mode="json") | {"database": url_without_password(self.database)}
