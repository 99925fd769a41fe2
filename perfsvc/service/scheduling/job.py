"""What a scheduler has to start every night, whoever the scheduler is."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import time
from pathlib import Path
from zoneinfo import ZoneInfo

from perfsvc.config import Loaded
from perfsvc.config.file import NAME as CONFIG
from perfsvc.config.file import VARIABLE
from perfsvc.errors import UsageError

NAME = "perfsvc-nightly"
"""What schedulers call it."""
VARIABLES_FILE = "perfsvc.env"
"""Beside perfsvc.toml: a line NAME='value' for each variable that the settings need; nobody else may read it."""
STOP_S = 90
"""Seconds from SIGTERM to SIGKILL: what a night needs to finish the case in hand and commit it, and more."""
LATE_S = 6 * 3600
"""How late a missed night still begins where a limit has to be given: until somebody needs the GPUs by day."""
TOOLS = ("CUDA_HOME", "CUDA_PATH", "PERFSVC_CACHE", "PERFSVC_LOCKS")
"""Variables that are no secrets, and without which compilers, caches and locks would be others than here."""


@dataclass(frozen=True, slots=True)
class Job:
    """A night as a scheduler starts it.

    Attributes:
        at: when, by the clock on the wall.
        zone: of that clock; None for the scheduler's own.
        command: what is started: the interpreter and its arguments, paths absolute.
        folder: where it is started: that of perfsvc.toml.
        path: where programs are looked for: compilers, Nsight Compute, git.
        plain: variables with their values, which are no secrets.
        secret: variables that are needed and whose values are nobody's business.
        gpus: how many it measures on.
        limit_s: seconds after which it is told to end.
        user: who runs it.
    """

    at: time
    zone: ZoneInfo | None
    command: tuple[str, ...]
    folder: Path
    path: str
    plain: Mapping[str, str]
    secret: tuple[str, ...]
    gpus: int
    limit_s: float
    user: str

    @property
    def variables(self) -> Path:
        """The file that holds the variables."""
        return self.folder / VARIABLES_FILE


def job_of(loaded: Loaded, *, at: time, zone: ZoneInfo | None, gpus: int | None, limit_s: float, user: str) -> Job:
    """The job of what is in force here and now.

    Variables of the environment that say anything to perfsvc are needed there as they are here, and so are those that
    name where messages go.

    Args:
        loaded: the settings, and where each came from.
        at: when.
        zone: of which clock.
        gpus: on how many GPUs; None for what the settings say.
        limit_s: how long a night may take.
        user: who runs it.

    Raises:
        UsageError: a path holds what no scheduler takes.
    """
    file = (loaded.path or Path(CONFIG)).resolve()
    config = ["--config", str(file)] if loaded.path and file.name != CONFIG else []
    command = [sys.executable, "-m", "perfsvc", *config, "nightly"]
    plain = {name: os.environ[name] for name in TOOLS if os.environ.get(name)}
    path = ":".join(dict.fromkeys(os.environ.get("PATH", os.defpath).split(":")))  # a line of cron's has to be short
    for text in (*command, str(file.parent), path, *plain.values()):
        _require_one_line(text)
    return Job(
        at=at,
        zone=zone,
        command=tuple(command),
        folder=file.parent,
        path=path,
        plain=plain,
        secret=_needed(loaded, plain),
        gpus=_gpus(loaded.settings.run.devices) if gpus is None else gpus,
        limit_s=limit_s,
        user=user,
    )


def _needed(loaded: Loaded, plain: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that settings come from, and those that targets name; that of the file itself is said already."""
    from_environment = {root_cause for root_cause in loaded.origins.values() if root_cause.startswith("PERFSVC_")}
    named = set(loaded.settings.notify.targets.values())
    return tuple(sorted((from_environment | named) - plain.keys() - {VARIABLE}))


def _gpus(devices: tuple[str, ...]) -> int:
    """How many GPUs devices are: one at least, unless they are none."""
    named = [name for device in devices if device.startswith("cuda:") for name in device[5:].split(",")]
    others = any(device in {"auto", "cuda"} for device in devices)
    return max(len(set(named)), int(others))


def _require_one_line(text: str) -> None:
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise UsageError(f"{text!r} holds a line break or the like, which no scheduler takes", cure="rename it")
