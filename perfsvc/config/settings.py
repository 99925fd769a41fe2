"""What can be set, with its default and what it means; ``docs/configuration.md`` has every key."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from perfsvc.config import types

PREFIX = "PERFSVC_"
BETWEEN = "__"
BASELINE = "@baseline"

About = Literal["new", "resolved", "failed"]


class Table(BaseModel):
    """A table of the file: its values never change, and it has no other keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class RunSettings(Table):
    """What a run measures and how, as the options of `perfsvc run` say it."""

    devices: types.Devices = ("auto",)
    """Where to measure: auto (every GPU, else the CPU), cpu, cuda, cuda:0,2, cuda:GPU-…"""
    select: types.Globs = Field(default=(), examples=[["transpose", "*/tiled*"]])
    """Only these cases, by glob; all where there is none."""
    exclude: types.Globs = Field(default=(), examples=[["*[n=16384]"]])
    """Not these cases, by glob."""
    points: Literal["smoke", "full"] | None = Field(default=None, examples=["full"])
    """The small smoke point of each benchmark, or its full points; by default full on a GPU, smoke elsewhere."""
    replicas: types.Count = 3
    """Fresh processes that measure each case."""
    precision: types.Precision | None = Field(default=None, examples=["0.2%"])
    """How narrow the 95 % interval of a case's median is to be, to each side; by default 0.2%."""
    samples: types.Count | None = Field(default=None, examples=[1000])
    """Or until a case has so many samples in a replica; by default 1000 on a GPU, 20 on the CPU device."""
    seconds: types.Seconds | None = Field(default=None, examples=["2s"])
    """Or until it was sampled for so long in a replica; by default 2s on a GPU, 0.15s on the CPU device."""
    energy: bool = False
    """Measure the energy of a launch too: a second or more for each case."""
    spread: Literal["each-device", "each-model"] = "each-device"
    """Measure every case on each GPU, or on one GPU of each model, the same one every night."""
    budget: types.Seconds | None = Field(default=None, examples=["1h30m"])
    """What a run may take on each device; by default as long as it needs."""
    limit: types.Seconds = 60.0
    """What a case may take in a replica before its worker is killed."""


class ThresholdSettings(Table):
    """The smallest relevant change of some cases and metrics. The last rule that takes a series decides."""

    cases: types.Glob = "*"
    """Of which cases, by glob."""
    metric: Annotated[str, Field(min_length=1)] = "*"
    """Of which metric, by glob: time, energy_j or one that a variant returns; * is all but max_error."""
    change: types.Change = Field(examples=["3%"])
    """The smallest change that matters, as a share of the baseline."""


def _each_once(rules: tuple[ThresholdSettings, ...]) -> tuple[ThresholdSettings, ...]:
    places: dict[tuple[str, str], int] = {}
    for place, rule in enumerate(rules, start=1):
        first = places.setdefault((rule.cases, rule.metric), place)
        if first != place:
            what = f"the cases {rule.cases!r} and the metric {rule.metric!r}"
            raise ValueError(f"rules {first} and {place} are both of {what}; keep one")
    return rules


class BaselineSettings(Table):
    """What verdicts compare with."""

    against: types.Run = BASELINE
    """@baseline: each series with its own last accepted level; or a run (its number, its label, a git revision).
    A pin (`perfsvc baseline set`) goes before both."""


class CheckSettings(Table):
    """The static check of a night."""

    enabled: bool = True
    """Whether a night checks the kernels' binaries."""
    architectures: types.Architectures = Field(default=(), examples=[["sm_90"]])
    """What to compile for, also for `perfsvc check`; by default a night takes those of its devices."""


class ConfirmSettings(Table):
    """Measuring suspects again before anybody is told of them."""

    enabled: bool = True
    """Whether a night measures its suspects again; without it, it raises no finding of the code."""
    budget: types.Seconds = 20.0
    """What one answer may take on a device."""


class ProfileSettings(Table):
    """Having Nsight Compute say why."""

    enabled: bool = True
    """Whether a night profiles what is confirmed to be slower, where Nsight Compute is there."""


class NightlySettings(Table):
    """How a night goes."""

    folder: types.Folder = Path("nights")
    """Where each night has a folder with its log and its report."""
    wait: types.Waiting = 0.0
    """How long a night waits for another one on this host to end; 0s: it leaves at once."""
    label: str = "nightly"
    """The label of its run."""


class NotifySettings(Table):
    """Who is told."""

    targets: dict[str, types.Variable] = Field(default={}, examples=[{"team": "TEAM_URL"}])
    """Who is told: a name, and the environment variable that holds the Apprise URL. Never the URL itself."""
    about: Annotated[tuple[About, ...], BeforeValidator(types.sequence)] = ("new", "resolved", "failed")
    """Of what: new findings, resolved ones, cases and stages that failed."""
    page: types.Page = Field(default="", examples=["https://perf.example.org/"])
    """Where the site is served, for the links of a message."""


class DashboardSettings(Table):
    """The site."""

    enabled: bool = True
    """Whether a night builds it."""
    folder: types.Folder = Path("site")
    """Where it lies."""


class RetentionSettings(Table):
    """For how long things are kept that nothing needs any more; by default for ever."""

    samples: types.Seconds | None = Field(default=None, examples=["90d"])
    """The samples of measurements; their levels stay."""
    binaries: types.Seconds | None = Field(default=None, examples=["365d"])
    """Binaries and what is needed to run them again."""
    profiles: types.Seconds | None = Field(default=None, examples=["365d"])
    """Reports of Nsight Compute."""
    nights: types.Seconds | None = Field(default=None, examples=["365d"])
    """The files of nights, and what is known of their stages and messages."""


class Settings(BaseSettings):
    """All that can be set.

    Made from values alone; ``perfsvc.config.load`` is what reads the file and the environment.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        env_prefix=PREFIX,
        env_nested_delimiter=BETWEEN,
        env_ignore_empty=True,
    )

    suite: types.Folder = Path("kernels")
    """The folder of benchmarks; by default ./kernels, else the built-in suite."""
    database: Annotated[str, Field(min_length=1, repr=False)] = "perfsvc.db"
    """A SQLite file, or the URL of a PostgreSQL server; one with a password only in PERFSVC_DB."""
    run: RunSettings = RunSettings()
    thresholds: Annotated[
        tuple[ThresholdSettings, ...], BeforeValidator(types.sequence), AfterValidator(_each_once)
    ] = ()
    """The smallest change that matters of some cases and metrics, a table for each rule; the last rule that takes a
    series decides. Without one it is 1% on a GPU and 50% on the CPU device."""
    baseline: BaselineSettings = BaselineSettings()
    check: CheckSettings = CheckSettings()
    confirm: ConfirmSettings = ConfirmSettings()
    profile: ProfileSettings = ProfileSettings()
    nightly: NightlySettings = NightlySettings()
    notify: NotifySettings = NotifySettings()
    dashboard: DashboardSettings = DashboardSettings()
    retention: RetentionSettings = RetentionSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The values it is made from: nothing is read behind anybody's back."""
        return (init_settings,)

    def public(self) -> dict[str, Any]:
        """All of it as JSON knows it, to be stored and shown: without the password of the database."""
        return self.model_dump(mode="json") | {"database": types.without_password(self.database)}
