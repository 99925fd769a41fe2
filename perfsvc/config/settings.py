"""Every setting, with its type, its default and its meaning; ``docs/reference/configuration.md`` lists them."""

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from perfsvc.config.value_types import (
    About,
    Architectures,
    Count,
    Devices,
    Folder,
    Glob,
    Globs,
    Names,
    Networks,
    Page,
    Parts,
    Places,
    Precision,
    Run,
    Seconds,
    SecondsOrNever,
    SecondsOrZero,
    Severities,
    SlurmOptions,
    SlurmValue,
    Threshold,
    Variable,
    as_tuple,
    cluster,
    header,
    variable,
)
from perfsvc.text import url_without_password

PREFIX = "PERFSVC_"
BETWEEN = "__"
BASELINE = "@baseline"


class SettingsTable(BaseModel):
    """A table of the file: immutable, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class RunSettings(SettingsTable):
    """What a run measures, and how. `perfsvc run` has the same options."""

    devices: Devices = ("auto",)
    """Where to measure: auto (every GPU, else the CPU), cpu, cuda (every GPU), cuda:0,2, or cuda:GPU-… (a UUID)."""
    on: Annotated[str, AfterValidator(cluster)] = Field(default="", examples=["ray://head:10001"])
    """The cluster on whose GPUs `perfsvc run` measures: the address of a Ray cluster, or slurm; by default this host. A
    night measures on its own host."""
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


class SlurmGpuSettings(SettingsTable):
    """GPUs of one model of a Slurm cluster."""

    count: Count = 1
    """How many of these GPUs to measure on; a job for each."""
    gres: Annotated[SlurmValue, Field(min_length=1)] = "gpu:1"
    """What a job requests with --gres: one GPU. Many clusters name the model here, such as gpu:h100:1."""
    constraint: SlurmValue = Field(default="", examples=["h100"])
    """The features that the node must have. Other clusters name the model here."""
    partition: SlurmValue = Field(default="", examples=["gpu"])
    """The partition of these jobs; by default that of [slurm]."""


class SlurmSettings(SettingsTable):
    """How `perfsvc run --on slurm` requests GPUs."""

    partition: SlurmValue = Field(default="", examples=["gpu"])
    """The partition of the jobs; by default that of the cluster."""
    time: Seconds = 4 * 3600.0
    """How long a job may last, rounded up to whole minutes. Slurm ends the job after this time."""
    wait: Seconds | None = Field(default=None, examples=["30m"])
    """How long to wait for jobs that have not started; then the run measures without them. By default without limit."""
    folder: Folder | None = Field(default=None, examples=["/shared/jane/perfsvc"])
    """A folder that all nodes see under this path; by default `slurm` in the build cache, which is in your home
    folder."""
    options: SlurmOptions = Field(default={}, examples=[{"account": "kernels", "cpus-per-task": 8, "mem": "32G"}])
    """Further options of sbatch, by their long names."""
    gpus: Annotated[tuple[SlurmGpuSettings, ...], BeforeValidator(as_tuple)] = ()
    """GPUs of one model; one table for each model. Without a table the run measures on one GPU of any model."""


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
    about: Annotated[tuple[About, ...], BeforeValidator(as_tuple)] = ("new", "resolved", "failed")
    """What to report. new: new findings. resolved: findings that are over. failed: cases and stages that failed."""
    page: Page = Field(default="", examples=["https://perf.example.org/"])
    """The address of the web pages, for the links in a message."""
    remind: SecondsOrNever = 7 * 86400.0
    """After how long a message reminds people of an open finding that no person has answered; or never."""
    digest: Literal["weekly", "never"] = "never"
    """weekly: a target that has received no message for a week receives a summary of the week."""
    route: Annotated[tuple[RouteSettings, ...], BeforeValidator(as_tuple)] = ()
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
    def listens_everywhere(self) -> bool:
        """Whether the server listens at every address of this machine: at 0.0.0.0 or ``::``."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def lets_anonymous_read(self) -> bool:
        """Whether visitors whom the server does not know may read."""
        return self.is_local and not self.trusted_header if self.anonymous is None else self.anonymous


class RetentionSettings(SettingsTable):
    """How long to keep data that perfsvc no longer needs; by default for ever."""

    samples: Seconds | None = Field(default=None, examples=["90d"])
    """The samples and batches of measurements; medians and verdicts stay."""
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
    slurm: SlurmSettings = SlurmSettings()
    thresholds: Annotated[
        tuple[ThresholdSettings, ...], BeforeValidator(as_tuple), AfterValidator(_without_duplicates)
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
